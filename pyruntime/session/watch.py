"""Counts the runs of a session, and tells the listeners of `pyruntime.on("session", …)` of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyruntime.errors import Terminated
from pyruntime.runtime.metrics import EngineCounts, RunCounts
from pyruntime.session.events import emit, listeners

_numbers = itertools.count(1)


class Watch:
    """Of one session, with a number of its own in this process. name: for people."""

    def __init__(self, name: str) -> None:
        self.id = next(_numbers)
        self.name = name
        self.counts = RunCounts()
        self._lock = threading.Lock()
        self._listeners = listeners("session")
        self._created = time.perf_counter()

    def tell(self, kind: str, **more: Any) -> None:
        if self._listeners:
            emit("session", {"type": kind, "session": self.id, "name": self.name, **more})

    def report(self, engine: EngineCounts) -> Mapping[str, Any]:
        with self._lock:
            return self.counts.report(engine)

    def created(self) -> None:
        """The session accepts runs."""
        self.tell("created", **_times(self._created))

    def succeeded(self, start: float) -> None:
        """A run has given results. start: by `perf_counter`"""
        took = time.perf_counter() - start
        if self.counts.succeed(1000 * took):
            with self._lock:
                self.counts.settle()
        if self._listeners:
            self.tell("run", outcome="succeeded", **_times(start))

    def failed(self, start: float, error: BaseException) -> None:
        """A run has ended with this error."""
        with self._lock:
            outcome = self.counts.fail(isinstance(error, (Terminated, KeyboardInterrupt)))
        self.tell("run", outcome=outcome, error=f"{type(error).__name__}: {error}", **_times(start))


def _times(start: float) -> dict[str, float]:
    """start: by `perf_counter`. In milliseconds; the result's is since 1970."""
    took = time.perf_counter() - start
    return {"start": 1000 * (time.time() - took), "milliseconds": 1000 * took}
