"""Who may use a session: runs side by side, each with an executor to itself, or one thread that has all of it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyruntime.errors import OutOfMemory


def cores() -> int:
    """How many of them this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Turns:
    """Of one session. Who comes waits at one door, in turn: for a core, if as many runs as there are cores are under
    way, or until none is. Runs under way pass no door, so that they always come to an end."""

    def __init__(self) -> None:
        _all.add(self)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is under way. Also in a forked child: the runs of other threads did not come along."""
        self._door = threading.Lock()
        self._ended = threading.Condition()
        self._running: list[Any] = []
        self._most = cores()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no run is under way and none begins."""
        with self._door:
            self._wait(0)
            yield

    @contextmanager
    def beside(self, find: Callable[[], Any]) -> Iterator[Any]:
        """An executor for a run, of the Program whose executor `find` gives; nobody else runs it meanwhile. `find` runs
        alone but for runs under way."""
        mine: list[Any] = []
        try:
            with self._door:
                self._wait(self._most - 1)
                mine.append(self._free(find()))
                mine[0].helped_by(len(self._running))
                self._running += mine
            yield mine[0]
        finally:
            with self._ended:
                self._running = [executor for executor in self._running if executor not in mine]
                self._ended.notify_all()

    @property
    def taken(self) -> bool:
        """Whether somebody uses the session."""
        return self._door.locked() or bool(self._running)

    def _free(self, first: Any) -> Any:
        """The executor itself or a twin that does not run. If there is no memory for one, runs queue from now on."""
        for executor in (first, *first.twins):
            if executor not in self._running:
                return executor
        try:
            return first.twin()
        except OutOfMemory:
            self._most = 1
            self._wait(0)
            return first

    def _wait(self, most: int) -> None:
        """Until no more than so many runs are under way."""
        if len(self._running) > most:
            with self._ended:
                self._ended.wait_for(lambda: len(self._running) <= most)


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork() -> None:
    for turns in _all:
        turns.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = ["Turns"]
