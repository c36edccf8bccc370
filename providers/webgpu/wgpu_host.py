"""The memory of a session on the native WebGPU device, its pipelines and its submissions."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import wgpu
from wgpu.backends.wgpu_native import lib

from pyruntime.errors import ExecutionError

from .adapter import ALIGN, AdapterChoice
from .printer.loops import SUBGROUPS, Shader
from .wgpu_bindings import BindGroups, Parameters
from .wgpu_device import Place, TensorMemory, in_time, shared_device, tensor_bytes

# The most pipelines cached for later sessions; a session references those that it runs. llvmpipe keeps up to 1 MB for
# each: 4,096 took 3.6 GB of a process that ran tests.
PIPELINES = 1024
QUERIES = 4096  # the largest query set: https://www.w3.org/TR/webgpu/#dom-gpudevice-createqueryset
EMPTY = 16  # bytes bound for a tensor without elements: a shader may read it as vec4
FAULT_BYTES = 16  # number of a node, extent, index (int32), and an unused word
STEP = 256 << 20  # most bytes by which a buffer grows beyond the need


@dataclass(slots=True)
class Dispatch:
    """One kernel call. group: bind group; params: offset of its parameter block; x, y: workgroups; label: node and
    kernel."""

    pipeline: Any
    group: Any
    params: int
    x: int
    y: int
    label: str


_numbers = count(1)
_hosts: weakref.WeakValueDictionary[int, GpuHost] = weakref.WeakValueDictionary()  # by id


def held_bytes() -> int:
    """Bytes of the memories of all hosts, and of all tensors."""
    hosts = [ref() for ref in _hosts.valuerefs()]  # at once: other threads open hosts
    return sum(buffer.size for host in hosts if host is not None for buffer in host.buffers) + tensor_bytes()


class GpuHost:
    """The memory is one range of bytes over buffers of `chunk` bytes, the largest size that can be bound. They grow by
    copying. `generation` changes when one is replaced."""

    def __init__(self, choice: AdapterChoice | None = None, timeout: float = math.inf) -> None:
        self.number = next(_numbers)  # of this host in the process
        self.own = shared_device(choice, timeout)
        self.timeout = timeout  # seconds to wait for the device
        self.adapter = self.own.adapter
        self.device = self.own.wgpu
        self._layouts = self.own.layouts
        self._pipelines = self.own.pipelines
        self._checked = self.own.checked
        self.chunk = min(self.adapter.buffer_bytes, self.adapter.binding_bytes, 1 << 31) // ALIGN * ALIGN
        self.buffers: list[Any] = []
        self.generation = 0
        self.parameters = Parameters(self)
        self._groups = BindGroups()
        self.borrowed: dict[int, TensorMemory] = {}  # of this run: tensors with memory of their own, by buffer
        self.submission = 0  # number of the next submission
        self.checks = False  # whether kernels check indices
        self._faults: Any = None
        self._fault = bytes(FAULT_BYTES)  # the record that the last read found
        self._encoder: Any = None  # contains the commands that are not submitted yet
        self._encoded: list[Dispatch] = []  # the dispatches in the encoder
        _hosts[id(self)] = self

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────

    def grow(self, size: int) -> None:
        """Grow to at least `size` bytes, and keep the contents."""
        for n in range(-(-size // self.chunk)):
            needed = min(self.chunk, size - n * self.chunk)
            old = self.buffers[n].size if n < len(self.buffers) else 0
            if needed > old:
                self._grow_buffer(n, old, self._larger(old, needed))

    def _larger(self, old: int, needed: int) -> int:
        """The size of a new buffer, at most twice as large as the old one and STEP larger than needed."""
        size = min(max(needed, min(2 * old, needed + STEP)), self.chunk)
        return -(-size // ALIGN) * ALIGN

    def _grow_buffer(self, n: int, old: int, size: int) -> None:
        self.generation += 1
        with self.own.growth(size - old):
            new = self.own.buffer(size, "arena")
            if old:
                self._replace(n, new)
            else:
                self.buffers.append(new)

    def _replace(self, n: int, new: Any) -> None:
        old = self.buffers[n]
        self.copy([((old, 0), (new, 0), old.size)])
        self.flush()
        old.destroy()
        self.buffers[n] = new

    def place(self, offset: int) -> Place:
        """The buffer at this offset of the arena, and the offset in the buffer."""
        n, at = divmod(offset, self.chunk)
        return self.buffers[n], at

    def write(self, offset: int, data: Any) -> None:
        """Write bytes (a multiple of 4) to an offset of the arena."""
        self.flush()
        self.own.write(self.place(offset), data)

    def read(self, offset: int, size: int) -> memoryview:
        """Wait for all work and read bytes of the arena."""
        return self.read_all([(offset, size)])[0]

    def read_all(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Bytes at several offsets, in one transfer."""
        self.flush()
        places = [(self.place(offset), size) for offset, size in spans]
        if not self.checks:
            return self.own.read(places, self.timeout)
        *found, fault = self.own.read([*places, ((self.faults, 0), FAULT_BYTES)], self.timeout)
        self._fault = bytes(fault)
        return found

    @property
    def faults(self) -> Any:
        """The buffer of the fault record."""
        if self._faults is None:
            self._faults = self.own.buffer(FAULT_BYTES, "faults")
        return self._faults

    def take_fault(self) -> bytes:
        """The fault record that the last read found. Resets it."""
        fault, self._fault = self._fault, bytes(FAULT_BYTES)
        if any(fault):
            self.own.write((self.faults, 0), bytes(FAULT_BYTES))
        return fault

    def copy(self, moves: Sequence[tuple[Place, Place, int]]) -> None:
        """Copy bytes between places. moves: source, target and bytes (a multiple of 4) of each copy."""

        def encode() -> None:
            for (source, at), (target, to), size in moves:
                self.commands().copy_buffer_to_buffer(source, at, target, to, size)

        self._checked("copy", encode)

    # ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────────

    def pipeline(self, shader: Shader, label: str = "") -> Any:
        """The compute pipeline of a shader, from a cache of PIPELINES by source."""
        key = hashlib.sha256(shader.source.encode()).digest()
        found = self._pipelines.get(key)
        if found is None:
            found = self._pipelines[key] = self._in_time(shader, label)
            for oldest in list(self._pipelines)[:-PIPELINES]:
                self._pipelines.pop(oldest, None)
        return found

    def _in_time(self, shader: Shader, label: str) -> Any:
        """A new pipeline. Errors: ExecutionError if the driver refuses the shader, or does not compile it in time."""
        try:
            return self._checked(label, lambda: in_time(lambda: self._compile(shader, label), self.timeout))
        except ExecutionError as e:
            e.at_fault = {e.node: " ".join(e.message.split())}
            raise

    def _compile(self, shader: Shader, label: str) -> Any:
        source = shader.source.replace(SUBGROUPS, "")  # wgpu has subgroups without this line, and rejects it
        module = self.device.create_shader_module(code=source, label=label)
        _, layout = self._layout(shader.buffers)
        return self.device.create_compute_pipeline(
            layout=layout, compute={"module": module, "entry_point": "main"}, label=label
        )

    def _layout(self, buffers: int) -> tuple[Any, Any]:
        if buffers not in self._layouts:
            kinds = ["storage"] * buffers + ["uniform"]
            entries = [
                {
                    "binding": n,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": kind, "has_dynamic_offset": kind == "uniform"},
                }
                for n, kind in enumerate(kinds)
            ]
            group = self.device.create_bind_group_layout(entries=entries)
            self._layouts[buffers] = group, self.device.create_pipeline_layout(bind_group_layouts=[group])
        return self._layouts[buffers]

    def group(
        self, shader: Shader, places: Sequence[tuple[int, int]], own: Sequence[TensorMemory | None], label: str
    ) -> Any:
        """The bind group of a dispatch. places: (offset, bytes) of its buffers; own: their memory, if that is not the
        arena's. Memory of a tensor keeps its bind groups itself, so that they do not outlive it."""
        key = (shader.buffers, shader.faults, shader.params // 4, *places)
        owner = next((memory for memory in own if memory is not None), None)
        if owner is None:
            return self._groups.get(self.generation, key, lambda: self._group(shader, places, own, label))
        key = (self.number, self.generation, *key, *[memory and memory.number for memory in own])
        found = owner.groups.get(key)
        if found is None:
            found = owner.groups[key] = self._group(shader, places, own, label)
        return found

    def _group(
        self, shader: Shader, places: Sequence[tuple[int, int]], own: Sequence[TensorMemory | None], label: str
    ) -> Any:
        bound = [
            (*self.place(at), -(-size // 4) * 4 or EMPTY) if memory is None else (memory.buffer, 0, memory.bytes)
            for (at, size), memory in zip(places, own, strict=True)
        ]
        if shader.faults:
            bound.append((self.faults, 0, FAULT_BYTES))
        bound.append((self.parameters.buffer, 0, (shader.params // 4 + 1) * 16))
        entries = [
            {"binding": n, "resource": {"buffer": buffer, "offset": at, "size": size}}
            for n, (buffer, at, size) in enumerate(bound)
        ]
        layout, _ = self._layout(shader.buffers)
        return self._checked(label, lambda: self.device.create_bind_group(layout=layout, entries=entries))

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def commands(self) -> Any:
        """The encoder of the next submission. There are few submissions, because each costs milliseconds while work is
        under way."""
        if self._encoder is None:
            self._encoder = self._checked("commands", self.device.create_command_encoder)
        return self._encoder

    def encode(self, dispatches: Sequence[Dispatch]) -> None:
        """Encode dispatches, to run in order."""
        self._encoded += dispatches
        self._checked("commands", lambda: _one_pass(self.commands(), dispatches))

    def flush(self) -> None:
        """Submit all encoded commands."""
        encoder, encoded = self._encoder, self._encoded
        self._encoder, self._encoded = None, []
        if encoder is not None:
            self._submit(encoder, encoded)

    def finish(self) -> None:
        """Submit all encoded commands and wait for their end."""
        self.flush()
        self.own.wait((self.faults, 0), self.timeout)

    def _submit(self, encoder: Any, dispatches: Sequence[Dispatch]) -> None:
        self.parameters.upload()
        self.submission += 1
        try:
            self._checked("commands", lambda: self.own.submit(encoder))
        except ExecutionError:  # the error names no pass: encode each dispatch alone to find the first that fails
            self._find_fault(dispatches)
            raise

    def _find_fault(self, dispatches: Sequence[Dispatch]) -> None:
        """Encode each dispatch alone. An error names the dispatch that fails."""
        for d in dispatches:
            self._checked(d.label, partial(self._encode_alone, d))

    def _encode_alone(self, dispatch: Dispatch) -> None:
        _one_pass(self.device.create_command_encoder(), [dispatch]).finish()

    def abandon(self) -> None:
        """Forget all encoded commands after a run that failed."""
        self._encoder, self._encoded = None, []
        self.submission += 1

    def timed(self, dispatches: Sequence[Dispatch], repeat: int = 1) -> list[int]:
        """Run each dispatch `repeat` times. Returns the nanoseconds of each. The adapter must have timestamp-query."""
        self.flush()
        parts = [dispatches[n : n + QUERIES // 2] for n in range(0, len(dispatches), QUERIES // 2)]
        return [t for part in parts for t in self._timed(part, repeat)]

    def _timed(self, dispatches: Sequence[Dispatch], repeat: int) -> list[int]:
        # before timing: wgpu-hal 29 ends a later pass with the query of a pass that failed
        self._find_fault(dispatches)
        count = 2 * len(dispatches)
        queries = self._checked("queries", lambda: self.device.create_query_set(type="timestamp", count=count))
        encoder = self._checked("commands", self.device.create_command_encoder)
        for n, d in enumerate(dispatches):
            stamps = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * n,
                "end_of_pass_write_index": 2 * n + 1,
            }
            self._checked(d.label, partial(_one_pass, encoder, [d] * repeat, timestamp_writes=stamps))
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        out = self._checked("timestamps", lambda: self.device.create_buffer(size=8 * count, usage=usage))
        self._checked("timestamps", lambda: encoder.resolve_query_set(queries, 0, count, out, 0))
        self._submit(encoder, dispatches)
        ticks = self.own.read([((out, 0), 8 * count)], self.timeout)[0].cast("Q")
        period = lib.wgpuQueueGetTimestampPeriod(self.device.queue._internal)  # nanoseconds of a tick
        return [round(period * (ticks[2 * n + 1] - ticks[2 * n])) for n in range(len(dispatches))]

    def close(self) -> None:
        """Free the memory."""
        self.abandon()
        self.borrowed = {}
        self.parameters.close()
        self._groups = BindGroups()
        for buffer in () if self.own.is_of_parent else self.buffers:
            buffer.destroy()
        self.buffers = []
        self._faults = None


def _one_pass(encoder: Any, dispatches: Sequence[Dispatch], **options: Any) -> Any:
    """Encode dispatches in one pass. Returns the encoder."""
    run = encoder.begin_compute_pass(**options)
    for d in dispatches:
        run.set_pipeline(d.pipeline)
        run.set_bind_group(0, d.group, [d.params])
        run.dispatch_workgroups(d.x, d.y)
    run.end()
    return encoder
