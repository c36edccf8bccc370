"""Work that the first of pytest's processes does for all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

import pytest


def once(factory: pytest.TempPathFactory, name: str, work: Callable[[], object]) -> None:
    """Do the work unless another process of this test run has done it. Others wait for its end."""
    folder = factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / name).exists():
            work()
            (shared / name).touch()
