"""Normalisations. Statistics are in float32 (float64 for float64 input); the variance is Σ (x - mean)² / n.

Letters: N batch, C channels, S spatial extents, G groups."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BY_CODE, I32, DType
from pyruntime.ir.expr import Expr, X, Y, Z, cast, const, dim, guard, power, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import float_type

CENTRE = GradientRule[Tensor, Tensor, Tensor, Sequence[int]]()

PER_CHANNEL = "scale, bias and statistics must have one number per channel"


def mean_of(t: Tracer, x: Tensor, axes: Sequence[int], of: Expr = X) -> Tensor:
    """Σ of(x) / n over axes, which remain with extent 1."""
    count = sh.size([x.shape[t.axis(a, x.rank)] for a in axes])
    return t.map(X / cast(dim(count), x.dtype), t.reduce("sum", x, axes, of=of))


def centre(t: Tracer, x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) · inverse, mean, inverse = 1 / sqrt(variance + epsilon), in `float_type`."""
    x = t.cast(x, float_type(x.dtype))
    mean = mean_of(t, x, axes)
    distance = t.map(X - Y, x, mean)
    inverse = t.map(1.0 / sqrt(X + epsilon), mean_of(t, distance, axes, X * X))
    y = t.map(X * Y, distance, inverse)
    return t.own_gradient(y, CENTRE, y, x, inverse, axes), mean, inverse


def scale_and_shift(t: Tracer, x: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: DType) -> Tensor:
    """x · scale + bias, computed in x's type, as `dtype`."""
    if scale is not None:
        x = t.map_onto(X * cast(Y, x.dtype), x, scale)
    if bias is not None:
        x = t.map_onto(X + cast(Y, x.dtype), x, bias)
    return t.cast(x, dtype)


def along_channels(t: Tracer, v: Tensor, x: Tensor) -> Tensor:
    """A vector with one number per channel, reshaped to broadcast along axis 1 of x. A 1-D x has one channel."""
    channels = x.shape[1] if x.rank > 1 else 1
    t.require_equal(sh.size(v.shape), channels, PER_CHANNEL)
    return t.reshape(v, [channels, *[1] * (x.rank - 2)] if x.rank >= 2 else ())


# ── batch ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def batch_norm(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, epsilon: float, spatial: bool = True
) -> Tensor:
    """x · a + (b - mean · a) with a = scale / sqrt(var + epsilon), per channel, or per feature if not spatial."""
    dtype = float_type(x.dtype)
    channels = x.shape[1:] if not spatial else x.shape[1:2] or (1,)
    for v in (scale, b, mean, var):
        if v.rank != len(channels):
            raise t.shape_error(f"an input has rank {v.rank}, must have {len(channels)}")
        for have, want in zip(v.shape, channels, strict=True):
            t.require_equal(have, want, PER_CHANNEL)
    scale, b, mean, var = (t.cast(v, dtype) for v in (scale, b, mean, var))
    factor = t.map(X / sqrt(Y + epsilon), scale, var)
    offset = t.map(X - Y * Z, b, mean, factor)

    def body(*i: Expr) -> Expr:
        place = i[1:] if not spatial else i[1:2] if x.rank > 1 else (const(0, I32),)
        return cast(cast(x.at(*i), dtype) * factor.at(*place) + offset.at(*place), x.dtype)

    return t.compute(x.shape, body)


def batch_statistics(t: Tracer, x: Tensor, spatial: bool = True) -> tuple[Tensor, Tensor]:
    """Mean and variance over all axes except the channels; if not spatial, over the batch only."""
    if x.rank < 2:
        raise t.shape_error(f"input has rank {x.rank}; training needs a batch and channels")
    axes = [n for n in range(x.rank) if n != 1] if spatial else [0]
    x = t.cast(x, float_type(x.dtype))
    mean = mean_of(t, x, axes)
    var = mean_of(t, t.map(X - Y, x, mean), axes, X * X)
    shape = [x.shape[1]] if spatial else list(x.shape[1:])
    return t.reshape(mean, shape), t.reshape(var, shape)


