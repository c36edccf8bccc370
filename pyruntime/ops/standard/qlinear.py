"""Contractions of quantised tensors: the routines "matmul" and "conv" on int32 operands, from which the zero points are
subtracted."""

from __future__ import annotations

from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y, Z, cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.standard.conv import convolve_integers
from pyruntime.ops.standard.matmul import matmul
from pyruntime.ops.standard.quant import map_to_codes, require_pair, subtract_zero


def per_row(t: Tracer, v: Tensor, of: Tensor) -> Tensor:
    """A parameter of the left operand: a vector has one entry per row. A left operand that is a vector is one row."""
    if v.rank != 1:
        return v
    return t.reshape(v, () if of.rank == 1 or v.shape[0] == 1 else (v.shape[0], 1))


def product_of_codes(t: Tracer, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """Σ (a - a_zero)(b - b_zero) in int32. Zero points are scalars, vectors (per row of a, per column of b) or of full
    shape."""
    zero = None if a_zero is None else per_row(t, a_zero, a)
    return matmul(t, subtract_zero(t, a, zero), subtract_zero(t, b, b_zero))


def requantise(t: Tracer, codes: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    """codes · factor + zero, rounded and saturated to the zero point's type."""
    if not zero.dtype.is_int:
        raise t.unsupported(f"quantised {zero.dtype} is not implemented, only integers")
    y = map_to_codes(t, cast(X, F32) * Y, cast(Z, F32), zero.dtype, codes, factor, zero)
    t.require_shape("a scale or zero point does not broadcast: the result", y, codes.shape)
    return y


@op("MatMulInteger", since=10)
def matmul_integer(
    t: Tracer, a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    """(a - a_zero_point) · (b - b_zero_point) in int32.
    Spec: https://onnx.ai/onnx/operators/onnx__MatMulInteger.html"""
    return product_of_codes(t, a, a_zero_point, b, b_zero_point)


@op("QLinearMatMul", since=10)
def qlinear_matmul(
    t: Tracer, a: Tensor, a_scale: Tensor, a_zero_point: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor,
) -> Tensor:  # fmt: skip
    """MatMulInteger, requantised by a_scale · b_scale / y_scale.
    Spec: https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html"""
    for scale, point in ((a_scale, a_zero_point), (b_scale, b_zero_point), (y_scale, y_zero_point)):
        require_pair(t, scale, point)
    codes = product_of_codes(t, a, a_zero_point, b, b_zero_point)
    left, out, zero = (per_row(t, v, a) for v in (a_scale, y_scale, y_zero_point))
    factor = t.map(cast(X, F32) * cast(Y, F32) / cast(Z, F32), left, b_scale, out)
    return requantise(t, codes, factor, zero)


@op("QLinearConv", since=10)
@attributes_of(convolve_integers)
def qlinear_conv(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero_point: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor, b: Tensor | None = None, *, channels_last: int = 0, **attributes: Any,
) -> Tensor:  # fmt: skip
    """ConvInteger plus an int32 bias, requantised by x_scale · w_scale / y_scale; w_scale may have one number per
    filter.
    Spec: https://onnx.ai/onnx/operators/onnx__QLinearConv.html"""
    first = to_channels_first(t, x) if channels_last else x
    codes = convolve_integers(t, first, x_zero_point, w, w_zero_point, **attributes)
    if b is not None:
        t.require_shape("B", b, (w.shape[0],))
        codes = t.map(X + Y, codes, along_filters(t, b, codes))
    factor = t.map(X * Y / Z, scalar_of(t, x_scale), along_filters(t, w_scale, codes), scalar_of(t, y_scale))
    y = requantise(t, codes, factor, scalar_of(t, y_zero_point))
    return to_channels_last(t, y) if channels_last else y


def scalar_of(t: Tracer, v: Tensor) -> Tensor:
    return t.reshape(v, ())


def along_filters(t: Tracer, v: Tensor, codes: Tensor) -> Tensor:
    if v.shape in ((), (1,)):
        return scalar_of(t, v)
    return t.reshape(v, [codes.shape[1], *[1] * (codes.rank - 2)])


def to_channels_first(t: Tracer, x: Tensor) -> Tensor:
    return t.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def to_channels_last(t: Tracer, x: Tensor) -> Tensor:
    return t.transpose(x, [0, *range(2, x.rank), 1])
