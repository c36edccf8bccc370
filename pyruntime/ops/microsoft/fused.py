"""Fused operators that ONNX Runtime's optimiser writes, and channels-last (N, *S, C) forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import BOOL, F32, I32
from pyruntime.ir.expr import Expr, X, Y, Z, cast, clip, const, log, maximum, minimum, select, sigmoid, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import float_type, formula, mapped
from pyruntime.ops.lib.window import sliding
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.activation import gelu, gelu_tanh, swish
from pyruntime.ops.standard.conv import causal_conv, conv
from pyruntime.ops.standard.linear_attention import linear_attention
from pyruntime.ops.standard.matmul import constant_of, gemm, matmul
from pyruntime.ops.standard.norm import group_normalization
from pyruntime.ops.standard.pool import max_pool
from pyruntime.ops.standard.qlinear import to_channels_first, to_channels_last
from pyruntime.ops.standard.reduce import softmax_of


def activation_of(t: Tracer, name: str, p: Sequence[float]) -> Expr:
    """The expression of an activation by name; p are its parameters."""
    forms = {
        "": lambda: X,
        "Relu": lambda: maximum(X, 0.0),
        "Tanh": lambda: tanh(X),
        "Sigmoid": lambda: sigmoid(X),
        "LeakyRelu": lambda: select(X < 0.0, X * (p[0] if p else 0.01), X),
        "Clip": lambda: clip(X, p[0], p[1]),
        "HardSigmoid": lambda: clip(X * p[0] + p[1], 0.0, 1.0),
    }
    if name not in forms:
        raise t.unsupported(f'activation "{name}" is not known')
    needed = {"Clip": 2, "HardSigmoid": 2}.get(name, 0)
    if len(p) < needed:
        raise t.shape_error(f'activation "{name}" has {len(p)} parameters, needs {needed}')
    return forms[name]()


def _activated(t: Tracer, y: Tensor, name: str, p: Sequence[float]) -> Tensor:
    return t.map(activation_of(t, name, p), y) if name else y


@op("FusedConv", domain=MICROSOFT)
@attributes_of(conv)
def fused_conv(
    t: Tracer, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None, *, activation: str = "",
    activation_params: Sequence[float] = (), **of_conv: Any,
) -> Tensor:  # fmt: skip
    """activation(Conv(x, w, b) + z)."""
    y = conv(t, x, w, b, **of_conv)
    t.require_shape("z", z, y.shape)
    return _activated(t, y if z is None else t.map(X + Y, y, z), activation, activation_params)


@op("NhwcConv", domain=MICROSOFT)
@op("NhwcFusedConv", domain=MICROSOFT)
@attributes_of(fused_conv)
def nhwc_conv(
    t: Tracer, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None, **of_fused_conv: Any
) -> Tensor:
    """FusedConv with channels last; the weight is (M, C/group, *K) as in Conv."""
    first, added = to_channels_first(t, x), None if z is None else to_channels_first(t, z)
    return to_channels_last(t, fused_conv(t, first, w, b, added, **of_fused_conv))


@op("NhwcMaxPool", domain=MICROSOFT)
@attributes_of(sliding)
def nhwc_max_pool(t: Tracer, x: Tensor, *, kernel_shape: Sequence[int], **window: Any) -> Tensor:
    """MaxPool with channels last."""
    y, _ = max_pool(t, to_channels_first(t, x), kernel_shape=kernel_shape, **window)
    return to_channels_last(t, y)


@op("FusedGemm", domain=MICROSOFT)
@attributes_of(gemm)
def fused_gemm(
    t: Tracer, a: Tensor, b: Tensor, c: Tensor | None = None, *, activation: str = "", activation_alpha: float = 0.01,
    activation_beta: float = 0.0, activation_gamma: float = 0.0, **of_gemm: Any,
) -> Tensor:  # fmt: skip
    """activation(Gemm(a, b, c))."""
    y = gemm(t, a, b, c, **of_gemm)
    return _activated(t, y, activation, (activation_alpha, activation_beta))


@op("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    t: Tracer, a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha · a' · b'. trans swaps the last two axes; transBatch moves axis 0 after the other batch axes."""
    a, b = _arranged(t, a, transA, transBatchA), _arranged(t, b, transB, transBatchB)
    y = matmul(t, a, b)
    return y if alpha == 1.0 else t.map(X * constant_of(alpha, y.dtype), y)


def _arranged(t: Tracer, x: Tensor, trans: int, batch: int) -> Tensor:
    if x.rank < 2:
        return x
    order = list(range(x.rank))
    if batch and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if trans:
        order[-2:] = [order[-1], order[-2]]
    return t.transpose(x, order)


# ── biases and activations ────────────────────────────────────────────────────────────────────────────────────────

formula("Gelu", domain=MICROSOFT)(gelu)


