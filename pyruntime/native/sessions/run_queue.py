"""Who may use a session: runs side by side, each with an executor to itself, or one thread that has all of it.

Ctrl-C may come between any two lines, and what it leaves behind must not look like a run. So whatever says that
somebody is at work is a lock of the interpreter's, which `with` takes and gives back in one step, in a function that
runs the work itself: a context manager in Python can be interrupted before its `finally`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pyruntime.errors import OutOfMemory

T = TypeVar("T")

TICK = 0.05  # seconds after which who waits looks by himself, should a run not have told of its end


def cores() -> int:
    """How many of them this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Turns:
    """Of one session. Who comes waits at one door, in turn: for a core, if as many runs as there are cores are under
    way, or until none is. Runs under way pass no door, so that they always come to an end.

    lost(executors), a method, is told in a forked child which ones somebody was inside of; None if that may be any."""

    def __init__(self, lost: Callable[[Sequence[Any] | None], None]) -> None:
        self._lost = weakref.WeakMethod(lost)
        self._begin_anew()
        _all.add(self)

    def _begin_anew(self) -> None:
        self._door = threading.Lock()
        self._ended = threading.Lock()  # wakes who waits at the door; locked while there is nothing to see
        self._runs: list[tuple[threading.Lock, Any]] = []  # those begun, under way as long as the lock is held
        self._most = cores()

    def after_fork(self) -> None:
        """In the child: the runs of other threads did not come along."""
        inside, changed = self._running, self._door.locked()
        self._begin_anew()
        lost = self._lost()
        if lost is not None and (inside or changed):
            lost(None if changed else inside)

    def alone(self, work: Callable[[], T]) -> T:
        """What `work` gives. Meanwhile no run is under way and none begins."""
        with self._door:
            self._wait(0)
            return work()

    def beside(self, find: Callable[[], Any], work: Callable[[Any], T], best: Callable[[Any], bool]) -> T:
        """What `work` gives for an executor of the Program whose executor `find` gives, the `best` of those that are
        free; nobody else runs it meanwhile. `find` runs alone but for runs under way."""
        mine = threading.Lock()
        try:
            with mine:
                with self._door:
                    self._wait(self._most - 1)
                    executor = self._free(find(), best)
                    executor.helped_by(len(self._running))
                    self._runs.append((mine, executor))
                return work(executor)
        finally:
            with suppress(RuntimeError):  # it is open
                self._ended.release()

    @property
    def _running(self) -> list[Any]:
        return [executor for lock, executor in self._runs if lock.locked()]

    @property
    def taken(self) -> bool:
        """Whether somebody uses the session."""
        return self._door.locked() or bool(self._running)

    def _free(self, first: Any, best: Callable[[Any], bool]) -> Any:
        """The executor itself or a twin that does not run. If there is no memory for one, runs queue from now on."""
        running = self._running
        for executor in sorted((first, *first.twins), key=best, reverse=True):
            if executor not in running:
                return executor
        try:
            return first.twin()
        except OutOfMemory:
            self._most = 1
            self._wait(0)
            return first

    def _wait(self, most: int) -> None:
        """Until no more than so many runs are under way."""
        self._runs = [run for run in self._runs if run[0].locked()]
        while len(self._running) > most:
            self._ended.acquire(timeout=TICK)


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork() -> None:
    for turns in _all:
        turns.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = ["Turns"]
