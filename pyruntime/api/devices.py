"""onnxruntime's classes for devices and memory. Tensors of this API are in the process's memory; outputs can also stay
on the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.api.enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from pyruntime.api.providers import CPU, WEBGPU, get_available_providers
from pyruntime.errors import InvalidInput, NotSupported

_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "webgpu": 1, "dml": 1, "cann": 3, "npu": 3}


class OrtDevice:
    """A device: its kind, its number and its vendor."""

    __slots__ = ("_id", "_name", "_vendor")

    def __init__(self, name: str, device_id: int = 0, vendor_id: int = -1) -> None:
        if str(name).lower() not in _TYPES:
            raise InvalidInput(f'device "{name}" is not known', hint=f"one of {', '.join(_TYPES)}")
        self._name, self._id, self._vendor = str(name).lower(), int(device_id), max(int(vendor_id), 0)

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        return OrtDevice(ort_device_name, device_id, vendor_id)

    @property
    def name(self) -> str:
        return self._name

    def device_id(self) -> int:
        return self._id

    def device_type(self) -> int:
        """0 for CPU, 1 for GPU, 3 for NPU."""
        return _TYPES[self._name]

    def device_vendor_id(self) -> int:
        return self._vendor

    def device_mem_type(self) -> int:
        return 0


def check_device(device_type: Any, device_id: int = 0, gpu: bool = False) -> str:
    """The device's name. Errors: NotSupported unless it is the CPU, or, with `gpu`, the GPU"""
    name = OrtDevice(device_type, device_id).name
    if name == "cpu" or gpu and name in ("webgpu", "gpu"):
        return name
    hint = "feed arrays; outputs stay on the GPU by bind_output(name, 'webgpu')" if name in ("webgpu", "gpu") else "cpu"
    raise NotSupported(f'tensors cannot be made on "{device_type}"', hint=hint)


@dataclass(frozen=True)
class OrtMemoryInfo:
    """name: "Cpu" or "WebGPU_Buffer"; device_id: the device's number."""

    name: str
    allocator_type: OrtAllocatorType
    device_id: int
    mem_type: OrtMemType
    device_type: OrtMemoryInfoDeviceType = OrtMemoryInfoDeviceType.CPU
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    @staticmethod
    def create_v2(
        name: str, device_type: OrtMemoryInfoDeviceType, vendor_id: int, device_id: int,
        mem_type: OrtDeviceMemoryType, alignment: int, allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:  # fmt: skip
        """onnxruntime's newer constructor. The alignment is ignored: tensors are aligned to cache lines."""
        return OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT, device_type, mem_type, vendor_id)


CPU_MEMORY = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


class OrtArenaCfg:
    """onnxruntime's configuration of an arena, from a dict of its fields or the first four fields. Without effect: each
    session plans its own memory."""

    max_mem = 0
    arena_extend_strategy = initial_chunk_size_bytes = max_dead_bytes_per_chunk = -1
    initial_growth_chunk_size_bytes = max_power_of_two_extend_bytes = -1
    __slots__ = ()

    def __init__(self, *values: Any) -> None:
        if len(values) not in (0, 4) and not (len(values) == 1 and isinstance(values[0], Mapping)):
            raise InvalidInput("OrtArenaCfg takes a dict, or four numbers")


@dataclass(frozen=True)
class OrtHardwareDevice:
    type: OrtHardwareDeviceType
    vendor_id: int = 0
    vendor: str = ""
    device_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrtEpDevice:
    """A provider and its device, for `SessionOptions.add_provider_for_devices`."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: dict[str, str] = field(default_factory=dict)
    ep_options: dict[str, str] = field(default_factory=dict)

    def memory_info(self, memory_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT) -> OrtMemoryInfo:
        if self.ep_name == CPU:
            return CPU_MEMORY
        raise NotSupported(
            "programs cannot allocate memory on the GPU", hint="bind_output(name, 'webgpu'), and feed that"
        )

    def create_sync_stream(self, options: Any = None) -> None:
        raise NotSupported("streams are not supported", hint="run returns when the outputs are complete")


def get_ep_devices() -> Sequence[OrtEpDevice]:
    """The CPU, and a GPU if wgpu is installed. Whether the host has a GPU is only known when a session opens it."""
    kinds = {WEBGPU: OrtHardwareDeviceType.GPU, CPU: OrtHardwareDeviceType.CPU}
    names = [name for name in get_available_providers() if name in kinds]
    return [OrtEpDevice(name, "pyruntime", OrtHardwareDevice(kinds[name])) for name in names]


__all__ = [
    "CPU_MEMORY", "OrtArenaCfg", "OrtDevice", "OrtDeviceVendorId", "OrtEpDevice", "OrtHardwareDevice", "OrtMemoryInfo",
    "check_device", "get_ep_devices",
]  # fmt: skip
