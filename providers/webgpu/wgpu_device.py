"""Native WebGPU devices, through wgpu-py. The sessions of a process that use an adapter share its device.

Spec: https://www.w3.org/TR/webgpu/ and https://wgpu-py.readthedocs.io/
"""

from __future__ import annotations

import gc
import math
import os
import queue
import re
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
import wgpu
from wgpu.backends.wgpu_native import _helpers

from pyruntime.errors import DeviceLost, ExecutionError, InvalidInput, OutOfMemory, PyRuntimeError

from .adapter import Adapter, AdapterChoice, NoAdapter

_WANTED = ("shader-f16", "subgroup", "timestamp-query")
_LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage",
           "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup",
           "max-compute-workgroup-size-x", "max-uniform-buffer-binding-size")  # fmt: skip
LEAST = 16  # bytes of the memory of a tensor: a shader may read it as vec4
KEPT = 1 << 24  # bytes: larger staging buffers are not kept
_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST

T = TypeVar("T")
Place = tuple[Any, int]  # a buffer, and an offset in it
Ranges = Any  # byte ranges of a tensor in its buffer: `ByteRanges` of pyruntime/runtime/growth.py


class Device:
    """key: what tells its adapter from others; pipelines: the cached pipelines, by the hash of their source;
    bytes_read: bytes read from the device; tensor_bytes: bytes of all GPU tensors."""

    def __init__(self, adapter: Any, key: Hashable) -> None:
        """adapter: of wgpu. Errors: RuntimeError if it has no device"""
        self.key = key
        self.adapter = _describe(adapter)
        features = [f for f in _WANTED if f in adapter.features]
        limits = {name: adapter.limits[name] for name in _LIMITS if name in adapter.limits}
        self.wgpu = adapter.request_device_sync(required_features=features, required_limits=limits)
        self.adapter = replace(self.adapter, dot4=_multiplies_bytes(self.wgpu))
        self.lost = False  # set by the call that finds the loss
        self.is_of_parent = False  # in a forked child
        self._order = threading.Lock()  # held in calls that end the process if the device is lost meanwhile
        self.layouts: dict[int, tuple[Any, Any]] = {}
        self.pipelines: dict[bytes, Any] = {}
        self.bytes_read = 0
        self._readbacks: list[Any] = []  # staging buffers of reads that have ended
        self.growth: Callable[[int], AbstractContextManager[None]] = lambda more: nullcontext()  # limits the memory
        self.tensor_bytes = 0

    def checked(self, label: str, fn: Callable[[], T]) -> T:
        """Call `fn`, with errors of wgpu converted to ours. label: node and kernel, or one word for the action."""
        node, _, what = label.rpartition(" ")
        if self.is_of_parent:
            raise DeviceLost("the GPU device belongs to the process that this one was forked from")
        try:
            return fn()
        except TimeoutError as e:
            if not node:  # no shader that is compiled: the queue hangs
                self.lost = True
                late = DeviceLost(f"the GPU has not answered {e}", hint="gpu_timeout sets the limit")
                late.is_late = True
                raise late from None
            text = f"the driver has not compiled kernel {what} {e}"
            raise ExecutionError(text, node=node, hint="gpu_timeout sets the limit") from None
        except (wgpu.GPUError, RuntimeError, ValueError) as e:
            if re.search(r"device (is )?lost", str(e), re.IGNORECASE):  # reported as a validation error
                self.lost = True
                raise DeviceLost("the GPU device is lost") from None
            if isinstance(e, wgpu.GPUOutOfMemoryError) or "not enough memory" in str(e).lower():
                hint = 'release sessions, use smaller inputs or the provider "wasm"'
                full = OutOfMemory(f"the GPU has no memory left: {e}", hint=hint)
                full.gpu = True
                raise full from None
            if isinstance(e, wgpu.GPUError):
                raise ExecutionError(f"WebGPU refused {'kernel ' * bool(node)}{what}: {e}", node=node) from None
            raise PyRuntimeError(f"{what}: {e}", node=node) from None

    def submit(self, commands: Any) -> None:
        """Submit the commands of an encoder, for `checked`. wgpu ends the process if a device is lost between the two
        calls."""
        with self._order:
            self.wgpu.queue.submit([commands.finish()])

    def destroy(self) -> None:
        """Lose the device. Later calls raise DeviceLost."""
        with self._order:
            self.wgpu.destroy()

    # ── buffers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def buffer(self, size: int, label: str) -> Any:
        """A new buffer for kernels and copies."""
        return self.checked(label, lambda: self.wgpu.create_buffer(size=size, usage=_USAGE, label=label))

    def read(self, places: Sequence[tuple[Place, int]], timeout: float = math.inf) -> list[memoryview]:
        """Wait for all submitted work and read the bytes at places in one transfer. Errors: DeviceLost after `timeout`
        seconds"""
        sizes = [-(-size // 4) * 4 for _, size in places]
        total = sum(sizes)
        if not total:
            return [memoryview(b"") for _ in places]
        starts = [sum(sizes[:n]) for n in range(len(sizes))]
        data = self.checked("read", lambda: self._read([p for p, _ in places], sizes, total, timeout))
        self.bytes_read += total
        return [data[start : start + size] for start, (_, size) in zip(starts, places, strict=True)]

    def wait(self, place: Place, timeout: float = math.inf) -> None:
        """Wait for all submitted work, by reading four bytes: the wait of wgpu-py 0.32 raises TypeError. Errors: as
        `read`"""
        self.checked("wait", lambda: self._read([place], [4], 4, timeout))

    def _read(self, places: Sequence[Place], sizes: Sequence[int], total: int, timeout: float) -> memoryview:
        """Copy all places into one buffer, because each read waits, which costs more than copies. `read_buffer` of
        wgpu-py does the same for one place, and waits for ever. Errors: TimeoutError"""
        target = self._staging(total)
        encoder, end = self.wgpu.create_command_encoder(), 0
        for (source, offset), size in zip(places, sizes, strict=True):
            if size:
                encoder.copy_buffer_to_buffer(source, offset, target, end, size)
            end += size
        with self._order:
            self.wgpu.queue.submit([encoder.finish()])
            mapped = target.map_async("READ_NOSYNC", 0, total)
        wait_for(mapped, timeout)
        with self._order:
            self.wgpu.create_command_encoder().finish()  # fails if the device is lost: `read_mapped` ends the process
            found: memoryview = target.read_mapped(0, total)
            target.unmap()
        if target.size <= KEPT:
            self._readbacks.append(target)
        else:
            target.destroy()
        return found

    def _staging(self, size: int) -> Any:
        """A buffer of at least this size to read from: one of an earlier read, if it is not much larger."""
        for buffer in list(self._readbacks):
            if size <= buffer.size <= 4 * size + 4096:
                try:
                    self._readbacks.remove(buffer)
                except ValueError:  # another thread has taken it
                    continue
                return buffer
        del self._readbacks[:-1]
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self.wgpu.create_buffer(size=1 << (size - 1).bit_length(), usage=usage, label="readback")

    def write(self, place: Place, data: Any) -> None:
        """Write bytes (a multiple of 4) to a place."""
        self.checked("write", lambda: self.wgpu.queue.write_buffer(*place, data))


def wait_for(promise: Any, timeout: float) -> None:
    """Wait for a promise of wgpu-py, whose own wait takes no timeout. Errors: TimeoutError"""
    if timeout < math.inf and not promise._thread_event.wait(timeout):
        raise TimeoutError(f"within {timeout:g} s")
    promise.sync_wait()


def in_time(work: Callable[[], T], timeout: float) -> T:
    """The result of `work`. Errors: TimeoutError if it takes longer; it then goes on in a thread of its own."""
    if timeout == math.inf:
        return work()
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def job() -> None:
        try:
            results.put((work(), None))
        except BaseException as e:
            results.put((None, e))

    threading.Thread(target=job, name="pyruntime GPU", daemon=True).start()
    try:
        result, error = results.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"within {timeout:g} s") from None
    if error is not None:
        raise error
    return cast(T, result)


class TensorMemory:
    """The memory of GPU tensors, which no session owns. size: bytes of the elements as kernels store them; number: of
    this memory in the process; groups: bind groups with its buffer, by what they bind; tensors: weak references to its
    tensors; appended: axis and number of rows of outputs whose new rows are assumed to come last."""

    def __init__(self, device: Device, size: int) -> None:
        self.device = device
        self.size = size
        self.bytes = max(-(-size // 4) * 4, LEAST)
        self.number = next(_numbers)
        self.groups: dict[Any, Any] = {}
        self.tensors: list[Any] = []
        self.appended: list[tuple[int, int]] = []
        with device.growth(self.bytes):
            self.buffer = device.buffer(self.bytes, "tensor")
            device.tensor_bytes += self.bytes

    def read(self, dtype: np.dtype[Any], ranges: Ranges) -> np.ndarray[Any, Any]:
        """The elements in these ranges, in linear memory's layout."""
        lines, length, stride = ranges.count, ranges.length, ranges.stride
        if length == stride or lines == 1:
            data = self.device.read([((self.buffer, 0), lines * length)])[0]
        elif length % 4 or stride % 4:  # copies are of words
            whole = np.frombuffer(self.device.read([((self.buffer, 0), lines * stride)])[0], np.uint8)
            data = memoryview(whole[: lines * stride].reshape(lines, stride)[:, :length].tobytes())
        else:
            parts = self.device.read([((self.buffer, n * stride), length) for n in range(lines)])
            data = memoryview(b"".join(parts))
        return widen(data, dtype, lines * length // stored(dtype).itemsize)

    def write(self, x: np.ndarray[Any, Any], ranges: Ranges) -> None:
        """Write elements to these ranges."""
        if not x.size:
            return
        data = narrow(x)
        if ranges.length != ranges.stride and ranges.count > 1:
            whole = np.zeros(self.bytes, np.uint8)
            lines = whole[: ranges.count * ranges.stride].reshape(ranges.count, ranges.stride)
            lines[:, : ranges.length] = data[: ranges.count * ranges.length].reshape(ranges.count, ranges.length)
            data = whole
        self.device.write((self.buffer, 0), data)

    def release(self) -> None:
        if self.buffer is not None:
            self.buffer = None  # not destroyed: wgpu aborts the process if a command of another thread still uses it
            self.groups = {}
            self.device.tensor_bytes -= self.bytes


_numbers = count(1)


# ── 64-bit integers are 32-bit on the GPU ────────────────────────────────────────────────────────────────────────────


def narrow(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes that the GPU stores, padded to words. Errors: ExecutionError for integers over 32 bits."""
    if x.dtype.itemsize == 8:
        to = np.int32 if x.dtype.kind == "i" else np.uint32
        low, high = np.iinfo(to).min, np.iinfo(to).max
        if x.size and (int(x.min()) < low or int(x.max()) > high):
            wide = x[(x < low) | (x > high)].ravel()[0]
            text = f"{x.dtype} value {wide} does not fit the GPU's 32-bit integers"
            raise ExecutionError(text, hint='use the provider "wasm"')
        x = x.astype(to)
    data = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return np.concatenate([data, np.zeros(-len(data) % 4, np.uint8)]) if len(data) % 4 else data


def stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of elements on the GPU."""
    return np.dtype(f"{dtype.kind}4") if dtype.itemsize == 8 else dtype


def widen(data: memoryview, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, stored(dtype), count).astype(dtype, copy=False)


# ── the process's devices ────────────────────────────────────────────────────────────────────────────────────────────

BACKENDS = ("Vulkan", "Metal", "D3D12")  # those whose adapters can be named; wgpu lists a card once for each backend

_devices: dict[AdapterChoice, Device] = {}
_opening = threading.Lock()


def _after_fork() -> None:
    """In the child: the devices are lost, and nothing of them is freed, because drivers wait for threads that only the
    parent has. Sessions open devices of their own, with another instance of wgpu."""
    global _opening
    _opening = threading.Lock()
    for device in _devices.values():
        device.lost = device.is_of_parent = True
    if _devices:
        _helpers._the_instance = None
        for each in gc.get_objects():
            if isinstance(each, wgpu.GPUObjectBase):
                each._internal = None  # what wgpu-py releases when the object goes


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def tensor_bytes() -> int:
    """Bytes of all GPU tensors."""
    return sum(device.tensor_bytes for device in {id(d): d for d in [*_devices.values()]}.values() if not device.lost)


def shared_device(choice: AdapterChoice | None = None, timeout: float = math.inf) -> Device:
    """The process's device on this adapter. A lost device is replaced. timeout: seconds that the driver may take to
    open one. Errors: NoAdapter, InvalidInput if no adapter has the name"""
    choice = choice or AdapterChoice()
    with _opening:
        for known, device in [*_devices.items()]:
            if device.lost:
                del _devices[known]
        if choice.any_in_use and _devices:
            return next(iter(_devices.values()))
        if choice not in _devices:
            try:
                _devices[choice] = in_time(lambda: _open(choice), timeout)
            except TimeoutError as e:
                text = f"the driver has not opened a WebGPU device {e}"
                raise NoAdapter(text, hint="gpu_timeout sets the limit") from None
        return _devices[choice]


def _open(choice: AdapterChoice) -> Device:
    """A device on this adapter: the one that is open, if there is one."""
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # without it the Vulkan loader prints warnings on servers
    try:
        if choice.name:
            adapter, number = _named(choice.name)
        else:
            adapter, number = wgpu.gpu.request_adapter_sync(power_preference=choice.power), 1
        key = (*sorted((k, str(v)) for k, v in adapter.info.items()), number)
        return next((d for d in _devices.values() if d.key == key), None) or Device(adapter, key)
    except PyRuntimeError:
        raise
    except RuntimeError as e:
        raise NoAdapter(f"no WebGPU adapter: {e}") from None


def _named(name: str) -> tuple[Any, int]:
    """The first adapter that has this name, or else this part of a name, and its number among adapters that have equal
    names. Errors: InvalidInput lists the adapters"""
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info.get("backend_type") in BACKENDS]
    if not found:
        raise NoAdapter(f"no WebGPU adapter on {', '.join(BACKENDS)}")
    plain = [_describe(adapter).name for adapter in found]
    numbers = [plain[: n + 1].count(text) for n, text in enumerate(plain)]
    names = [f"{text} #{n}" if n > 1 else text for text, n in zip(plain, numbers, strict=True)]
    wanted = name.lower()
    for fits in (wanted.__eq__, lambda text: wanted in text):
        for adapter, text, number in zip(found, names, numbers, strict=True):
            if fits(text.lower()):
                return adapter, number
    listed = [f'"{text}" ({a.info.get("adapter_type")})' for text, a in zip(names, found, strict=True)]
    raise InvalidInput(f'there is no GPU "{name}"', hint=f"there is {', '.join(listed)}; a part of the name is enough")


_DOT4 = """@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = u32(dot4I8Packed(x[1], x[2])); }"""


def _multiplies_bytes(device: Any) -> bool:
    """Whether WGSL has dot4I8Packed. wgpu-py 0.32 does not report the features of the language."""
    try:
        device.create_shader_module(code=_DOT4)
    except (wgpu.GPUError, RuntimeError):
        return False
    return True


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
