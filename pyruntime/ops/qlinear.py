"""Contractions of quantised tensors. They are the routines "matmul" and "conv" on int32 operands with
the zero points taken off."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y, Z, cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.conv import convolve_integers
from pyruntime.ops.matmul import matmul
from pyruntime.ops.quant import centred, dynamic_quantize_linear, require_pair, saturated

MICROSOFT = "com.microsoft"


def _row_wise(t: Tracer, v: Tensor, of: Tensor) -> Tensor:
    """A parameter of the left operand: a vector has one entry a row. A vector alone is one row."""
    if v.rank != 1:
        return v
    return t.reshape(v, () if of.rank == 1 or v.shape[0] == 1 else (v.shape[0], 1))


def product_of_codes(t: Tracer, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """Σ (a - a_zero)(b - b_zero) in int32; zero points are scalars, vectors (per row of a, per column of b) or full."""
    zero = None if a_zero is None else _row_wise(t, a_zero, a)
    return matmul(t, centred(t, a, zero), centred(t, b, b_zero))


def requantised(t: Tracer, codes: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    """codes · factor as the zero point's type."""
    if not zero.dtype.is_int:
        raise t.unsupported(f"codes of {zero.dtype} are not implemented, only integers")
    y = t.map(saturated(cast(X, F32) * Y, cast(Z, F32), zero.dtype), codes, factor, zero)
    t.require_shape("a scale or zero point does not fit: the result", y, codes.shape)
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
    left, out, zero = (_row_wise(t, v, a) for v in (a_scale, y_scale, y_zero_point))
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
        t, channels_first(t, x) if channels_last else x, x_zero_point, w, w_zero_point, group=group,
        kernel_shape=kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations,
    )  # fmt: skip
    if b is not None:
        t.require_shape("B", b, (w.shape[0],))
        codes = t.map(X + Y, codes, along_filters(t, b, codes))
    factor = t.map(X * Y / Z, scalar_of(t, x_scale), along_filters(t, w_scale, codes), scalar_of(t, y_scale))
    y = requantised(t, codes, factor, scalar_of(t, y_zero_point))
    return channels_last_of(t, y) if channels_last else y


def scalar_of(t: Tracer, v: Tensor) -> Tensor:
    return t.reshape(v, ())


def along_filters(t: Tracer, v: Tensor, codes: Tensor) -> Tensor:
    if v.shape in ((), (1,)):
        return scalar_of(t, v)
    return t.reshape(v, [codes.shape[1], *[1] * (codes.rank - 2)])


def channels_first(t: Tracer, x: Tensor) -> Tensor:
    return t.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def channels_last_of(t: Tracer, x: Tensor) -> Tensor:
    return t.transpose(x, [0, *range(2, x.rank), 1])


# ── ONNX Runtime's: products ──────────────────────────────────────────────────────────────────────────────────────


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    t: Tracer, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """MatMulInteger · a_scale · b_scale + bias."""
    codes = product_of_codes(t, a, a_zero_point, b, b_zero_point)
    factor = cast(X, F32) * (cast(Y, F32) * cast(Z, F32))
    y = t.map_onto(factor, codes, _row_wise(t, a_scale, a), b_scale)
    t.require_shape("the bias", bias, b.shape[-1:])
    return t.cast(y if bias is None else t.map_onto(X + cast(Y, F32), y, bias), a_scale.dtype)


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
    """alpha · a_scale · b_scale · (a'·b' + c) / y_scale, quantised if y_zero_point is given: so does ONNX Runtime.
    Shapes: (M, K) × (K, N) -> (M, N)."""
    require_pair(t, b_scale, b_zero_point)
    left = centred(t, a, scalar_of(t, a_zero_point))
    b_zero = b_zero_point
    if b_zero is not None and b_zero.rank == 1 and transB and b_zero.shape[0] != 1:
        b_zero = t.reshape(b_zero, (b_zero.shape[0], 1))
    right = centred(t, b, b_zero)
    codes = matmul(t, t.transpose(left, [1, 0]) if transA else left, t.transpose(right, [1, 0]) if transB else right)
    codes = codes if c is None else t.map_onto(X + Y, codes, c)
    factor = t.map(X * Y * alpha, scalar_of(t, a_scale), b_scale)
    factor = factor if y_scale is None else t.map(X / Y, factor, y_scale)
    if y_zero_point is None:
        return t.map(cast(X, F32) * Y, codes, factor)
    return requantised(t, codes, factor, y_zero_point)


__all__ = ["along_filters", "product_of_codes", "requantised", "scalar_of"]
