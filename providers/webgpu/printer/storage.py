"""How element types are represented on the GPU: in registers, and in storage buffers.

Registers are f32, i32, u32 and bool. Half floats compute as f32, 64-bit integers in 32 bits, narrow integers in 32
bits, wrapped to their range; float8 and similar types are bit patterns in u32. Storage consists of 32-bit words: one
element each for wide types, packed little-endian for types of one and two bytes; float16 is stored as f16 if the
adapter has shader-f16.

Spec: https://www.w3.org/TR/WGSL/#memory-layouts
"""

from __future__ import annotations

from pyruntime.ir.dtype import BF16, BOOL, F16, F32, DType, bounds


def register(dtype: DType) -> str:
    """The WGSL type of a value in a register."""
    if dtype in (F32, F16, BF16):
        return "f32"
    if dtype is BOOL:
        return "bool"
    return "i32" if dtype.kind == "i" else "u32"


def element_bytes(dtype: DType) -> int:
    """Bytes of an element in a storage buffer (int64 and uint64 are stored in one word)."""
    return min(dtype.size, 4)


def storable(dtype: DType) -> bool:
    """Whether the GPU can store tensors of this type."""
    return dtype.size > 0 and dtype.kind in "fiub" and not (dtype.is_float and dtype.size == 8)


def is_pattern(dtype: DType) -> bool:
    """Whether a type is float8, float6 or float4: a bit pattern without arithmetic."""
    return dtype.is_float and dtype.size == 1


def stored_type(dtype: DType, f16: bool) -> str:
    """The element type of the storage array."""
    if dtype is F16 and f16:
        return "f16"
    kind = register(dtype)
    return kind if dtype.size >= 4 and kind != "bool" else "u32"


def is_packed(dtype: DType, f16: bool) -> bool:
    """Whether several elements share a word."""
    return dtype.size < 4 and not (dtype is F16 and f16)


def gpu_bounds(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type on the GPU."""
    low, high = bounds(dtype)
    if dtype.size == 8:
        return (-(1 << 31), (1 << 31) - 1) if dtype.kind == "i" else (0, (1 << 32) - 1)
    return low, high
