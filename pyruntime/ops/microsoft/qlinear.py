"""Operators on quantised tensors: dequantise, compute in float32, quantise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y, Z, cast, select, sigmoid
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.norm import embed_layer_normalization
from pyruntime.ops.standard.lstm import lstm_of
from pyruntime.ops.standard.norm import mean_of
from pyruntime.ops.standard.pool import average_pool, global_average_pool
from pyruntime.ops.standard.qlinear import scalar_of, to_channels_first, to_channels_last
from pyruntime.ops.standard.quant import (
    dequantize_linear,
    dynamic_quantize_linear,
    map_to_codes,
    quantize_linear,
    subtract_zero,
)
from pyruntime.ops.standard.recurrent import LSTM, layer_of
from pyruntime.ops.standard.reduce import softmax_of


def _dequantised(t: Tracer, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return dequantize_linear(t, x, scalar_of(t, scale), None if zero is None else scalar_of(t, zero))


def _quantised(t: Tracer, x: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    """Codes of x; a missing zero point is 0 of like's type."""
    if zero is None:
        zero = t.scalar(0, like.dtype)
    return map_to_codes(t, X / Y, cast(Z, F32), zero.dtype, x, scalar_of(t, scale), scalar_of(t, zero))


def _rounded(t: Tracer, value: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    """Codes of values that are already divided by the result's scale."""
    zero = t.scalar(0, like.dtype) if zero is None else scalar_of(t, zero)
    return map_to_codes(t, X, cast(Y, F32), zero.dtype, value, zero)


@op("QuantizeLinear", domain=MICROSOFT)
def quantize_linear_in_float32(
    t: Tracer, x: Tensor, y_scale: Tensor, y_zero_point: Tensor | None = None, *, axis: int = 1
) -> Tensor:
    """Divides in float32. The standard operator divides half floats in their own type unless `precision` says
    otherwise."""
    return quantize_linear(t, x, y_scale, y_zero_point, axis=axis, precision=F32.code)


@op("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    t: Tracer, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor, b_zero: Tensor | None,
    y_scale: Tensor, y_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Add of codes. Each term is converted to the result's scale first, as in ONNX Runtime, so that with equal scales a
    tie in rounding remains a tie."""
    out = scalar_of(t, y_scale)
    left, right = [t.map(X / Y, scalar_of(t, s), out) for s in (a_scale, b_scale)]
    return _rounded(t, t.map(X + Y, _dequantised(t, a, left, a_zero), _dequantised(t, b, right, b_zero)), y_zero, a)


@op("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    t: Tracer, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor, b_zero: Tensor | None,
    y_scale: Tensor, y_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Mul of codes: an exact integer product times one factor."""
    factor = t.map(X * Y / Z, *[scalar_of(t, s) for s in (a_scale, b_scale, y_scale)])
    left, right = [subtract_zero(t, v, scalar_of(t, z) if z else None) for v, z in ((a, a_zero), (b, b_zero))]
    product = t.map(cast(X * Y, F32), left, right)
    return _rounded(t, t.map(X * Y, product, factor), y_zero, a)


@op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    """Sigmoid of codes."""
    return _quantised(t, t.map(sigmoid(X), _dequantised(t, x, x_scale, x_zero)), y_scale, y_zero, x)


@op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None, *,
    alpha: float = 0.01,
) -> Tensor:  # fmt: skip
    """LeakyRelu of codes."""
    real = t.map(select(X < 0.0, X * alpha, X), _dequantised(t, x, x_scale, x_zero))
    return _quantised(t, real, y_scale, y_zero, x)


def _pooled(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None,
    channels_last: int, pool: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    real = _dequantised(t, x, x_scale, x_zero)
    real = pool(to_channels_first(t, real) if channels_last else real)
    return _quantised(t, to_channels_last(t, real) if channels_last else real, y_scale, y_zero, x)


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
    """Concat of tensors of codes, each given as (codes, scale, zero point), requantised to one scale."""
    if len(xs) % 3:
        raise t.shape_error("inputs after the first two must be triples of codes, scale and zero point")
    parts = [_quantised(t, _dequantised(t, *xs[n : n + 3]), y_scale, y_zero, xs[n]) for n in range(0, len(xs), 3)]
    return t.concat(parts, axis)


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    t: Tracer, condition: Tensor, x: Tensor, x_scale: Tensor, x_zero: Tensor, y: Tensor, y_scale: Tensor,
    y_zero: Tensor, z_scale: Tensor, z_zero: Tensor,
) -> Tensor:  # fmt: skip
    """Where of codes."""
    real = t.map(select(X, Y, Z), condition, _dequantised(t, x, x_scale, x_zero), _dequantised(t, y, y_scale, y_zero))
    return _quantised(t, real, z_scale, z_zero, x)


@op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor, *, axis: int = -1,
    opset: int,
) -> Tensor:  # fmt: skip
    """Softmax of codes over `axis` or, before opset 13, over all axes from `axis` on."""
    start = t.axis(axis, x.rank)
    if not 0 < opset < 1 << 31:
        raise t.unsupported(f"opset {opset} does not exist")
    axes = [start] if opset >= 13 else list(range(start, x.rank))
    return _quantised(t, softmax_of(t, _dequantised(t, x, x_scale, x_zero), axes), y_scale, y_zero, x)


