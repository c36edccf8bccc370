"""Prints constants and conversions between element types as WGSL."""

from __future__ import annotations

import math
from typing import Any

from pyruntime.ir import reference
from pyruntime.ir.dtype import BF16, BOOL, F16, F32, DType

from .storage import gpu_bounds, is_pattern, register


class Conversions:
    """f16: the adapter has shader-f16; helpers: names of the functions of wgsl_functions.py that the text calls."""

    def __init__(self, f16: bool) -> None:
        self.f16 = f16
        self.helpers: set[str] = set()

    def call(self, name: str, *args: str) -> str:
        self.helpers.add(name)
        return f"{name}({', '.join(args)})"

    def constant(self, value: Any, dtype: DType) -> str:
        kind = register(dtype)
        if kind == "bool":
            return "true" if value else "false"
        if kind == "f32":
            return self._float(float(value), dtype)
        low, high = gpu_bounds(dtype) if not is_pattern(dtype) else (0, 255)
        value = min(max(int(value), low), high)
        if kind == "u32":
            return f"{value}u"
        return "bitcast<i32>(0x80000000u)" if value == -(1 << 31) else f"i32({value})" if value < 0 else f"{value}i"

    def _float(self, value: float, dtype: DType) -> str:
        value = reference.round_float(value, dtype)
        if math.isnan(value) or math.isinf(value):
            bits = "0x7fc00000u" if math.isnan(value) else "0x7f800000u" if value > 0 else "0xff800000u"
            return self.call("of_bits", bits)
        if value == 0.0 and math.copysign(1.0, value) < 0:
            return self.call("of_bits", "0x80000000u")
        return f"{value!r}f" if value >= 0 else f"f32({value!r})"

    def of_pattern(self, raw: str, dtype: DType) -> str:
        """The register value of an element with these bits."""
        if dtype is BOOL:
            return f"({raw} != 0u)"
        if dtype is F16 or dtype is BF16:
            return self.call("from_f16" if dtype is F16 else "from_bf16", raw)
        return raw

    def to_pattern(self, value: str, dtype: DType) -> str:
        """The bits of a register value as u32. Bits above the element's width are undefined."""
        if dtype is BOOL:
            return f"select(0u, 1u, {value})"
        if dtype is F16 or dtype is BF16:
            return self.call("to_f16" if dtype is F16 else "to_bf16", value)
        return f"bitcast<u32>({value})" if register(dtype) != "u32" else value

    def bitcast(self, x: str, source: DType, to: DType) -> str:
        if F16 in (source, to) or BF16 in (source, to):
            bits = self.to_pattern(x, source)
            return self.bits_as(f"({bits} & 0xffffu)" if to.size < 4 else bits, to)
        if register(source) == register(to):
            return narrowed(x, to) if to.is_int and to.bits < 32 and source.kind != to.kind else x
        return self.bits_as(f"bitcast<u32>({x})" if register(source) != "u32" else x, to)

    def bits_as(self, bits: str, to: DType) -> str:
        """The value of type `to` with these bits (u32)."""
        if to in (F16, BF16):
            return self.of_pattern(bits, to)
        if register(to) == "u32":
            return narrowed(bits, to) if to.is_int and to.bits < 32 else bits
        text = f"bitcast<{register(to)}>({bits})"
        return narrowed(text, to) if to.is_int and to.bits < 32 else text

    def cast(self, x: str, source: DType, to: DType) -> str:
        """Conversion as ONNX Cast defines it."""
        a, b = register(source), register(to)
        if to is BOOL:
            return (
                x
                if a == "bool"
                else self.call("is_true", x)
                if a == "f32"
                else f"({x} != {'0u' if a == 'u32' else '0'})"
            )
        if a == "bool":
            one = {"f32": "0.0f, 1.0f", "i32": "0i, 1i", "u32": "0u, 1u"}[b]
            return f"select({one}, {x})"
        if a == "f32" and b == "f32":
            return self._rounded(x, source, to)
        if b == "f32":
            return self._rounded(f"f32({x})", F32, to)
        if a == "f32":
            return self._whole(x, to)
        text = x if a == b else f"bitcast<{b}>({x})"
        keeps = to.bits >= source.bits and to.kind == source.kind
        return text if keeps or to.bits >= 32 else narrowed(text, to)

    def _rounded(self, x: str, source: DType, to: DType) -> str:
        if to is F32 or to is source:
            return x
        if to is F16 and self.f16:
            return f"f32(f16({x}))"
        return self.of_pattern("(" + self.to_pattern(x, to) + " & 0xffffu)", to)

    def _whole(self, x: str, to: DType) -> str:
        kind = register(to)
        if to.bits >= 32:
            return self.call("to_" + kind, x)
        low, high = gpu_bounds(to)
        text = self.call("to_" + kind, x)
        return f"min({text}, {high}u)" if kind == "u32" else f"clamp({text}, {low}, {high})"


def narrowed(text: str, dtype: DType) -> str:
    """32 bits wrapped to the range of a narrow type."""
    if dtype.kind == "u":
        return f"({text} & {(1 << dtype.bits) - 1:#x}u)"
    shift = 32 - dtype.bits
    return f"(({text} << {shift}u) >> {shift}u)"