@op("BatchNormalization", since=14)
def batch_normalization(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(x - mean) / sqrt(var + epsilon) · scale + b. In training mode the statistics are the batch's own, and the new
    running statistics are additional outputs. Shapes: x (N, C, *S), others (C,) -> (N, C, *S), (C,), (C,).
    Spec: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html"""
    if not training_mode:
        return (batch_norm(t, x, scale, b, mean, var, epsilon),)
    for name, v in (("mean", mean), ("var", var)):
        t.require_shape(name, v, x.shape[1:2])
    own_mean, own_var = batch_statistics(t, x)
    y = batch_norm(t, x, scale, b, own_mean, own_var, epsilon)
    return y, _running(t, mean, own_mean, momentum), _running(t, var, own_var, momentum)


def _running(t: Tracer, old: Tensor, new: Tensor, momentum: float) -> Tensor:
    mixed = t.map(cast(X, new.dtype) * momentum + Y * (1.0 - momentum), old, new)
    return t.cast(mixed, old.dtype)


@op("BatchNormalization", since=7)
def batch_normalization_7(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, spatial: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Opset 7 to 13. Trains if other outputs than y are used: running mean and variance, then the batch's."""
    if not any(t.wanted[1:]):
        return (batch_norm(t, x, scale, b, mean, var, epsilon, bool(spatial)),)
    own = batch_statistics(t, x, bool(spatial))
    y = batch_norm(t, x, scale, b, *own, epsilon, bool(spatial))
    running = [_running(t, old, new, momentum) for old, new in zip((mean, var), own, strict=True)]
    return y, *running, *[t.cast(v, mean.dtype) for v in own]


@op("BatchNormalization", since=1)
def batch_normalization_1(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *,
    consumed_inputs: Sequence[int] | None = None, epsilon: float = 1e-5, is_test: int = 0, momentum: float = 0.9,
    spatial: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Opset 1 and 6: is_test means inference. A node without is_test whose only used output is y is inference too, as
    in later opsets."""
    if is_test:
        return (batch_norm(t, x, scale, b, mean, var, epsilon, bool(spatial)),)
    return batch_normalization_7(t, x, scale, b, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial)


# ── instance, group, layer ────────────────────────────────────────────────────────────────────────────────────────


@op("InstanceNormalization", since=1)
def instance_normalization(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor, *, consumed_inputs: Sequence[int] | None = None,
    epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    """scale · (x - mean) / sqrt(variance + epsilon) + b with statistics per instance and channel.
    Shapes: x (N, C, *S), scale and b (C,). Spec: https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html"""
    y = centre(t, x, range(2, x.rank), epsilon)[0]
    return scale_and_shift(t, y, along_channels(t, scale, x), along_channels(t, b, x), x.dtype)


def _grouped(t: Tracer, x: Tensor, groups: int, epsilon: float) -> Tensor:
    """x normalised per instance and group, with shape (N, G, C/G·ΠS)."""
    t.require(sh.compare("eq", x.shape[1] % groups, 0), f"{x.shape[1]} channels are not divisible by {groups} groups")
    rest = sh.floordiv(x.shape[1], groups) * sh.size(x.shape[2:])
    return centre(t, t.reshape(x, (x.shape[0], groups, rest)), [2], epsilon)[0]


@op("GroupNormalization", since=21)
def group_normalization(
    t: Tracer, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Tensor:
    """InstanceNormalization with statistics over groups of channels. Shapes: x (N, C, *S), scale and bias (C,).
    Spec: https://onnx.ai/onnx/operators/onnx__GroupNormalization.html"""
    y = t.reshape(_grouped(t, x, num_groups, epsilon), x.shape)
    return scale_and_shift(t, y, along_channels(t, scale, x), along_channels(t, bias, x), x.dtype)


@op("GroupNormalization", since=18)
def group_normalization_18(
    t: Tracer, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    """Opset 18 to 20: scale and bias have one number per group (G,)."""
    y = _grouped(t, x, num_groups, epsilon)
    return t.reshape(scale_and_shift(t, y, along_channels(t, scale, y), along_channels(t, bias, y), x.dtype), x.shape)


def stash_dtype(t: Tracer, stash_type: int) -> DType:
    """The type of the statistics among the outputs."""
    dtype = BY_CODE.get(stash_type)
    if dtype is None or not dtype.is_float or dtype.bits < 16:
        raise t.unsupported(f"stash_type {stash_type} is not a float type")
    return dtype


@op("LayerNormalization", since=1)
def layer_normalization(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) · scale + b with statistics over the axes from `axis` on; also outputs the
    mean and 1 / sqrt(variance + epsilon). Registered for every opset, as in ONNX Runtime.
    Shapes: x (*A, *B), scale and b broadcast to x -> x's, (*A, 1, …), (*A, 1, …).
    Spec: https://onnx.ai/onnx/operators/onnx__LayerNormalization.html"""
    kind = stash_dtype(t, stash_type)
    y, mean, inverse = centre(t, x, range(t.axis(axis, x.rank), x.rank), epsilon)
    return scale_and_shift(t, y, scale, b, x.dtype), t.cast(mean, kind), t.cast(inverse, kind)


def root_mean_square(t: Tracer, x: Tensor, axis: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """x / rms and 1 / rms with rms = sqrt(mean(x²) + epsilon) over the axes from `axis` on, in `float_type`."""
    x = t.cast(x, float_type(x.dtype))
    inverse = t.map(1.0 / sqrt(X + epsilon), mean_of(t, x, range(t.axis(axis, x.rank), x.rank), X * X))
    return t.map(X * Y, x, inverse), inverse


@op("RMSNormalization", since=23)
def rms_normalization(
    t: Tracer, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """x / sqrt(mean(x²) + epsilon) · scale over the axes from `axis` on.
    Spec: https://onnx.ai/onnx/operators/onnx__RMSNormalization.html"""
    stash_dtype(t, stash_type)
    return scale_and_shift(t, root_mean_square(t, x, axis, epsilon)[0], scale, None, x.dtype)


# ── across channels, over given axes ──────────────────────────────────────────────────────────────────────────────


@op("LRN", since=1)
def lrn(t: Tracer, x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """x / (bias + alpha/size · Σ x²)^beta, where the sum is over a window of `size` channels.
    Spec: https://onnx.ai/onnx/operators/onnx__LRN.html"""
    others = sh.maximum(x.shape[1] - 1, 0)
    before, after = (sh.minimum(n, others) for n in ((size - 1) // 2, size // 2))
    dtype = float_type(x.dtype)

    def body(n: Expr, c: Expr, *i: Expr) -> Expr:
        place = c + i[-1] - dim(before)
        value = cast(x.at(n, place, *i[:-1]), dtype)
        return guard((place >= 0) & (place < dim(x.shape[1])), value * value, 0)

    total = t.reduce_compute("sum", x.shape, (before + after + 1,), body)
    y = t.map(cast(X, dtype) / power(Y * (alpha / size) + bias, beta), x, total)
    return t.cast(y, x.dtype)


@op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(t: Tracer, x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """(x - mean) / (sqrt(variance) + 1e-9) over axes.
    Spec: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html"""
    full = t.cast(x, float_type(x.dtype))
    distance = t.map(X - Y, full, mean_of(t, full, axes))
    return t.cast(t.map(X / (sqrt(Y) + 1e-9), distance, mean_of(t, distance, axes, X * X)), x.dtype)