@op("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(
    t: Tracer, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None, *,
    axes: Sequence[int] | None = None, keepdims: int = 1,
) -> Tensor:  # fmt: skip
    """ReduceMean of codes, over all axes by default."""
    real = _dequantised(t, x, x_scale, x_zero)
    where = range(x.rank) if axes is None else t.axes(axes, x.rank)
    mean = mean_of(t, real, where)
    return _quantised(t, mean if keepdims == 1 else t.squeeze(mean, list(where)), y_scale, y_zero, x)


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
@attributes_of(layer_of)
def dynamic_quantize_lstm(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lens: Tensor | None, h0: Tensor | None,
    c0: Tensor | None, peepholes: Tensor | None, w_scale: Tensor, w_zero_point: Tensor, r_scale: Tensor,
    r_zero_point: Tensor, *, input_forget: int = 0, **cell: Any,
) -> list[Tensor | None]:  # fmt: skip
    """LSTM with 8-bit weights, which are dequantised once. x and h are rounded to 8 bits, with one range for x and one
    for each row of h. ONNX Runtime uses one range for all rows of h that the same thread computes: for a batch of 1
    results agree, for others its results depend on its number of threads.

    Shapes: w (D, I, 4H), r (D, H, 4H), scales and zero points (D,) or (D, 4H); others as LSTM's"""

    def weight(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        each = [t.reshape(v, (v.shape[0], 1, v.shape[1] if v.rank == 2 else 1)) for v in (scale, zero)]
        return t.transpose(t.map((cast(X, F32) - cast(Z, F32)) * Y, codes, *each), [0, 2, 1])

    codes, step, zero = dynamic_quantize_linear(t, x)
    near = t.map((cast(X, F32) - cast(Z, F32)) * Y, codes, step, zero)
    weights = weight(w, w_scale, w_zero_point), weight(r, r_scale, r_zero_point)
    layer, sets = layer_of(t, 4, (near, *weights), LSTM, **cell)
    return lstm_of(layer, sets, b, lens, (h0, c0), peepholes, input_forget, rounded=True)


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_normalization(
    t: Tracer, input_ids: Tensor, segment_ids: Tensor | None, word: Tensor, position: Tensor, segment: Tensor | None,
    gamma: Tensor, beta: Tensor, mask: Tensor | None, word_scale: Tensor, position_scale: Tensor,
    segment_scale: Tensor | None, gamma_scale: Tensor, beta_scale: Tensor, word_zero: Tensor, position_zero: Tensor,
    segment_zero: Tensor | None, gamma_zero: Tensor, beta_zero: Tensor, *, epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """EmbedLayerNormalization of 8-bit codes."""
    tables = [
        _dequantised(t, codes, scale, zero)
        for codes, scale, zero in (
            (word, word_scale, word_zero), (position, position_scale, position_zero), (gamma, gamma_scale, gamma_zero),
            (beta, beta_scale, beta_zero),
        )
    ]  # fmt: skip
    of_segment = None
    if segment is not None and segment_scale is not None:
        of_segment = _dequantised(t, segment, segment_scale, segment_zero)
    y, count, _ = embed_layer_normalization(
        t, input_ids, segment_ids, tables[0], tables[1], of_segment, tables[2], tables[3], mask, epsilon=epsilon
    )
    return y, count
