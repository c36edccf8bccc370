"""The native host: a WebGPU device through wgpu-py, its memory, pipelines and submissions.

Spec: https://www.w3.org/TR/webgpu/ and https://wgpu-py.readthedocs.io/
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import wgpu

from pyruntime.errors import DeviceLost, ExecutionError, OutOfMemory, PyRuntimeError

from .adapter import ALIGN, Adapter, NoAdapter, fold_groups
from .printer import Shader

_WANTED = ("shader-f16", "subgroup", "timestamp-query")
_LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage",
           "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup",
           "max-compute-workgroup-size-x", "max-uniform-buffer-binding-size")  # fmt: skip
_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


@dataclass(slots=True)
class Dispatch:
    """One kernel call: pipeline, bind group, workgroups; `label` names kernel and node."""

    pipeline: Any
    group: Any
    x: int
    y: int
    label: str


class _Device:
    """What all sessions of a process share: the device, and pipelines by the hash of their source."""

    def __init__(self, power: str) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # or the Vulkan loader complains on servers
        try:
            adapter = wgpu.gpu.request_adapter_sync(power_preference=power)
            self.adapter = _describe(adapter)
            features = [f for f in _WANTED if f in adapter.features]
            limits = {name: adapter.limits[name] for name in _LIMITS if name in adapter.limits}
            self.device = adapter.request_device_sync(required_features=features, required_limits=limits)
        except RuntimeError as e:
            raise NoAdapter(f"no WebGPU adapter: {e}") from None
        self.lost = False  # once some call has found out
        self.layouts: dict[int, tuple[Any, Any]] = {}
        self.pipelines: dict[bytes, Any] = {}


_devices: dict[str, _Device] = {}  # by power preference


def _device(power: str) -> _Device:
    """The process's device; a lost one is replaced."""
    if power not in _devices or _devices[power].lost:
        _devices.pop(power, None)
        _devices[power] = _Device(power)
    return _devices[power]


