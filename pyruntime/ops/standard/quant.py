"""Quantisation: real ≈ (code - zero point) · scale, with one scale for the tensor, per slice of an axis, or per block.

Rounding is to nearest even, then the zero point is added, then the code saturates."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BF16, F16, F32, I32, U8, DType, bounds
from pyruntime.ir.expr import Expr, X, Y, cast, clip, const, index, instantiate, maximum, minimum, round_even, select
from pyruntime.ir.kernel import Leaf, Tensor
from pyruntime.ops.lib.formula import numeric
from pyruntime.ops.lib.minifloat import FORMATS, MINIFLOATS, decode, encode
from pyruntime.ops.lib.moved_codes import moved_codes
from pyruntime.ops.standard.cast import dtype_of, float_of


def saturated(value: Expr, zero: Expr | None, dtype: DType) -> Expr:
    """A float32 value in units of the scale as a code: rounded, plus the zero point (float32), clamped to an integer
    type."""
    low, high = bounds(dtype)
    code = round_even(value)
    return cast(clip(code if zero is None else code + zero, float(low), float(high)), dtype)


def value_of_codes(value: Expr, dtype: DType) -> Expr:
    """The value that codes round, constant where they saturate."""
    low, high = bounds(dtype)
    return clip(value, low - 0.5, high + 0.5)


def map_to_codes(t: Tracer, value: Expr, zero: Expr, dtype: DType, *tensors: Tensor) -> Tensor:
    """The codes of a value in units of the scale, plus the zero point: templates over tensors, which are broadcast."""
    codes = t.map(saturated(value, zero, dtype), *tensors)
    if t.differentiates:
        loads = [t.aligned(x, codes.shape) for x in tensors]
        t.rounded(codes, instantiate(value_of_codes(value + zero, dtype), loads))
    return codes


def parameter(t: Tracer, v: Tensor, x: Tensor, axis: int, block: int, i: Sequence[Expr], name: str) -> Expr:
    """The scale or zero point of the element of x at indices i."""
    if v.rank == 0:
        return v.at()
    if v.rank == 1 and v.shape[0] == 1 and not block:
        return v.at(0)
    axis = t.axis(axis, x.rank)
    if block:
        if v.rank != x.rank:
            raise t.shape_error(f"blocked {name} has rank {v.rank}, the input {x.rank}")
        shape = [sh.ceildiv(d, block) if n == axis else d for n, d in enumerate(x.shape)]
        t.require_shape(f"blocked {name}", v, shape)
        return v.at(*[c / block if n == axis else c for n, c in enumerate(i)])
    if not x.rank:
        raise t.shape_error(f"{name} has rank {v.rank}, the input is a scalar")
    if v.rank != 1:
        raise t.unsupported(f"{name} of rank {v.rank} needs a block_size")
    t.require_broadcast_shape(name, v, (x.shape[axis],))
    return t.aligned(v, (x.shape[axis],), [i[axis]])


def constant_zero(t: Tracer, zero: Tensor, of: Tensor) -> int | None:
    """The zero point of the codes `of` if it can be inlined: 0 for any codes, other values for weights only."""
    values = t.known(zero) if zero.dtype.is_int else None
    if not values or not isinstance(values[0], int) or any(v != values[0] for v in values):
        return None
    return values[0] if values[0] == 0 or isinstance(of.kernel, Leaf) and of.kernel.kind == "weight" else None


def subtract_zero(t: Tracer, x: Tensor, zero: Tensor | None) -> Tensor:
    """x - zero point, as int32."""
    if not x.dtype.is_int:
        raise t.unsupported(f"quantised {x.dtype} is not implemented, only integers")
    if zero is None:
        return t.cast(x, I32)
    inlined = constant_zero(t, zero, x)
    return t.map_onto(cast(X, I32) - (cast(Y, I32) if inlined is None else inlined), x, zero)


def require_pair(t: Tracer, scale: Tensor, zero: Tensor | None) -> None:
    """Refuse a zero point whose shape differs from its scale's. One number may have the shape () or (1,)."""
    if zero is not None and not {scale.shape, zero.shape} <= {(), (1,)}:
        t.require_shape("the zero point", zero, scale.shape)


