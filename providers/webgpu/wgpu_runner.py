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
from pyruntime.runtime.portions import next_portion

from .adapter import fold_groups
from .printer.loops import Shader
from .wgpu_bindings import LayoutBindings
from .wgpu_device import Place, Ranges, TensorMemory, narrow, stored, widen
from .wgpu_host import Dispatch, GpuHost

SHORT = 0.02  # seconds: shorter steps are submitted whole, without a wait


class Prepared:
    """A step with bound shapes. words: its argument blocks, as int32; counts: workgroups of each call along x and y,
    None for calls without work; ranges: by number of a call that has a dispatch for each range of steps, the number of
    the parameter for the range, and the number of ranges; places: the call of each dispatch, and the offset of its
    parameter block in a region; size: bytes of a region; dispatches: for the bind groups and the region that
    `made_for` names."""

    def __init__(
        self, bindings: LayoutBindings, words: bytes, counts: list[tuple[int, int] | None],
        ranges: dict[int, tuple[int, int]],
    ) -> None:  # fmt: skip
        self.bindings = bindings
        self.words = words
        self.counts = counts
        self.ranges = ranges
        self.places: list[tuple[int, int]] = []
        self.size = bindings.size
        for n, call in enumerate(bindings.calls):
            for number in range(ranges[n][1] if n in ranges else 1) if counts[n] is not None else ():
                self.places.append((n, self.size if number else bindings.starts[n]))
                self.size += bindings.block(call) if number else 0
        self.dispatches: list[Dispatch] = []
        self.made_for: Any = None
        self.seconds = math.inf  # time of the last run
        self.portion = 1  # dispatches per submission

    def blocks(self) -> bytearray:
        """The parameter blocks, as they lie in a region."""
        found, at = bytearray(self.size), 0
        for call, start in zip(self.bindings.calls, self.bindings.starts, strict=True):
            first = at + 4 * len(call["buffers"])
            at = first + 4 * (len(call["params"]) + 1)
            found[start : start + at - first] = self.words[first:at]
        numbers = dict.fromkeys(self.ranges, 0)
        for n, start in self.places if self.ranges else ():
            if n in self.ranges:
                block, of_call = self.bindings.block(self.bindings.calls[n]), self.bindings.starts[n]
                found[start : start + block] = found[of_call : of_call + block]
                struct.pack_into("<i", found, start + 4 * self.ranges[n][0], numbers[n])
                numbers[n] += 1
        return found


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
        self._pipelines: dict[int, Any] = {}  # by number of a shader
        self._borrowed: list[Prepared] = []  # steps of this run whose dispatches bind memory of tensors
        self.labels: dict[int, dict[str, str]] = {}  # by number of a shader: nodes that use it, with labels
        self.timings: list[tuple[str, float, str]] | None = None
        self.repeat = 1  # how often a timed kernel runs

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

    def prepare(self, calls: Sequence[dict[str, Any]], layout: Any, words: Any) -> Prepared:
        """Prepare a step. layout: with the bytes of each call's buffers, with spare capacity; words: argument
        blocks."""
        numbers = words.tolist()
        if layout.bindings is None:
            layout.bindings = LayoutBindings(calls, layout.sizes or [], numbers)
        counts, ranges, at = [], {}, -1
        for n, call in enumerate(calls):
            params = len(call["params"])
            at += len(call["buffers"]) + params + 1
            work, shader = numbers[at], self.shaders[int(call["kernel"])]
            counts.append(fold_groups(-(-work // shader.span), self.host.adapter.workgroups) if work > 0 else None)
            if shader.ranges >= 0:
                ranges[n] = shader.ranges, numbers[at - params + shader.ranges]
        return Prepared(layout.bindings, np.asarray(words, np.int32).tobytes(), counts, ranges)

    def run(self, step: Prepared, check: Callable[[], None]) -> None:
        """Run a prepared step. check: called between the submissions of a long step; raises an error to end the run."""
        self._bind(step)
        if not step.dispatches:
            return
        if self.timings is not None:
            self.timings += [(*found, "webgpu") for found in self._timed(step.dispatches)]
        elif step.seconds < SHORT:
            self.host.encode(step.dispatches)
        else:
            self._submit_in_parts(step, check)

    def _timed(self, dispatches: Sequence[Dispatch]) -> list[tuple[str, float]]:
        """Run each dispatch alone. Returns labels and mean seconds: by the adapter's clock, or else by ours, from
        submission until the queue is empty."""
        if self.host.adapter.timestamps:
            times = [t / 1e9 for t in self.host.timed(dispatches, self.repeat)]
            return [(d.label, t / self.repeat) for d, t in zip(dispatches, times, strict=True)]
        found = []
        self.host.finish()
        for d in dispatches:
            start = time.perf_counter()
            self.host.encode([d] * self.repeat)
            self.host.finish()
            found.append((d.label, (time.perf_counter() - start) / self.repeat))
        return found

    def _submit_in_parts(self, step: Prepared, check: Callable[[], None]) -> None:
        """Submit the step in portions."""
        start = last = time.perf_counter()
        at = 0
        while at < len(step.dispatches):
            check()
            part = step.dispatches[at : at + step.portion]
            self.host.encode(part)
            self._finish(part)
            now = time.perf_counter()
            step.portion = next_portion(len(part), 1e3 * (now - last))
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
        """Make the dispatches of a step for the current buffers, and write its parameter blocks."""
        bindings, host = step.bindings, self.host
        region = bindings.region(step, host.parameters, host.submission)
        self._regroup(step)
        if bindings.has_own:
            self._borrowed.append(step)
        if step.made_for == (bindings.generation, region, bindings.changes):
            return
        step.dispatches = [
            Dispatch(self._pipelines[int(call["kernel"])], group, region.offset + start, *count, _label(call))
            for n, start in step.places
            for call, group, count in [(bindings.calls[n], bindings.groups[n], step.counts[n])]
            if count is not None
        ]
        step.made_for = (bindings.generation, region, bindings.changes)

    def _regroup(self, step: Prepared) -> None:
        """Make the bind groups of a step's layout that are missing, or that bind other memory than now."""
        bindings, host = step.bindings, self.host
        if bindings.generation != host.generation:
            bindings.generation, bindings.groups = host.generation, [None] * len(bindings.calls)
        for n, count in enumerate(step.counts):
            if count is None:
                continue
            own = (
                [host.borrowed.get(b) for b in bindings.calls[n]["buffers"]]
                if host.borrowed or bindings.has_own
                else ()
            )
            if bindings.groups[n] is None or bindings.differs(n, own):
                bindings.bind(n, own, self._group(bindings, n, own))

    def _group(self, bindings: LayoutBindings, n: int, own: Sequence[TensorMemory | None]) -> Any:
        call = bindings.calls[n]
        number, label = int(call["kernel"]), _label(call)
        try:
            if number not in self._pipelines:
                self._pipelines[number] = self.host.pipeline(self.shaders[number], label)
            places = [(a - self.base, s) for a, s in zip(bindings.addresses[n], bindings.sizes[n], strict=True)]
            return self.host.group(self.shaders[number], places, own or [None] * len(places), label)
        except ExecutionError as e:
            if e.at_fault:
                e.at_fault = {**e.at_fault, **self._refused()}
            raise

    def release_borrowed(self) -> None:
        """After a run: drop references to the memory of tensors, because plans outlive the run."""
        self.host.borrowed = {}
        for step in self._borrowed:
            step.dispatches, step.made_for = [], None
            step.bindings.release()
        self._borrowed = []

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

    def take_fault(self) -> tuple[int, int, int] | None:
        """The fault record that the last read found: number of a node, extent, index. None without a fault."""
        node, extent, index, _ = struct.unpack("<4i", self.host.take_fault())
        return (node, extent, index) if node else None

    def tensor_memory(self, dtype: np.dtype[Any], count: int) -> TensorMemory:
        """Memory for a GPU tensor."""
        return TensorMemory(self.host.own, count * stored(dtype).itemsize)

    def copy_from_tensors(self, tensors: Sequence[tuple[int, TensorMemory, Ranges]]) -> None:
        """Copy tensors, which are these ranges of their memories, to addresses."""
        for at, t, ranges in tensors:
            if ranges.count == 1:
                length = -(-ranges.length // 4) * 4
                self.host.copy([((t.buffer, 0), self._place(at), length)] if length else [])
            elif ranges.length % 4 or ranges.stride % 4:  # copies are of words
                self.host.flush()
                data = t.read(np.dtype(np.uint8), ranges)
                self.host.write(at - self.base, narrow(data))
            else:
                lines = [n for n in range(ranges.count) if ranges.length]
                length = ranges.length
                self.host.copy([((t.buffer, n * ranges.stride), self._place(at + n * length), length) for n in lines])

    def copy_to_tensors(self, tensors: Sequence[tuple[int, TensorMemory]]) -> None:
        """Copy from addresses to tensors."""
        self.host.copy([(self._place(at), (t.buffer, 0), t.bytes) for at, t in tensors if t.size])

    def copy_rows(self, old: TensorMemory, source: Ranges, new: TensorMemory, target: Ranges) -> bool:
        """Copy the elements of one tensor's ranges to another's. Returns False if that takes no copies of words."""
        if source.count == target.count:
            stride = source.stride
        elif source.count == 1 and target.count:
            stride = target.length
        else:
            return False
        if target.length % 4 or target.stride % 4 or stride % 4:
            return False
        if target.length:
            places = [((old.buffer, n * stride), (new.buffer, n * target.stride)) for n in range(target.count)]
            self.host.copy([(at, to, target.length) for at, to in places])
        return True

    def _place(self, address: int) -> Place:
        return self.host.place(address - self.base)


def _label(call: Mapping[str, Any]) -> str:
    """A call in errors: node and kernel."""
    return f"{call['node']} {call['kernel']}".strip()
