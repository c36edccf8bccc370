"""Python threads that run one job at a time, and what stops a job that is inside a WebAssembly kernel.

A kernel looks at no flag: a check in each loop (wasmtime's epochs) took 2 to 8 % of a run of MiniLM, Llama and
MobileNet. Instead the pages of the memory are made inaccessible for a moment: the next load or store traps, as one out
of bounds does, wherever the kernel is. What was in the memory stays.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

TICK = 0.02  # seconds between two looks at whether a job is to stop
AWAY, MOST_AWAY = (
    0.001,
    0.032,
)  # seconds that the memory is gone, longer each time: a thread that has no core traps later

_NONE, _READ_WRITE = 0, 3  # PROT_* of mmap(2)
_mprotect: Any = None
try:
    _mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    _mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
except (AttributeError, OSError, TypeError):  # Windows: a job ends with its kernel
    pass


class HostThread:
    """A thread that runs one job at a time.

    Ctrl-C may come after a lock was taken and before the next line, so `finished` says whether the job has ended; the
    lock only wakes who waits."""

    def __init__(self) -> None:
        self.finished = True
        self._go, self._woken = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._job: Callable[[], object] | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._loop, daemon=True, name="pyruntime-wasm").start()

    def _loop(self) -> None:
        while True:
            self._go.acquire()
            if self._job is None:
                return
            try:
                self._job()
            except BaseException as error:
                self._error = error
            self.finished = True
            with suppress(RuntimeError):  # nobody has waited since the last job
                self._woken.release()

    def start(self, job: Callable[[], object] | None) -> None:
        """Begins a job; None ends the thread."""
        self._job = job
        self.finished = False
        self._woken.acquire(blocking=False)
        self._go.release()

    def ended(self, seconds: float) -> bool:
        """Waits for the job's end, at most about so long."""
        if not self.finished:
            self._woken.acquire(timeout=seconds)
        return self.finished

    def wait(self) -> BaseException | None:
        """What the job raised, after its end."""
        while not self.finished:
            self._woken.acquire()
        error, self._error, self._job = self._error, None, None
        return error


def stop(thread: HostThread, memory_gone: Callable[[], AbstractContextManager[None]]) -> None:
    """Ends the job of a thread that runs WebAssembly and waits for it, through any number of Ctrl-C."""

    def work() -> None:  # on a thread of its own, for Ctrl-C is raised on the main one, wherever that is
        away = AWAY
        while not thread.ended(away):
            with memory_gone():
                time.sleep(away)
            away = min(2 * away, MOST_AWAY)

    worker = threading.Thread(target=work, name="pyruntime-stop")
    while not worker.ident or worker.is_alive():
        with suppress(KeyboardInterrupt):
            if not worker.ident:
                worker.start()
            worker.join()
    thread.wait()


@contextmanager
def without(address: int, size: int) -> Iterator[None]:
    """Inside, nobody can touch these pages; WebAssembly that does traps, Python that does ends the process."""
    if _mprotect is None:
        yield
        return
    try:
        _mprotect(address, size, _NONE)
        yield
    finally:
        _mprotect(address, size, _READ_WRITE)


__all__ = ["AWAY", "TICK", "HostThread", "stop", "without"]
