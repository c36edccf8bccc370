"""Rotary position embedding: rotates pairs of features by an angle that grows with the position."""

from __future__ import annotations

import math
from collections.abc import Callable

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, cast, cos, dim, exp, guard, rem, select, sin
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.standard.attention import merge_heads, split_heads

Angle = Callable[[Expr, Expr, Expr], Expr]  # (batch, position in the sequence, pair) -> cos or sin


def rotate(t: Tracer, x: Tensor, cos: Angle, sin: Angle, size: AnyDim, interleaved: bool) -> Tensor:
    """(a, b) -> (a·cos - b·sin, a·sin + b·cos) for the pairs among the first `size` features: (d, d + size/2), or (2d,
    2d + 1) if interleaved. Other features are unchanged. Shapes: x (N, H, S, D)."""
    half = sh.floordiv(size, 2)
    t.require_equal(half + half, size, "the number of rotated features must be even")
    t.require(sh.compare("le", size, x.shape[3]), f"{size} rotated features exceed the head size {x.shape[3]}")

    def body(n: Expr, h: Expr, s: Expr, d: Expr) -> Expr:
        if interleaved:
            first, pair = rem(d, 2) == 0, d / 2
            other = select(first, d + 1, d - 1)
        else:
            first = d < dim(half)
            pair = select(first, d, d - dim(half))
            other = select(first, d + dim(half), d - dim(half))
        own = x.at(n, h, s, d) * cos(n, s, pair)
        crossed = x.at(n, h, s, other) * sin(n, s, pair)
        rotated = own + select(first, -crossed, crossed)
        return rotated if size == x.shape[3] else guard(d < dim(size), rotated, x.at(n, h, s, d))

    return t.compute(x.shape, body)


def rotate_by_position(t: Tracer, x: Tensor, start: AnyDim, size: AnyDim) -> Tensor:
    """`rotate` rows at positions from `start` on, by the angles position · 10000^(-2·pair/size)."""

    def angle(n: Expr, s: Expr, pair: Expr) -> Expr:
        steps = cast(pair, F32) * (-2.0 * math.log(10000.0)) / cast(dim(size), F32)
        return cast(s + dim(start), F32) * exp(steps)

    return rotate(t, x, lambda *i: cos(angle(*i)), lambda *i: sin(angle(*i)), size, interleaved=False)


def require_caches(t: Tracer, cos: Tensor, sin: Tensor, pairs: AnyDim) -> None:
    """Refuse tables of cosines and sines that differ in shape, or whose rows are not `pairs` long."""
    if cos.rank != sin.rank:
        raise t.shape_error(f"cos_cache has rank {cos.rank}, sin_cache {sin.rank}")
    for a, b in zip(cos.shape, sin.shape, strict=True):
        t.require_equal(a, b, "cos_cache and sin_cache differ")
    t.require_equal(cos.shape[-1], pairs, "cos_cache must have a column per rotated pair")


def batch_and_length(x: Tensor) -> sh.Shape:
    """(N, S) of x (N, S, H·D) or (N, H, S, D)."""
    return x.shape[0], x.shape[1 if x.rank == 3 else 2]


def embed(
    t: Tracer, x: Tensor, cos: Tensor, sin: Tensor, angle: Callable[[Tensor], Angle], size: AnyDim, interleaved: int,
    num_heads: int,
) -> Tensor:  # fmt: skip
    """`rotate` x (N, H, S, D) or (N, S, H·D) by tables of cosines and sines, which `angle` reads. size 0: all
    features."""
    flat = x.rank == 3
    heads = split_heads(t, x, num_heads) if flat else x
    size = size or heads.shape[3]
    require_caches(t, cos, sin, sh.floordiv(size, 2))
    y = rotate(t, heads, angle(cos), angle(sin), size, bool(interleaved))
    return merge_heads(t, y) if flat else y


@op("RotaryEmbedding", since=23)
def rotary_embedding(
    t: Tracer, x: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Tensor | None = None, *,
    interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    """See `rotate`. Shapes: x (N, H, S, D) or (N, S, H·D); caches (positions, D/2) read at position_ids (N, S), or
    (N, S, D/2). Spec: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html"""
    if x.rank == 3 and not num_heads:
        raise t.unsupported("3-D input needs num_heads")
    if position_ids is None:
        t.require_shape("cos_cache", cos_cache, (*batch_and_length(x), cos_cache.shape[-1]))
    t.require_shape("position_ids", position_ids, batch_and_length(x))

    def angle(cache: Tensor) -> Angle:
        if position_ids is None:
            return lambda n, s, pair: cache.at(n, s, pair)
        ids = position_ids
        return lambda n, s, pair: cache.at(t.checked_index(ids.at(n, s), cache.shape[0]), pair)

    return embed(t, x, cos_cache, sin_cache, angle, rotary_embedding_dim, interleaved, num_heads)
