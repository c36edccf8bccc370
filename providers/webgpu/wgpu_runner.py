"""Runs the GPU steps of a Program natively, and copies between linear memory and the GPU."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import DeviceLost, ExecutionError

from .printer.loops import Shader
from .wgpu_device import Place, TensorMemory, narrow, stored, widen
from .wgpu_host import Dispatch, GpuHost

SHORT = 0.02  # seconds: shorter steps are submitted whole, without a wait
# for longer steps: seconds of a submission, and the largest ratio of a submission to the one before
PORTION, GROWTH = 0.01, 4


class Prepared:
    """A step with bound shapes, and its dispatches for one generation of the arena."""

    def __init__(self, calls: Sequence[dict[str, Any]], sizes: list[list[int]], words: Sequence[int]) -> None:
        self.calls = calls
        self.words = words
        self.sizes = sizes
        self.generation = -1
        self.offsets: list[int] = []  # of the parameter blocks
        self.epoch = -1  # of these
        self.dispatches: list[Dispatch] = []
        self.seconds = math.inf  # time of the last run
        self.portion = 1  # dispatches per submission


class GpuMemory:
    """Memory as planners see it. chunk: bytes of a buffer, which no tensor exceeds."""

    def __init__(self, host: GpuHost, base: int) -> None:
        self.host = host
        self.base = base
        self.chunk = host.chunk

    def ensure(self, end: int) -> None:
        """Allocate memory up to this address."""
        self.host.grow(end - self.base)


class GpuRunner:
    """host: memory on the device; base: address where GPU memory begins."""

    def __init__(self, host: GpuHost, base: int) -> None:
        self.host = host
        self.base = base
        self.memory = GpuMemory(host, base)
        self.shaders: list[Shader] = []
        self.labels: dict[int, dict[str, str]] = {}  # by number of a shader: nodes that use it, with labels
        self.timings: list[tuple[str, float]] | None = None

    def load(self, data: bytes, calls: Sequence[Mapping[str, Any]] = ()) -> None:
        """Load a Program's shaders. data: the output of its code writer; calls: all calls of the Program"""
        self.shaders = [Shader(**s) for s in json.loads(data)]
        for call in calls:
            self.labels.setdefault(int(call["kernel"]), {})[call["node"]] = _label(call)
        self.host.checks = any(s.faults for s in self.shaders)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of parameter blocks written since the planner last dropped its plans."""
        return self.host.parameters.top

    def forget(self) -> None:
        self.host.flush()
        self.host.parameters.forget()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self, calls: Sequence[dict[str, Any]], sizes: list[list[int]], words: Any) -> Prepared:
        """Prepare a step. sizes: bytes of each call's buffers, with spare capacity; words: its argument blocks."""
        return Prepared(calls, sizes, words.tolist())

    def run(self, step: Prepared, check: Callable[[], None]) -> None:
        """Run a prepared step. check: called between the submissions of a long step; raises an error to end the run."""
        if (step.generation, step.epoch) != (self.host.generation, self.host.parameters.epoch):
            self._bind(step)
        if not step.dispatches:
            return
        if self.timings is not None and self.host.adapter.timestamps:
            times = self.host.timed(step.dispatches)
            self.timings += [(d.label, t / 1e9) for d, t in zip(step.dispatches, times, strict=True)]
        elif step.seconds < SHORT:
            self.host.encode(step.dispatches)
        else:
            self._submit_in_parts(step, check)

    def _submit_in_parts(self, step: Prepared, check: Callable[[], None]) -> None:
        """Submit the step in portions. web/run/portions.js is its twin."""
        start = last = time.perf_counter()
        at = 0
        while at < len(step.dispatches):
            check()
            part = step.dispatches[at : at + step.portion]
            self.host.encode(part)
            self._finish(part)
            now = time.perf_counter()
            step.portion = max(1, int(len(part) * min(GROWTH, PORTION / max(now - last, 1e-6))))
            at, last = at + len(part), now
        step.seconds = last - start

    def _finish(self, part: Sequence[Dispatch]) -> None:
        try:
            self.host.finish()
        except DeviceLost as e:
            nodes = {d.label.rpartition(" ")[0] for d in part}
            if e.is_late and len(nodes) == 1:
                e.at_fault = dict.fromkeys(nodes, e.message)
            raise

    def _bind(self, step: Prepared) -> None:
        """Make parameter blocks and bind groups for the current buffers of the arena."""
        blocks, plans, at = [], [], 0
        for call, sizes in zip(step.calls, step.sizes, strict=True):
            count, params = len(call["buffers"]), len(call["params"]) + 1
            addresses = step.words[at : at + count]
            words = step.words[at + count : at + count + params]
            at += count + params
            if words[-1] > 0:
                plans.append((call, addresses, sizes, words[-1]))
                blocks.append(struct.pack(f"<{params}i", *words))
        step.dispatches = []
        if step.epoch != self.host.parameters.epoch:
            step.offsets = self.host.parameters.put(blocks)
            step.epoch = self.host.parameters.epoch
        for (call, addresses, sizes, work), offset in zip(plans, step.offsets, strict=True):
            places = [(a - self.base, s) for a, s in zip(addresses, sizes, strict=True)]
            shader = self.shaders[int(call["kernel"])]
            try:
                step.dispatches.append(self.host.dispatch(shader, places, offset, work, _label(call)))
            except ExecutionError as e:
                if e.at_fault:
                    e.at_fault = {**e.at_fault, **self._refused()}
                raise
        step.generation = self.host.generation

    def _refused(self) -> dict[str, str]:
        """The nodes whose shaders the driver does not compile, with reasons: a session moves all of them at once."""
        found: dict[str, str] = {}
        for number, labels in self.labels.items():
            try:
                self.host.pipeline(self.shaders[number], next(iter(labels.values())))
            except ExecutionError as e:
                found |= dict.fromkeys(labels, " ".join(e.message.split()))
        return found

    # ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, address: int, x: np.ndarray[Any, Any]) -> None:
        """Write elements in the layout of linear memory. 64-bit integers become 32-bit ones."""
        if x.size:
            self.host.write(address - self.base, narrow(x))

    def read(self, those: Sequence[tuple[int, np.dtype[Any], int]]) -> list[np.ndarray[Any, Any]]:
        """Wait for elements (address, type, count), and read them in the layout of linear memory."""
        found = self.host.read_all([(at - self.base, count * stored(dtype).itemsize) for at, dtype, count in those])
        return [widen(data, dtype, count) for data, (_, dtype, count) in zip(found, those, strict=True)]

    def take_fault(self) -> bytes:
        """The fault record that the last read found, in the layout of linear memory. Empty without a fault."""
        node, extent, index, _ = struct.unpack("<4i", self.host.take_fault())
        return struct.pack("<iiq", node, extent, index) if node else b""

    def tensor_memory(self, dtype: np.dtype[Any], count: int) -> TensorMemory:
        """Memory for a GPU tensor."""
        return TensorMemory(self.host.own, count * stored(dtype).itemsize)

    def copy_from_tensors(self, tensors: Sequence[tuple[int, TensorMemory]]) -> None:
        """Copy tensors to addresses."""
        self.host.copy([((t.buffer, 0), self._place(at), t.bytes) for at, t in tensors if t.size])

    def copy_to_tensors(self, tensors: Sequence[tuple[int, TensorMemory]]) -> None:
        """Copy from addresses to tensors."""
        self.host.copy([(self._place(at), (t.buffer, 0), t.bytes) for at, t in tensors if t.size])

    def _place(self, address: int) -> Place:
        return self.host.place(address - self.base)


def _label(call: Mapping[str, Any]) -> str:
    """A call in errors: node and kernel."""
    return f"{call['node']} {call['kernel']}".strip()
