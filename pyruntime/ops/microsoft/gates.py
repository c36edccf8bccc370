"""Fused gates of linear attention and hyper-connections, and their norms. All compute in float32 and return the type of
their input.

Letters: A leading axes, C branches, D features."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y, cast, maximum, select, sigmoid, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import softplus, sum_type
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.attention import default_scale
from pyruntime.ops.standard.matmul import product
from pyruntime.ops.standard.norm import root_mean_square, scale_and_shift


def _branches(t: Tracer, x: Tensor, count: sh.AnyDim) -> Tensor:
    """x as (*A, C, D): x itself if count is 0; else x is (*A, C·D) and is split into C = count branches."""
    return t.reshape(x, (*x.shape[:-1], count, sh.floordiv(x.shape[-1], count))) if count else x


@op("GatedAdd", domain=MICROSOFT)
def gated_add(t: Tracer, x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    """x + y · gate; the product is rounded to the type first. Shapes: x, y (*A, D), gate (*A, 1)"""
    t.require_shape("y", y, x.shape)
    t.require_shape("gate", gate, (*x.shape[:-1], 1))
    return t.map(X + Y, x, t.map(X * Y, y, gate))


@op("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(t: Tracer, x: Tensor, scale: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """z · sigmoid(z) with z = x · scale, each step rounded to the type. `scale` is one number; without it alpha is
    used."""
    factor = t.scalar(alpha, F32) if scale is None else t.cast(t.reshape(scale, ()), F32)
    z = t.cast(t.map(X * Y, t.cast(x, F32), factor), x.dtype)
    return t.map(X * Y, z, t.map(sigmoid(X), z))


@op("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(
    t: Tracer, x: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = 1e-5
) -> Tensor:
    """x / rms · scale · f(gate), with the rms of each group of D features; f is silu (swish) or sigmoid.
    Shapes: x, gate (*A, C·D), scale (D,)"""
    if activation not in ("silu", "swish", "sigmoid"):
        raise t.unsupported(f'activation "{activation}" is not known')
    t.require_shape("gate", gate, x.shape)
    groups = (*x.shape[:-1], sh.floordiv(x.shape[-1], scale.shape[0]), scale.shape[0])
    t.require_equal(groups[-2] * groups[-1], x.shape[-1], "the last axis must be a multiple of the scale's length")
    y = scale_and_shift(t, root_mean_square(t, t.reshape(t.cast(x, F32), groups), -1, epsilon)[0], scale, None, F32)
    factor = sigmoid(Y) if activation == "sigmoid" else Y * sigmoid(Y)
    return t.cast(t.map(X * factor, t.reshape(y, x.shape), t.cast(gate, F32)), x.dtype)


@op("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(
    t: Tracer, x: Tensor, scale: Tensor | None = None, *, epsilon: float = 1e-5, num_branches: int = 0
) -> Tensor:
    """x / rms · scale of each branch. Shapes: x (*A, C, D) or (*A, C·D), scale (C·D,), (C, D) or (D,)"""
    grouped = t.cast(_branches(t, x, num_branches), F32)
    if scale is not None and scale.rank == 1 and scale.shape[0] != grouped.shape[-1]:
        scale = _branches(t, scale, grouped.shape[-2])
    if scale is not None:
        t.require_shape("scale", scale, grouped.shape[-scale.rank :])
    y = scale_and_shift(t, root_mean_square(t, grouped, -1, epsilon)[0], scale, None, x.dtype)
    return t.reshape(y, x.shape)


@op("LinearAttentionGate", domain=MICROSOFT)
def linear_attention_gate(
    t: Tracer, a: Tensor, dt_bias: Tensor, decay_scale: Tensor, b: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """decay_scale · ln(1 + exp(a + dt_bias)), and sigmoid(b). Shapes: a, b (B, T, H), others (H,)"""
    t.require_shape("dt_bias", dt_bias, a.shape[2:])
    t.require_shape("decay_scale", decay_scale, a.shape[2:])
    t.require_shape("b", b, a.shape)
    wide = sum_type(a.dtype)
    z = t.map(X + Y, t.cast(a, wide), dt_bias)
    decay = t.cast(t.map(softplus(X) * Y, z, decay_scale), a.dtype)
    return decay, None if b is None else t.cast(t.map(sigmoid(X), t.cast(b, wide)), b.dtype)


@op("HyperConnectionPreMix", domain=MICROSOFT)
def hyper_connection_pre_mix(
    t: Tracer, streams: Tensor, pre_mix: Tensor, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> Tensor:
    """reduction_scale · Σ over branches of streams · pre_mix.
    Shapes: streams (*A, C, D) or (*A, C·D), pre_mix (*A, C), (*A, C, 1), (*A, C, D) or (*A, C·D) -> (*A, D)"""
    x = _branches(t, streams, num_branches)
    mix = _mix(t, pre_mix, x)
    total = t.reduce("sum", t.map(cast(X, F32) * cast(Y, F32), x, mix), [-2], keepdims=False)
    return t.cast(t.map(X * reduction_scale, total), streams.dtype)


def _mix(t: Tracer, mix: Tensor, x: Tensor) -> Tensor:
    """The factors of branches as (*A, C, 1) or (*A, C, D)."""
    if mix.rank != x.rank:
        mix = t.unsqueeze(mix, [-1]) if mix.shape[-1] == x.shape[-2] else _branches(t, mix, x.shape[-2])
    t.require_shape("the factors of branches", mix, (*x.shape[:-1], mix.shape[-1]))
    one_or_all = sh.maximum(*(sh.compare("eq", mix.shape[-1], d) for d in (1, x.shape[-1])))
    t.require(one_or_all, f"branches have 1 or {x.shape[-1]} factors, not {mix.shape[-1]}")
    return mix


@op("HyperConnectionPostMix", domain=MICROSOFT)
def hyper_connection_post_mix(
    t: Tracer, streams: Tensor, block_output: Tensor, post_mix: Tensor, stream_mix: Tensor | None = None, *,
    num_branches: int = 0,
) -> Tensor:  # fmt: skip
    """y[k] = Σc stream_mix[c, k] · streams[c] + post_mix[k] · block_output; without stream_mix the sum is streams[k].
    Shapes: streams (*A, C, D) or (*A, C·D), block_output (*A, D), post_mix as pre_mix, stream_mix (*A, C, C)"""
    x = t.cast(_branches(t, streams, num_branches), F32)
    t.require_shape("block_output", block_output, (*x.shape[:-2], x.shape[-1]))
    if stream_mix is not None:
        t.require_shape("stream_mix", stream_mix, (*x.shape[:-1], x.shape[-2]))
        swap = [*range(stream_mix.rank - 2), stream_mix.rank - 1, stream_mix.rank - 2]
        x = product(t, t.transpose(t.cast(stream_mix, F32), swap), x)
    mix = t.cast(_mix(t, post_mix, x), F32)
    added = t.map(X * Y, mix, t.unsqueeze(t.cast(block_output, F32), [-2]))
    return t.reshape(t.cast(t.map(X + Y, x, added), streams.dtype), streams.shape)


@op("EngramGate", domain=MICROSOFT)
def engram_gate(
    t: Tracer, key: Tensor, query: Tensor, value: Tensor, key_norm_scale: Tensor, query_norm_scale: Tensor,
    conv_norm_scale: Tensor | None = None, *, epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """gate · value with gate = sigmoid(sign(s) · √max(|s|, 1e-6)) and s = norm(key) · norm(query) / √D; and the norm of
    the result.
    Shapes: key, query (B, S, C, D), value (B, S, D), scales (C, D) -> (B, S, C, D) twice"""
    t.require_shape("query", query, key.shape)
    t.require_shape("value", value, (*key.shape[:2], key.shape[3]))
    for name, scale in (("key", key_norm_scale), ("query", query_norm_scale), ("conv", conv_norm_scale)):
        t.require_shape(f"{name}_norm_scale", scale, key.shape[2:])
    k, q = (
        scale_and_shift(t, root_mean_square(t, t.cast(x, F32), -1, epsilon)[0], s, None, F32)
        for x, s in ((key, key_norm_scale), (query, query_norm_scale))
    )
    score = t.map(X * default_scale(key.shape[-1], F32), t.reduce("sum", t.map(X * Y, k, q), [-1]))
    root = sqrt(maximum(maximum(X, -X), 1e-6))
    gate = t.map(sigmoid(select(X > 0.0, root, select(X < 0.0, -root, X))), score)
    gated = t.map(X * Y, gate, t.unsqueeze(t.cast(value, F32), [-2]))
    normed = None
    if conv_norm_scale is not None:
        normed = scale_and_shift(t, root_mean_square(t, gated, -1, epsilon)[0], conv_norm_scale, None, key.dtype)
    return t.cast(gated, key.dtype), normed
