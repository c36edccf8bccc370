"""Writes the trace of `SessionOptions.enable_profiling`: Chrome's trace events, which Chrome and Perfetto open.
Twin of web/page/sessions/trace.js.

Events have onnxruntime's fields and names: the category is "Session" or, for kernels, "Node"; times are in
microseconds.

Spec: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pyruntime.api.providers import their_names
from pyruntime.native.execution.timing import Timing
from pyruntime.onnx.graph import operator_of


class Trace:
    """Events of one session, from its creation on."""

    def __init__(self, prefix: str) -> None:
        now = datetime.now()
        self.path = f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        self.start_ns = time.monotonic_ns()
        self._events: list[dict[str, Any]] = []

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Records the time that the block takes."""
        start = self._now()
        try:
            yield
        finally:
            self._add("Session", name, start, self._now() - start, {})

    def kernels(self, calls: Sequence[Timing], providers: Sequence[str]) -> None:
        """Add the kernels of a run that just ended, each with its own time, one after the other."""
        provider = their_names(providers)[0]
        start = self._now() - 1e6 * sum(call.seconds for call in calls)
        for number, call in enumerate(calls):
            args = {"op_name": operator_of(call.node), "provider": provider, "node_index": str(number)}
            args |= {"kernel": call.kernel, "node": call.node}
            self._add("Node", f"{call.node}_kernel_time", start, 1e6 * call.seconds, args)
            start += 1e6 * call.seconds

    def write(self) -> str:
        """Writes the file and returns its path."""
        with open(self.path, "w") as file:
            json.dump(self._events, file)
        return self.path

    def _now(self) -> float:
        return (time.monotonic_ns() - self.start_ns) / 1000

    def _add(self, category: str, name: str, start: float, duration: float, args: dict[str, Any]) -> None:
        place = {"pid": os.getpid(), "tid": threading.get_native_id()}
        times = {"ts": round(max(start, 0.0), 3), "dur": round(duration, 3)}
        self._events.append({"cat": category, **place, **times, "ph": "X", "name": name, "args": args})