def _round_to(value: Expr, dtype: DType) -> Expr:
    """value rounded to the precision of dtype, if that is a half float."""
    return cast(cast(value, dtype), F32) if dtype in (F16, BF16) else value


@op("QuantizeLinear", since=10)
def quantize_linear(
    t: Tracer, x: Tensor, y_scale: Tensor, y_zero_point: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Tensor:  # fmt: skip
    """saturate(round(x / y_scale) + y_zero_point). The type is the zero point's, else output_dtype, else uint8.
    Shapes: y_scale and y_zero_point () or (x.shape[axis],), or x's with its axis divided by block_size.
    Spec: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html"""
    dtype = y_zero_point.dtype if y_zero_point is not None else dtype_of(t, output_dtype or None, U8)
    if not (dtype.is_int or dtype in FORMATS):
        raise t.unsupported(f"quantising to {dtype} is not supported")
    require_pair(t, y_scale, y_zero_point)
    y_scale = numeric(t, y_scale)
    work = float_of(t, precision) if precision else y_scale.dtype

    def body(*i: Expr) -> Expr:
        scale = cast(parameter(t, y_scale, x, axis, block_size, i, "y_scale"), F32)
        value = _round_to(cast(x.at(*i), F32) / scale, work)
        zero = None if y_zero_point is None else parameter(t, y_zero_point, x, axis, block_size, i, "y_zero_point")
        if dtype.is_int:
            return saturated(value, None if zero is None else cast(zero, F32), dtype)
        return encode(value if zero is None else value + decode(zero, dtype), dtype, bool(saturate))

    def unrounded(*i: Expr) -> Expr:
        value = cast(x.at(*i), F32) / cast(parameter(t, y_scale, x, axis, block_size, i, "y_scale"), F32)
        if y_zero_point is not None:
            value = value + cast(parameter(t, y_zero_point, x, axis, block_size, i, "y_zero_point"), F32)
        return value_of_codes(value, dtype)

    codes = moved_codes(t, x, y_scale, y_zero_point, dtype) if work is F32 and not block_size else None
    codes = t.compute(x.shape, body) if codes is None else codes
    if t.differentiates and dtype.is_int:
        t.rounded(codes, unrounded(*[index(n) for n in range(x.rank)]))
    return codes


@op("DequantizeLinear", since=10)
def dequantize_linear(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero_point: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    """(x - x_zero_point) · x_scale, as x_scale's type or output_dtype. Shapes: as QuantizeLinear.
    Spec: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html"""
    dtype = dtype_of(t, output_dtype or None, x_scale.dtype)
    if not dtype.is_float or dtype in MINIFLOATS:
        raise t.unsupported(f"dequantising to {dtype} is not supported")
    require_pair(t, x_scale, x_zero_point)
    x_scale = numeric(t, x_scale)
    inlined = None if x_zero_point is None else constant_zero(t, x_zero_point, x)

    def body(*i: Expr) -> Expr:
        zero = None if x_zero_point is None else parameter(t, x_zero_point, x, axis, block_size, i, "x_zero_point")
        if inlined is not None:
            zero = const(inlined, I32)
        scale = cast(parameter(t, x_scale, x, axis, block_size, i, "x_scale"), F32)
        return cast(_difference(x.at(*i), zero, x.dtype) * scale, dtype)

    return t.compute(x.shape, body)


def _difference(code: Expr, zero: Expr | None, dtype: DType) -> Expr:
    """code - zero, as float32."""
    if dtype in MINIFLOATS:
        value = decode(code, dtype)
        return value if zero is None else value - decode(zero, dtype)
    return cast(cast(code, I32) if zero is None else cast(code, I32) - cast(zero, I32), F32)


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(t: Tracer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 codes of x, with the scale and zero point of the range of x and 0.
    Shapes: x -> x's, (), (). Spec: https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html"""
    axes = range(x.rank)
    high = t.map(maximum(X, 0.0), t.reduce("max", x, axes, keepdims=False))
    low = t.map(minimum(X, 0.0), t.reduce("min", x, axes, keepdims=False))
    scale = t.map(select(X == Y, 1.0, X - Y) / 255.0, high, low)
    zero = t.map(cast(round_even(clip(-X / Y, 0.0, 255.0)), U8), low, scale)
    return quantize_linear(t, x, scale, zero), scale, zero
