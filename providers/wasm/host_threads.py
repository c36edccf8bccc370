"""Python threads that run one job at a time, and a way to stop a job inside of a WebAssembly kernel.

Kernels poll no flag: a check in each loop (wasmtime's epochs) took 2 to 8 % of a run of MiniLM, Llama and MobileNet.
Instead the pages of the memory become inaccessible for a moment: the kernel's next load or store traps, like one out of
bounds. The contents of the memory stay.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

TICK = 0.02  # seconds between two polls whether to stop a job
# Seconds that the memory is inaccessible. They grow because a thread that waits for a core traps later
SHORTEST, LONGEST = 0.001, 0.032

_NONE, _READ_WRITE = 0, 3  # PROT_* of mmap(2)
_mprotect: Any = None
try:
    _mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    _mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
except (AttributeError, OSError, TypeError):  # Windows: a job ends with its kernel
    pass


class HostThread:
    """A thread that runs one job at a time.

    Ctrl-C may come between taking a lock and the next line, so `finished` says whether the job has ended; the lock only
    wakes a waiter."""

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
            with suppress(RuntimeError):  # no thread has waited since the last job
                self._woken.release()

    def start(self, job: Callable[[], object] | None) -> None:
        """Start a job; None ends the thread."""
        self._job = job
        self.finished = False
        self._woken.acquire(blocking=False)
        self._go.release()

    def has_ended(self, timeout: float) -> bool:
        """Wait for the job's end, at most about `timeout` seconds."""
        if not self.finished:
            self._woken.acquire(timeout=timeout)
        return self.finished

    def wait(self) -> BaseException | None:
        """Wait for the job's end; return the exception that it raised, if any."""
        while not self.finished:
            self._woken.acquire()
        error, self._error, self._job = self._error, None, None
        return error


def stop(thread: HostThread, inaccessible: Callable[[], AbstractContextManager[None]]) -> None:
    """Stop the job of a thread that runs WebAssembly and wait for its end, despite any number of Ctrl-C.

    inaccessible: a context in which the job's memory traps"""

    def work() -> None:  # on its own thread, because Ctrl-C is raised on the main one at any line
        seconds = SHORTEST
        while not thread.has_ended(seconds):
            with inaccessible():
                time.sleep(seconds)
            seconds = min(2 * seconds, LONGEST)

    worker = threading.Thread(target=work, name="pyruntime-stop")
    while not worker.ident or worker.is_alive():
        with suppress(KeyboardInterrupt):
            if not worker.ident:
                worker.start()
            worker.join()
    thread.wait()


@contextmanager
def inaccessible_pages(address: int, size: int) -> Iterator[None]:
    """A context in which these pages are inaccessible. WebAssembly that touches them traps; Python and the instructions
    that wasmtime carries out in functions of its own (`memory.fill`, `memory.atomic.wait32`) end the process."""
    if _mprotect is None:
        yield
        return
    try:
        _mprotect(address, size, _NONE)
        yield
    finally:
        _mprotect(address, size, _READ_WRITE)
