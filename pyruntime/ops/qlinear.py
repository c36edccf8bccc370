"""Operators on quantised tensors: integer contractions, and float operators between dequantise and quantise.

Integer products are the routines "matmul" and "conv" on int32 operands with the zero points taken off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.dtype import F32
from pyruntime.expr import Expr, X, Y, Z, cast, select, sigmoid
from pyruntime.kernel import Tensor
from pyruntime.ops.conv import centred, convolve_integers
from pyruntime.ops.matmul import matmul
from pyruntime.ops.pool import average_pool, global_average_pool
from pyruntime.ops.quant import dequantize_linear, dynamic_quantize_linear, saturated
from pyruntime.ops.registry import op
from pyruntime.tracer import Tracer

MICROSOFT = "com.microsoft"


def _row_wise(t: Tracer, v: Tensor | None) -> Tensor | None:
    """A parameter of the left operand: a vector has one entry a row."""
    return v if v is None or v.rank != 1 or v.shape[0] == 1 else t.reshape(v, (v.shape[0], 1))


def product_of_codes(t: Tracer, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """Σ (a - a_zero)(b - b_zero) in int32; zero points are scalars, vectors (per row of a, per column of b) or full."""
    return matmul(t, centred(t, a, _row_wise(t, a_zero)), centred(t, b, b_zero))


def requantised(t: Tracer, codes: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    """codes · factor as the zero point's type."""
    return t.map(saturated(cast(X, F32) * Y, cast(Z, F32), zero.dtype), codes, factor, zero)


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
    codes = product_of_codes(t, a, a_zero_point, b, b_zero_point)
    left, out, zero = (_row_wise(t, v) for v in (a_scale, y_scale, y_zero_point))
    assert left is not None and out is not None and zero is not None
    factor = t.map(cast(X, F32) * cast(Y, F32) / cast(Z, F32), left, b_scale, out)
    return requantised(t, codes, factor, zero)