class GpuHost:
    """Memory on a device: one arena of bytes, grown by copying; `generation` changes when its buffer is replaced."""

    def __init__(self, power: str = "high-performance", shared: bool = True) -> None:
        own = _device(power) if shared else _Device(power)
        self._own = own
        self.adapter = own.adapter
        self.device = own.device
        self._layouts = own.layouts
        self._pipelines = own.pipelines
        self.size = 0
        self.generation = 0
        self.arena: Any = None

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────

    def grow(self, size: int) -> None:
        """At least `size` bytes of arena; what was in it stays."""
        if size <= self.size:
            return
        limit = self.adapter.buffer_bytes
        if size > limit:
            raise OutOfMemory(f"the GPU arena needs {size} bytes, the adapter allows buffers of {limit}")
        size = min(max(size, min(2 * self.size, self.size + (256 << 20))), limit)
        size = -(-size // ALIGN) * ALIGN
        self.arena, self.size = self._checked("", lambda: self._grown(size)), size
        self.generation += 1

    def _grown(self, size: int) -> Any:
        new = self.device.create_buffer(size=size, usage=_USAGE, label="arena")
        if self.arena is not None:
            encoder = self.device.create_command_encoder()
            encoder.copy_buffer_to_buffer(self.arena, 0, new, 0, self.size)
            self.device.queue.submit([encoder.finish()])
            self.arena.destroy()
        return new

    def write(self, offset: int, data: Any) -> None:
        """Put bytes (a multiple of 4 of them) at an offset of the arena."""
        self._checked("", lambda: self.device.queue.write_buffer(self.arena, offset, data))

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the arena, after all submitted work; waits."""
        if size == 0:
            return memoryview(b"")
        whole = -(-size // 4) * 4
        return self._checked("", lambda: self.device.queue.read_buffer(self.arena, offset, whole))[:size]

    def parameters(self, data: bytes) -> Any:
        """A buffer of parameter blocks."""
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        return self._checked("", lambda: self.device.create_buffer_with_data(data=data, usage=usage))

    # ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────────

    def pipeline(self, shader: Shader, label: str = "") -> Any:
        """The compute pipeline of a shader; equal sources are compiled once."""
        key = hashlib.sha256(shader.source.encode()).digest()
        if key not in self._pipelines:
            self._pipelines[key] = self._checked(label, lambda: self._compile(shader, label))
        return self._pipelines[key]

    def _compile(self, shader: Shader, label: str) -> Any:
        module = self.device.create_shader_module(code=shader.source, label=label)
        _, layout = self._layout(shader.buffers)
        return self.device.create_compute_pipeline(
            layout=layout, compute={"module": module, "entry_point": "main"}, label=label
        )

    def _layout(self, buffers: int) -> tuple[Any, Any]:
        if buffers not in self._layouts:
            kinds = ["storage"] * buffers + ["uniform"]
            entries = [
                {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for n, kind in enumerate(kinds)
            ]
            group = self.device.create_bind_group_layout(entries=entries)
            self._layouts[buffers] = group, self.device.create_pipeline_layout(bind_group_layouts=[group])
        return self._layouts[buffers]

    def dispatch(
        self, shader: Shader, places: Sequence[tuple[int, int]], params: tuple[Any, int], work: int, label: str = ""
    ) -> Dispatch:
        """A call of a shader: `places` are (offset, bytes) of its buffers, params a (buffer, offset)."""
        entries = [
            {"binding": n, "resource": {"buffer": self.arena, "offset": at, "size": max(4, -(-size // 4) * 4)}}
            for n, (at, size) in enumerate(places)
        ]
        size = (shader.params // 4 + 1) * 16
        resource = {"buffer": params[0], "offset": params[1], "size": size}
        entries.append({"binding": len(places), "resource": resource})
        pipeline = self.pipeline(shader, label)
        layout, _ = self._layout(shader.buffers)
        group = self._checked(label, lambda: self.device.create_bind_group(layout=layout, entries=entries))
        x, y = fold_groups(-(-work // shader.span), self.adapter.workgroups)
        return Dispatch(pipeline, group, x, y, label)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, dispatches: Sequence[Dispatch]) -> None:
        """Queue dispatches in order, as one submission."""

        def go() -> None:
            encoder = self.device.create_command_encoder()
            run = encoder.begin_compute_pass()
            for d in dispatches:
                run.set_pipeline(d.pipeline)
                run.set_bind_group(0, d.group)
                run.dispatch_workgroups(d.x, d.y)
            run.end()
            self.device.queue.submit([encoder.finish()])

        self._checked("", go)

    def timed(self, dispatches: Sequence[Dispatch]) -> list[int]:
        """Nanoseconds of each dispatch; needs the adapter's timestamp-query."""
        count = 2 * len(dispatches)
        queries = self.device.create_query_set(type="timestamp", count=count)
        encoder = self.device.create_command_encoder()
        for n, d in enumerate(dispatches):
            stamps = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * n,
                "end_of_pass_write_index": 2 * n + 1,
            }
            run = encoder.begin_compute_pass(timestamp_writes=stamps)
            run.set_pipeline(d.pipeline)
            run.set_bind_group(0, d.group)
            run.dispatch_workgroups(d.x, d.y)
            run.end()
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        out = self.device.create_buffer(size=8 * count, usage=usage)
        encoder.resolve_query_set(queries, 0, count, out, 0)
        self.device.queue.submit([encoder.finish()])
        ticks = self.device.queue.read_buffer(out).cast("Q")
        return [ticks[2 * n + 1] - ticks[2 * n] for n in range(len(dispatches))]

    def _checked(self, label: str, fn: Any) -> Any:
        """Run, with wgpu's errors as ours."""
        try:
            return fn()
        except (wgpu.GPUError, RuntimeError) as e:
            if re.search(r"device (is )?lost", str(e), re.IGNORECASE):  # told as a validation error
                self._own.lost = True
                raise DeviceLost("the GPU device is lost") from None
            if isinstance(e, wgpu.GPUOutOfMemoryError) or "not enough memory" in str(e).lower():
                hint = 'release sessions, use smaller inputs or the provider "wasm"'
                full = OutOfMemory(f"the GPU has no memory left: {e}", hint=hint)
                full.gpu = True
                raise full from None
            if isinstance(e, wgpu.GPUError):
                raise ExecutionError(f"WebGPU refused this kernel: {e}", node=label) from None
            raise PyRuntimeError(str(e), node=label) from None

    def close(self) -> None:
        if self.arena is not None:
            self.arena.destroy()
            self.arena = None


def _describe(adapter: Any) -> Adapter:
    info, limits, features = adapter.info, adapter.limits, adapter.features
    return Adapter(
        name=f"{info.get('device', '')} {info.get('description', '')}".strip(),
        software=info.get("adapter_type", "") == "CPU",
        f16="shader-f16" in features,
        subgroups="subgroup" in features,
        timestamps="timestamp-query" in features,
        storage_buffers=limits["max-storage-buffers-per-shader-stage"],
        binding_bytes=limits["max-storage-buffer-binding-size"],
        buffer_bytes=limits["max-buffer-size"],
        workgroups=limits["max-compute-workgroups-per-dimension"],
        shared_bytes=limits["max-compute-workgroup-storage-size"],
        iterations=65535 if "llvmpipe" in info.get("device", "") else 0,
    )


__all__ = ["Dispatch", "GpuHost"]
