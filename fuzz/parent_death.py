"""Ends a process when its parent ends, in whatever way."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Asks Linux to kill this process when the parent's thread that started it ends: a kernel in a loop does not notice
    that a pipe closes."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    parent = multiprocessing.parent_process()
    if parent and os.getppid() != parent.pid:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)
