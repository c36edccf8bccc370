"""Conversions between element types.

Python converts strings; float8 and smaller floats are converted through their bit patterns (`minifloat`).
Spec: https://onnx.ai/onnx/operators/onnx__Cast.html"""

from __future__ import annotations

import math
from array import array
from typing import Any

from pyruntime.errors import ExecutionError
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.host import host_function
from pyruntime.ir.dtype import BF16, BOOL, BY_CODE, BY_NAME, F16, F32, F64, I32, STRING, U8, DType, bounds
from pyruntime.ir.expr import Expr, bitcast, cast
from pyruntime.ir.kernel import Alias, Leaf, Map, Tensor
from pyruntime.ir.reference import Array, store_value
from pyruntime.ops.lib.minifloat import MINIFLOATS, decode, encode

_OLD_NAMES = {"float": "float32", "double": "float64"}


def float_of(t: Tracer, code: int) -> DType:
    """The float type that an attribute's code names."""
    dtype = dtype_of(t, code)
    if dtype not in (F16, BF16, F32, F64):
        raise t.unsupported(f"element type {dtype} is not a float type")
    return dtype


def dtype_of(t: Tracer, code: int | str | None, default: DType = F32) -> DType:
    """The type that an attribute names: by code, or before opset 6 by name."""
    if code is None:
        return default
    if isinstance(code, str):
        dtype = BY_NAME.get(_OLD_NAMES.get(code.lower(), code.lower()))
    else:
        dtype = BY_CODE.get(code)
    if dtype is None or dtype.kind == "c":
        raise t.unsupported(f"element type {code} is not supported")
    return dtype


def convert(t: Tracer, x: Tensor, to: DType, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """x as elements of type `to`."""
    if x.dtype is to:
        return x
    if to is STRING:
        if x.dtype in MINIFLOATS:
            x = convert(t, x, F32)
        return t.host("format_numbers", [x], [(x.shape, STRING)], source=x.dtype.name)[0]
    if x.dtype is STRING:
        if to in MINIFLOATS:
            return convert(t, convert(t, x, F32), to, saturate, round_mode)
        return t.host("parse_numbers", [x], [(x.shape, to)], to=to.name)[0]

    def element(*i: Expr) -> Expr:
        e = decode(x.at(*i), x.dtype) if x.dtype in MINIFLOATS else x.at(*i)
        if e.dtype.is_float and to.is_int and to.bits < 8:
            return cast(cast(e, I32), to)  # values out of range wrap, as in ml_dtypes
        if to in (F16, BF16):  # the round trip keeps passes/lowering/wide_halves.py from removing this rounding
            return cast(cast(cast(e, to), F32), to)
        # A half float that is float32 between kernels is rounded here, but not a dequantised weight, which could no
        # longer be stored as codes.
        if e.dtype in (F16, BF16) and to in (F32, F64) and not _is_of_weights(x):
            e = cast(Expr("cast", (cast(e, F32),), e.dtype), F32)
        return encode(cast(e, F32), to, saturate, round_mode) if to in MINIFLOATS else cast(e, to)

    return t.compute(x.shape, element)


@op("Cast", since=1)
def cast_1(t: Tracer, x: Tensor, *, to: str | int) -> Tensor:
    return convert(t, x, dtype_of(t, to))


@op("Cast", since=6)
def cast_6(t: Tracer, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return convert(t, x, dtype_of(t, to), bool(saturate), round_mode)


@op("CastLike", since=15)
def cast_like(t: Tracer, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return convert(t, x, like.dtype, bool(saturate), round_mode)


@op("BitCast", since=26)
def bit_cast(t: Tracer, x: Tensor, *, to: int) -> Tensor:
    """The bits of x as another type of the same width."""
    dtype = dtype_of(t, to)
    if dtype.bits != x.dtype.bits or STRING in (dtype, x.dtype):
        raise t.unsupported(f"the bits of {x.dtype} cannot be read as {dtype}")
    if BOOL in (dtype, x.dtype):
        return t.compute(x.shape, lambda *i: _bool_bits(x.at(*i), dtype))
    return t.compute(x.shape, lambda *i: bitcast(x.at(*i), dtype))


def _bool_bits(e: Expr, dtype: DType) -> Expr:
    return cast(bitcast(e, U8), BOOL) if dtype is BOOL else bitcast(cast(e, U8), dtype)


# ── strings ───────────────────────────────────────────────────────────────────────────────────────────────────────


@host_function("parse_numbers")
def parse_numbers(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    shape, texts = args[0] or ((), [])
    to = BY_NAME[attrs["to"]]
    try:
        return [(shape, _parsed(texts, to))]
    except (ValueError, OverflowError) as error:
        raise ExecutionError(f"a string cannot be parsed as {to}: {error}") from None


def _parsed(texts: list[str], to: DType) -> list[Any]:
    """The numbers of all texts: checks and conversions of whole lists, because those of single elements took five times
    as long."""
    everything = "".join(texts)
    if "_" in everything or not everything.isascii():
        wrong = next(text for text in texts if "_" in text or not text.isascii())
        raise ValueError(f"{wrong!r} is a number in Python only")
    if to in (F32, F64):
        values = list(map(float, texts))
        return array("f", values).tolist() if to is F32 else values
    if not to.is_int:
        return [store_value(float(text), to) for text in texts]
    try:
        numbers = list(map(int, texts))
    except ValueError:
        numbers = [_whole(text) for text in texts]
    low, high = bounds(to)
    if numbers and not low <= min(numbers) <= max(numbers) <= high:
        wrong = next(text for text, n in zip(texts, numbers, strict=True) if not low <= n <= high)
        raise OverflowError(f"{wrong!r} is out of its range")
    return numbers


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return math.trunc(float(text))


def _is_of_weights(x: Tensor) -> bool:
    """Whether a tensor is a weight, or computed from weights element by element."""
    kernel = x.kernel
    if isinstance(kernel, Leaf):
        return kernel.kind == "weight"
    return isinstance(kernel, (Map, Alias)) and all(map(_is_of_weights, kernel.inputs))


@host_function("format_numbers")
def format_numbers(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    shape, values = args[0] or ((), [])
    source = BY_NAME[attrs["source"]]
    return [(shape, [_format(v, source) for v in values])]


def _format(value: Any, source: DType) -> str:
    """The text that onnxruntime writes, because models look up categories by it: integers, also for bools, or eight
    significant digits for floats, also for float64. ONNX leaves the digits open."""
    if not source.is_float:
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return f"{value:.8g}"
