"""Access to a session: concurrent runs, each with its own executor, or exclusive work.

Ctrl-C may interrupt between any two lines, and must not leave a run that seems to be under way. So a lock of the
interpreter marks all work under way. `with` acquires and releases it in one step, in the function that does the work; a
context manager written in Python can be interrupted before its `finally`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pyruntime.errors import OutOfMemory
from pyruntime.native.execution.forks import in_children

T = TypeVar("T")

POLL = 0.05  # seconds; waiters poll, lest a wake-up was lost


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RunQueue:
    """The queue of one session. Callers pass one lock, the door, in turn. Behind it a run waits until a core is free,
    and exclusive work until no run is under way. Runs under way do not need the door, so they always end.

    after_fork(executors), a method: called in a forked child with the executors that other threads were running; None
    if it can be any
    """

    def __init__(self, after_fork: Callable[[Sequence[Any] | None], None]) -> None:
        self._after_fork = weakref.WeakMethod(after_fork)
        self._reset()
        in_children(self.after_fork)

    def _reset(self) -> None:
        self._door = threading.Lock()
        self._ended = threading.Lock()  # released when a run ends, to wake the waiter
        self._runs: list[tuple[threading.Lock, Any]] = []  # a run is under way as long as its lock is held
        self._calls: dict[int, threading.Lock] = {}  # by thread, its latest call, held until that ends
        self._alone: threading.Lock | None = None  # that of the latest exclusive work
        self._limit = cores()

    def after_fork(self) -> None:
        """In the child, which does not have the parent's other threads."""
        running, changing = self._running, self._door.locked()
        self._reset()
        callback = self._after_fork()
        if callback is not None and (running or changing):
            callback(None if changing else running)

    def exclusive(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, during which no run is under way and none starts."""
        self._calls[threading.get_ident()] = mine = threading.Lock()
        with mine, self._door:
            self._wait(0)
            self._alone = mine
            return work()

    def exclusive_if_idle(self, work: Callable[[], bool]) -> bool:
        """Return the result of `work`, or False at once if other work is under way."""
        if not self._door.acquire(blocking=False):
            return False
        try:
            return not self._running and work()
        finally:
            self._door.release()

    def concurrent(self, find: Callable[[], Any], work: Callable[[Any], T], preferred: Callable[[Any], bool]) -> T:
        """Return the result of `work` on a free executor: the one that `find` returns or one of its twins, if possible
        one that is `preferred`. While `find` runs, only runs under way use the session."""
        self._calls[threading.get_ident()] = mine = threading.Lock()
        try:
            with mine:
                with self._door:
                    self._wait(self._limit - 1)
                    executor = self._free(find(), preferred)
                    executor.share_cores(len(self._running))
                    self._runs.append((mine, executor))
                return work(executor)
        finally:
            if self._ended.locked():  # else nobody waits; who begins to wait looks again first
                with suppress(RuntimeError):  # already released
                    self._ended.release()

    @property
    def _running(self) -> list[Any]:
        return [executor for lock, executor in self._runs if lock.locked()]

    @property
    def waiting(self) -> int:
        """The number of calls that wait for their turn."""
        begun = [self._alone, *[lock for lock, _ in self._runs]]
        return sum(lock.locked() and lock not in begun for lock in [*self._calls.values()])

    @property
    def is_busy(self) -> bool:
        return self._door.locked() or bool(self._running)

    def _free(self, first: Any, preferred: Callable[[Any], bool]) -> Any:
        """Return the executor or one of its twins, whichever is free. If memory for another twin is lacking, runs queue
        from now on."""
        running = self._running
        free = [executor for executor in (first, *first.twins) if executor not in running]
        if free:
            return free[0] if len(free) == 1 else max(free, key=preferred)
        try:
            return first.twin()
        except OutOfMemory:
            self._limit = 1
            self._wait(0)
            return first

    def _wait(self, limit: int) -> None:
        """Wait until at most `limit` runs are under way."""
        while len(runs := [run for run in self._runs if run[0].locked()]) > limit:
            self._ended.acquire(timeout=POLL)
        self._runs = runs