@formula("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Expr, *, alpha: float = 1.702) -> Expr:
    return swish(x, alpha=alpha)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(t: Tracer, x: Tensor, bias: Tensor | None = None) -> Tensor:
    t.require_shape("bias", bias, x.shape[-1:])
    return mapped(t, gelu_tanh, x if bias is None else t.map(X + Y, x, bias))


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(t: Tracer, x: Tensor, bias: Tensor) -> Tensor:
    t.require_shape("bias", bias, x.shape[-1:])
    return mapped(t, gelu, t.map(X + Y, x, bias))


@op("BiasAdd", domain=MICROSOFT)
def bias_add(t: Tracer, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """x + bias + skip."""
    return t.map_onto(X + Y + Z, x, bias, skip)


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(t: Tracer, x: Tensor, bias: Tensor) -> Tensor:
    """left · gelu(right) of the two halves of x + bias. Shapes: x (*A, 2·D), bias (2·D,) -> (*A, D)."""
    # In float32: a sum rounded to a half float can make gelu(right) 0, and an infinite left half then gives NaN.
    dtype = float_type(x.dtype)
    total = t.map_onto(cast(X, dtype) + cast(Y, dtype), x, bias)
    half = x.shape[-1] // 2
    left, right = t.slice(total, -1, 0, half), t.slice(total, -1, half, half)
    return t.cast(t.map(X * gelu(Y), left, right), x.dtype)


@op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(t: Tracer, x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    """Softmax of x + bias over the axes from `axis` on. A bias of lower rank repeats over the axes just before `axis`
    (is_inner_broadcast), else over the first axes."""
    start = t.axis(axis, x.rank)
    if is_inner_broadcast and bias.rank < x.rank:
        missing = x.rank - bias.rank
        bias = t.unsqueeze(bias, list(range(start - missing, start)))
    return softmax_of(t, t.map_onto(X + Y, x, bias), list(range(start, x.rank)))


@op("BiasDropout", domain=MICROSOFT)
def bias_dropout(
    t: Tracer, x: Tensor, bias: Tensor, residual: Tensor | None = None, ratio: Tensor | None = None,
    training_mode: Tensor | None = None, *, seed: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """x + bias + residual, and a mask of ones: inference drops nothing."""
    if training_mode is not None and t.static(training_mode)[0]:
        raise t.unsupported("training_mode is not implemented")
    y = t.map_onto(X + Y, x, bias)
    return y if residual is None else t.map_onto(X + Y, y, residual), t.fill(x.shape, 1, BOOL)


@op("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(
    t: Tracer, table: Tensor, query_length: Tensor, key_length: Tensor, *, is_bidirectional: int = 0, max_distance: int
) -> Tensor:
    """T5's relative position bias: the distance of key and query selects a bucket. Half of the buckets hold one
    distance each; the others grow geometrically up to max_distance. Shapes: table (buckets, heads) -> (1, heads,
    queries, keys). Source: https://arxiv.org/abs/1910.10683"""
    count, heads = table.shape
    if not isinstance(count, int):
        raise t.unsupported("the number of buckets must be known")
    count = count // 2 if is_bidirectional else count
    exact = count // 2
    growth = (count - exact) / math.log(max_distance / exact)

    def body(_: Expr, h: Expr, q: Expr, k: Expr) -> Expr:
        distance = q - k
        first = select(distance < 0, const(count, I32), const(0, I32)) if is_bidirectional else const(0, I32)
        size = maximum(distance, -distance) if is_bidirectional else maximum(distance, 0)
        steps = log(cast(maximum(size, 1), F32) / float(exact)) * growth
        bucket = minimum(cast(steps, I32) + exact, count - 1)
        return table.at(first + select(size < exact, size, bucket), h)

    (queries,), (keys,) = (t.ints(t.reshape(v, (1,)), lower=0) for v in (query_length, key_length))
    return t.compute((1, heads, queries, keys), body)


@op("GroupNorm", domain=MICROSOFT)
def group_norm(
    t: Tracer, x: Tensor, gamma: Tensor, beta: Tensor, *, activation: int, channels_last: int = 1,
    epsilon: float = 1e-5, groups: int,
) -> Tensor:  # fmt: skip
    """GroupNormalization, then SiLU if `activation` is 1. Channels are last by default."""
    y = to_channels_first(t, x) if channels_last else x
    y = group_normalization(t, y, gamma, beta, epsilon=epsilon, num_groups=groups)
    y = t.map(X * sigmoid(X), y) if activation else y
    return to_channels_last(t, y) if channels_last else y


@op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    t: Tracer, x: Tensor, gamma: Tensor, beta: Tensor, skip: Tensor, bias: Tensor | None = None, *, activation: int,
    channels_last: int = 1, epsilon: float = 1e-5, groups: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """GroupNorm of x + skip + bias, and that sum. A skip of shape (N, C) or (N, 1, 1, C) broadcasts."""
    if not channels_last:
        raise t.unsupported("channels_last 0 is not implemented")
    dtype = float_type(x.dtype)
    wide = t.reshape(skip, (skip.shape[0], 1, 1, skip.shape[1])) if skip.rank == 2 else skip
    total = t.map(cast(X, dtype) + cast(Y, dtype), x, wide)
    total = t.cast(total if bias is None else t.map(X + cast(Y, dtype), total, bias), x.dtype)
    y = group_norm(t, total, gamma, beta, activation=activation, epsilon=epsilon, groups=groups)
    return y, total


@op("CausalConvWithState", domain=MICROSOFT)
def causal_conv_microsoft(
    t: Tracer, x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None, *, activation: str = "none",
    channels_last: int = 0, dilation: int = 1, ndim: int = 1, state_window: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ONNX's operator of the same name; the additional attributes must have their defaults."""
    if (channels_last, dilation, ndim, state_window) != (0, 1, 1, 0):
        raise t.unsupported("channels_last, dilation, ndim and state_window are not implemented")
    return causal_conv(t, x, w, b, past, activation=activation)


@op("LinearAttention", domain=MICROSOFT)
@attributes_of(linear_attention)
def linear_attention_microsoft(
    t: Tracer, query: Tensor, key: Tensor, value: Tensor, past_state: Tensor | None = None,
    decay: Tensor | None = None, beta: Tensor | None = None, *, state_window: int = 0, **standard: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ONNX's operator of the same name, without state_window."""
    if state_window:
        raise t.unsupported("state_window is not implemented")
    return linear_attention(t, query, key, value, past_state, decay, beta, **standard)
