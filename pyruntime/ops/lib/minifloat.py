"""Decoding and encoding of float8, float6 and float4 as expressions. Their values are stored as bit patterns and
computed in float32.

A format has a sign, exponent bits (with a bias) and mantissa bits, except E8M0, which is an exponent only. Rounding is
to nearest even. Spec: the tables of https://onnx.ai/onnx/technical/float8.html, float4.html and the Cast operator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyruntime.ir.dtype import (  # fmt: skip
    F4E2M1,
    F6E2M3,
    F6E3M2,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F32,
    I32,
    U8,
    DType,
)
from pyruntime.ir.expr import Expr, bitcast, cast, const, minimum, round_even, select


@dataclass(frozen=True, slots=True)
class Format:
    """bits: width of the code; mantissa: width of the mantissa; bias: bias of the exponent; most: the code of the
    largest finite magnitude; inf, nan: codes, None if the format lacks them; negative_zero: whether the format has
    -0."""

    bits: int
    mantissa: int
    bias: int
    most: int
    inf: int | None = None
    nan: int | None = None
    negative_zero: bool = True


FORMATS: dict[DType, Format] = {
    F8E4M3FN: Format(8, 3, 7, 0x7E, nan=0x7F),
    F8E4M3FNUZ: Format(8, 3, 8, 0x7F, nan=0x80, negative_zero=False),
    F8E5M2: Format(8, 2, 15, 0x7B, inf=0x7C, nan=0x7E),
    F8E5M2FNUZ: Format(8, 2, 16, 0x7F, nan=0x80, negative_zero=False),
    F6E2M3: Format(6, 3, 1, 0x1F),
    F6E3M2: Format(6, 2, 3, 0x1F),
    F4E2M1: Format(4, 1, 1, 0x7),
}
MINIFLOATS = frozenset({*FORMATS, F8E8M0})
_NAN = const(math.nan, F32)


def decode(e: Expr, dtype: DType) -> Expr:
    """The float32 value of a bit pattern, which is an expression of the type itself or of uint8."""
    code = cast(bitcast(e, U8), I32)
    if dtype is F8E8M0:
        tiny = bitcast(const(0x00400000, I32), F32)  # 2^-127, below float32's normal numbers
        value = select(code == 0, tiny, bitcast(code << 23, F32))
        return select(code == 255, _NAN, value)
    f = FORMATS[dtype]
    sign = code >> (f.bits - 1)
    low = code & ((1 << (f.bits - 1)) - 1)
    normal = bitcast((low << (23 - f.mantissa)) + ((127 - f.bias) << 23), F32)
    size = select(low < (1 << f.mantissa), cast(low, F32) * _unit(f), normal)
    if f.inf is not None:
        size = select(low == f.inf, math.inf, size)
    value = select(sign != 0, -size, size)
    if f.nan is None:
        return value
    return select(code == f.nan if f.nan == 0x80 else low > (f.most if f.inf is None else f.inf), _NAN, value)


def _unit(f: Format) -> float:
    """The smallest positive number of a format."""
    return 2.0 ** (1 - f.bias - f.mantissa)


def encode(x: Expr, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Expr:
    """A float32 expression as a value of `dtype`. round_mode matters for E8M0 only."""
    if dtype is F8E8M0:
        return bitcast(cast(_encode_exponent(x, saturate, round_mode), U8), dtype)
    f = FORMATS[dtype]
    bits = bitcast(x, I32)
    size = bits & 0x7FFFFFFF
    drop = 23 - f.mantissa
    rounded = (size + ((1 << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop  # nearest even, at the target's width
    normal = rounded - ((127 - f.bias) << f.mantissa)
    small = cast(round_even(bitcast(size, F32) * (1.0 / _unit(f))), I32)
    low = select(size < ((128 - f.bias) << 23), small, normal)
    if saturate or f.nan is None:
        low = minimum(low, f.most)
    else:
        low = select(low > f.most, f.nan if f.inf is None else f.inf, low)
    is_nan = size > 0x7F800000
    sign = (bits >> 31) & 1
    if not f.negative_zero:
        sign = select(low == 0, 0, sign)
    code = (low & ((1 << (f.bits - 1)) - 1 if f.negative_zero else 0xFF)) | (sign << (f.bits - 1))
    if f.nan == 0x80:
        code = select(low == f.nan, f.nan, code)
        code = select(is_nan, f.nan, code)
    elif f.nan is not None:
        code = select(is_nan, (((bits >> 31) & 1) << 7) | f.nan, code)
    else:
        # A format without NaN encodes it as a zero, as ml_dtypes does.
        code = select(is_nan, ((bits >> 31) + 1) << (f.bits - 1), code)
    return bitcast(cast(code, U8), dtype)


def _encode_exponent(x: Expr, saturate: bool, round_mode: str) -> Expr:
    """The E8M0 code: float32's own exponent, rounded up, down or to the nearest power of two (ties up)."""
    bits = bitcast(x, I32)
    exponent = (bits >> 23) & 0xFF
    if round_mode == "up":
        more = cast((bits & 0x7FFFFF) != 0, I32)
    elif round_mode == "nearest":
        more = select(exponent > 0, (bits >> 22) & 1, cast((bits & 0x7FFFFF) > 0x400000, I32))
    else:
        more = const(0, I32)
    up = exponent + more
    finite = minimum(up, 0xFE) if saturate else select(bits == 0, 0xFF, up)
    return select(
        exponent == 0xFF,
        select((bits & 0x7FFFFF) == 0, const(0xFE, I32), 0xFF) if saturate else const(255, I32),
        finite,
    )
