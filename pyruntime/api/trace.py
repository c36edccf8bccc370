"""Writes the trace of `SessionOptions.enable_profiling` (pyruntime/runtime/trace.py) into a file."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from pyruntime.native.execution.timing import Timed, timings
from pyruntime.onnx.graph import operator_of
from pyruntime.runtime.trace import Trace, TracedCall


class TraceFile:
    """Of one session, from its creation on."""

    def __init__(self, prefix: str) -> None:
        now = datetime.now()
        self.path = f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        self.start_ns = time.monotonic_ns()
        self._trace = Trace(self.start_ns / 1e6, os.getpid(), threading.get_native_id())

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Records the time that the block takes."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._trace.session(name, 1e3 * start, 1e3 * time.monotonic(), {})

    def kernels(self, found: Sequence[Timed], start: float) -> None:
        """Add the kernels of a run that just ended. start: of the run, by `time.monotonic`"""
        calls = [
            TracedCall(call.node, operator_of(call.node), call.kernel, place, 1e3 * call.seconds)
            for call, (_, _, place) in zip(timings(found), found, strict=True)
        ]
        self._trace.kernels(calls, 1e3 * start, 1e3 * time.monotonic())

    def write(self) -> str:
        """Writes the file and returns its path."""
        with open(self.path, "w") as file:
            json.dump(self._trace.events, file)
        return self.path
