"""Traces of `enable_profiling`: Chrome's trace events, which Chrome's viewer and Perfetto open, with the names and
fields of onnxruntime's.

Spec: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

GPU = 2  # row of its kernels
PROVIDERS: Mapping[str, str] = {"wasm": "CPUExecutionProvider", "webgpu": "WebGpuExecutionProvider"}


@dataclass(eq=False, slots=True)
class TracedCall:
    """A kernel's call in a run. node, operator: label of its node, and the operator in it; place: "wasm" or "webgpu";
    start: by the GPU's clock, since the run began, None if unknown; bytes: that it reads and writes, 0 if unknown"""

    node: str
    operator: str
    kernel: str
    place: str
    milliseconds: float
    start: float | None = None
    bytes: int = 0


class Trace:
    """Events of one session, from its creation on. Times are in milliseconds of the host's clock. start: of the trace;
    process, row: numbers of the process, and of the session's row"""

    def __init__(self, start: float, process: int, row: int) -> None:
        self.start = start
        self.process = process
        self.row = row
        self.events: list[Mapping[str, Any]] = []
        self._has_rows = False

    def session(self, name: str, start: float, end: float, args: Mapping[str, Any]) -> None:
        self._add("Session", name, start, end - start, self.row, args)

    def kernels(self, calls: Sequence[TracedCall], start: float, end: float) -> None:
        """Those of a run: on the CPU one after the other, up to its end; on the GPU in a row of their own, at the times
        of the GPU's clock."""
        on_gpu = start
        on_cpu = end
        for call in calls:
            on_cpu -= 0.0 if call.place == "webgpu" else call.milliseconds
        for n, call in enumerate(calls):
            is_on_gpu = call.place == "webgpu"
            begin = on_cpu if not is_on_gpu else on_gpu if call.start is None else start + call.start
            if is_on_gpu:
                self._name_rows()
                on_gpu = begin + call.milliseconds
            else:
                on_cpu += call.milliseconds
            args: Mapping[str, Any] = {
                "op_name": call.operator, "node_index": str(n), "node": call.node, "kernel": call.kernel,
                "bytes": call.bytes, "provider": PROVIDERS[call.place],
            }  # fmt: skip
            row = GPU if is_on_gpu else self.row
            self._add("Node", f"{call.node}_kernel_time", begin, call.milliseconds, row, args)

    def _add(self, category: str, name: str, start: float, took: float, row: int, args: Mapping[str, Any]) -> None:
        ts = _microseconds(max(0.0, start - self.start))
        event: Mapping[str, Any] = {
            "cat": category, "pid": self.process, "tid": row, "ts": ts, "dur": _microseconds(took), "ph": "X",
            "name": name, "args": args,
        }  # fmt: skip
        self.events.append(event)

    def _name_rows(self) -> None:
        if not self._has_rows:
            self._name_row(self.row, "session")
            self._name_row(GPU, "GPU")
        self._has_rows = True

    def _name_row(self, row: int, name: str) -> None:
        args: Mapping[str, str] = {"name": name}
        event: Mapping[str, Any] = {
            "cat": "__metadata", "pid": self.process, "tid": row, "ts": 0, "ph": "M", "name": "thread_name",
            "args": args,
        }  # fmt: skip
        self.events.append(event)


def _microseconds(milliseconds: float) -> float:
    """With three decimals."""
    return floor(1000000.0 * milliseconds + 0.5) / 1000.0
