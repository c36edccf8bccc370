"""A process that ends when the one that started it does, however that ended and whatever is under way."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Kernels in a loop see no closed pipe; Linux kills them once the parent's thread that started this is gone."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    parent = multiprocessing.parent_process()
    if parent and os.getppid() != parent.pid:  # it was gone before
        os.kill(os.getpid(), signal.SIGKILL)
