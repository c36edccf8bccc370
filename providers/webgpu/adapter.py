"""The facts about a GPU adapter that compilation depends on, natively and in browsers."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.errors import PyRuntimeError

ALIGN = 256  # alignment of buffer offsets: the largest minStorageBufferOffsetAlignment that adapters may have


class NoAdapter(PyRuntimeError):
    """The host has no WebGPU adapter, or the adapter has no device."""


@dataclass(frozen=True, slots=True)
class AdapterChoice:
    """Which native adapter a session wants. name: all or a part of its name, "" for any; power: of adapters of any
    name, "low-power" or "high-performance"; any_in_use: whether the process's first device will do, whatever its
    adapter is"""

    name: str = ""
    power: str = "high-performance"
    any_in_use: bool = True


@dataclass(frozen=True, slots=True)
class Adapter:
    """Features and limits. The defaults are those of every WebGPU adapter.
    Spec: https://www.w3.org/TR/webgpu/#limits"""

    name: str = ""
    software: bool = False  # runs on the CPU: workgroup memory costs more than it gains
    f16: bool = False
    subgroups: bool = False  # with subgroup_id
    timestamps: bool = False
    dot4: bool = False  # with WGSL's packed_4x8_integer_dot_product
    storage_buffers: int = 8
    binding_bytes: int = 128 << 20
    buffer_bytes: int = 256 << 20
    workgroups: int = 65535
    shared_bytes: int = 16384
    # schedules that a measurement chose for a kernel (codegen/choices.py); "": their own rules decide
    contraction: str = ""
    attention: str = ""
    # most iterations of all loops of one invocation; 0: no limit. Mesa's llvmpipe leaves loops after 65535
    iterations: int = 0

    @property
    def specialises(self) -> bool:
        """Whether the driver compiles a kernel again when numbers change that its loops and conditions compare with, as
        Mesa's lavapipe (llvmpipe for Vulkan) does."""
        return self.iterations > 0


def fold_groups(groups: int, limit: int) -> tuple[int, int]:
    """Workgroups in two dimensions whose product is at least `groups`; the shader checks the work unit's number."""
    if groups <= limit:
        return groups, 1
    rows = -(-groups // limit)
    return -(-groups // rows), rows
