"""Compiling makes hundreds of thousands of objects, nearly all of which live until it ends. Python's collector of
cycles walks through them again and again and finds nothing (docs/design/startup.md#compiling)."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Compilations:
    """Those that run now, in all threads. restore: whether the collector ran before the first of them; called: whether
    the host calls `collect` when it is idle; waiting: whether the collector stays stopped until then"""

    called = False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.restore = self.waiting = False

    def enter(self) -> None:
        with self.lock:
            if not self.running:
                self.restore = gc.isenabled() or self.waiting
                gc.disable()
            self.running += 1

    def leave(self, until_idle: bool) -> None:
        with self.lock:
            self.running -= 1
            if not self.running and self.restore:
                self.waiting = until_idle and self.called
                if not self.waiting:
                    gc.enable()

    def idle(self) -> None:
        with self.lock:
            if self.waiting and not self.running:
                self.waiting = False
                gc.enable()

    def forget(self) -> None:
        """In the child of a fork, which lacks the threads that compile."""
        if self.running and self.restore:
            gc.enable()
        self.__init__()  # type: ignore[misc]  # a thread of the parent may have locked the lock


_now = _Compilations()


@contextmanager
def without_collection(until_idle: bool = False) -> Iterator[None]:
    """Stop the collector of the whole process until the last such block or function ends. until_idle: or until the host
    calls `collect`, if it does"""
    _now.enter()
    try:
        yield
    finally:
        _now.leave(until_idle)


def collect_when_idle() -> None:
    """From now on the host calls `collect` some time after it has opened a model."""
    _Compilations.called = True


def collect() -> None:
    """Let the collector run again: its first round takes a quarter of the time of compiling."""
    _now.idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_now.forget)