@op("QLinearConv", since=10)
@op("QLinearConv", since=1, domain=MICROSOFT)
def qlinear_conv(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero_point: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET",
    channels_last: int = 0, dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """ConvInteger plus an int32 bias, requantised by x_scale · w_scale / y_scale; w_scale may be one a filter.
    Spec: https://onnx.ai/onnx/operators/onnx__QLinearConv.html"""
    codes = convolve_integers(
        t, _channels_first(t, x) if channels_last else x, x_zero_point, w, w_zero_point, group=group,
        kernel_shape=kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations,
    )  # fmt: skip
    if b is not None:
        codes = t.map(X + Y, codes, _along_filters(t, b, codes.rank))
    factor = t.map(X * Y / Z, _single(t, x_scale), _along_filters(t, w_scale, codes.rank), _single(t, y_scale))
    y = requantised(t, codes, factor, _single(t, y_zero_point))
    return _channels_last(t, y) if channels_last else y


def _single(t: Tracer, v: Tensor) -> Tensor:
    return t.reshape(v, ())


def _along_filters(t: Tracer, v: Tensor, rank: int) -> Tensor:
    return _single(t, v) if v.rank == 0 or v.shape == (1,) else t.reshape(v, [v.shape[0], *[1] * (rank - 2)])


def _channels_first(t: Tracer, x: Tensor) -> Tensor:
    return t.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def _channels_last(t: Tracer, x: Tensor) -> Tensor:
    return t.transpose(x, [0, *range(2, x.rank), 1])


# ── ONNX Runtime's: products ──────────────────────────────────────────────────────────────────────────────────────


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    t: Tracer, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """MatMulInteger · a_scale · b_scale + bias."""
    codes = product_of_codes(t, a, a_zero_point, b, b_zero_point)
    left = _row_wise(t, a_scale)
    assert left is not None
    y = t.map(cast(X, F32) * (cast(Y, F32) * cast(Z, F32)), codes, left, b_scale)
    return t.cast(y if bias is None else t.map(X + cast(Y, F32), y, bias), a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    t: Tracer, a: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """MatMulIntegerToFloat of a quantised on the fly."""
    codes, scale, zero = dynamic_quantize_linear(t, a)
    return matmul_integer_to_float(t, codes, b, scale, b_scale, zero, b_zero_point, bias)


@op("QGemm", domain=MICROSOFT)
def qgemm(
    t: Tracer, a: Tensor, a_scale: Tensor, a_zero_point: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor,
    c: Tensor | None = None, y_scale: Tensor | None = None, y_zero_point: Tensor | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha · a_scale · b_scale · (a'·b' + c), requantised if y_scale is given. Shapes: (M, K) × (K, N) -> (M, N)."""
    left = centred(t, a, _single(t, a_zero_point))
    b_zero = b_zero_point
    if b_zero is not None and b_zero.rank == 1 and transB and b_zero.shape[0] != 1:
        b_zero = t.reshape(b_zero, (b_zero.shape[0], 1))
    right = centred(t, b, b_zero)
    codes = matmul(t, t.transpose(left, [1, 0]) if transA else left, t.transpose(right, [1, 0]) if transB else right)
    codes = codes if c is None else t.map(X + Y, codes, c)
    factor = t.map(X * Y * alpha, _single(t, a_scale), b_scale)
    if y_scale is None:
        return t.map(cast(X, F32) * Y, codes, factor)
    zero = t.scalar(0, a.dtype) if y_zero_point is None else y_zero_point
    return requantised(t, codes, t.map(X / Y, factor, y_scale), zero)


# ── ONNX Runtime's: between dequantise and quantise ───────────────────────────────────────────────────────────────


def _real(t: Tracer, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return dequantize_linear(t, x, _single(t, scale), None if zero is None else _single(t, zero))


def _codes(t: Tracer, x: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    if zero is None:
        zero = t.scalar(0, like.dtype)
    return t.map(saturated(X / Y, cast(Z, F32), zero.dtype), x, _single(t, scale), _single(t, zero))


def _binary(name: str, template: Expr) -> None:
    @op(name, domain=MICROSOFT)
    def lower(
        t: Tracer, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor,
        b_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        real = t.map(template, _real(t, a, a_scale, a_zero), _real(t, b, b_scale, b_zero))
        return _codes(t, real, y_scale, y_zero, a)


_binary("QLinearAdd", X + Y)
_binary("QLinearMul", X * Y)


@op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    """Sigmoid of codes."""
    return _codes(t, t.map(sigmoid(X), _real(t, x, x_scale, x_zero)), y_scale, y_zero, x)


@op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None, *,
    alpha: float = 0.01,
) -> Tensor:  # fmt: skip
    """LeakyRelu of codes."""
    real = t.map(select(X < 0.0, X * alpha, X), _real(t, x, x_scale, x_zero))
    return _codes(t, real, y_scale, y_zero, x)


def _pooled(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None,
    channels_last: int, pool: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    real = _real(t, x, x_scale, x_zero)
    real = pool(_channels_first(t, real) if channels_last else real)
    return _codes(t, _channels_last(t, real) if channels_last else real, y_scale, y_zero, x)


@op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None, *,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0, count_include_pad: int = 0,
    kernel_shape: Sequence[int], pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """AveragePool of codes."""

    def pool(v: Tensor) -> Tensor:
        return average_pool(
            t, v, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
            kernel_shape=kernel_shape, pads=pads, strides=strides,
        )  # fmt: skip

    return _pooled(t, x, x_scale, x_zero, y_scale, y_zero, channels_last, pool)


@op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, y_zero: Tensor, *, channels_last: int = 0
) -> Tensor:
    """GlobalAveragePool of codes."""
    return _pooled(t, x, x_scale, x_zero, y_scale, y_zero, channels_last, lambda v: global_average_pool(t, v))


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(t: Tracer, y_scale: Tensor, y_zero: Tensor, *xs: Tensor, axis: int) -> Tensor:
    """Join tensors of codes, each given as (codes, scale, zero point), requantised to one scale."""
    if len(xs) % 3:
        raise t.shape_error("inputs come as codes, scale and zero point")
    parts = [_codes(t, _real(t, *xs[n : n + 3]), y_scale, y_zero, xs[n]) for n in range(0, len(xs), 3)]
    return t.concat(parts, axis)


__all__ = ["product_of_codes", "requantised"]
