"""Rotary position embedding: pairs of features turn by an angle that grows with the position."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, Y, cast, const, cos, dim, exp, guard, rem, select, sin
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.attention import heads_of, merged

Angle = Callable[[Expr, Expr, Expr], Expr]  # (batch, position in the sequence, pair) -> cos or sin


def rotate(t: Tracer, x: Tensor, cos: Angle, sin: Angle, size: AnyDim, interleaved: bool) -> Tensor:
    """(a, b) -> (a·cos - b·sin, a·sin + b·cos) for the pairs among the first `size` features: (d, d + size/2), or
    (2d, 2d + 1) if interleaved; the rest stays. Shapes: x (N, H, S, D)."""
    half = sh.floordiv(size, 2)
    t.require_equal(half + half, size, "features that turn are pairs")
    t.require(sh.compare("le", size, x.shape[3]), f"{size} features are to turn, heads have {x.shape[3]}")

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
        turned = own + select(first, -crossed, crossed)
        return turned if size == x.shape[3] else guard(d < dim(size), turned, x.at(n, h, s, d))

    return t.compute(x.shape, body)


def turned(t: Tracer, x: Tensor, start: AnyDim, size: AnyDim) -> Tensor:
    """See `rotate`: of rows from position `start` on, by angles position · 10000^(-2·pair/size)."""

    def angle(n: Expr, s: Expr, pair: Expr) -> Expr:
        steps = cast(pair, F32) * (-2.0 * math.log(10000.0)) / cast(dim(size), F32)
        return cast(s + dim(start), F32) * exp(steps)

    return rotate(t, x, lambda *i: cos(angle(*i)), lambda *i: sin(angle(*i)), size, interleaved=False)


def require_caches(t: Tracer, cos: Tensor, sin: Tensor, pairs: AnyDim) -> None:
    """Refuse tables of cosines and sines that differ in shape, or do not hold so many pairs a position."""
    if cos.rank != sin.rank:
        raise t.shape_error(f"cos_cache has rank {cos.rank}, sin_cache {sin.rank}")
    for a, b in zip(cos.shape, sin.shape, strict=True):
        t.require_equal(a, b, "cos_cache and sin_cache differ")
    t.require_equal(cos.shape[-1], pairs, "caches and the features that turn differ in their pairs")


def _rows(x: Tensor) -> sh.Shape:
    """Batch and steps."""
    return x.shape[0], x.shape[1 if x.rank == 3 else 2]


def _applied(
    t: Tracer, x: Tensor, cos: Tensor, sin: Tensor, angle: Callable[[Tensor], Angle], size: AnyDim, interleaved: int,
    num_heads: int,
) -> Tensor:  # fmt: skip
    flat = x.rank == 3
    heads = heads_of(t, x, num_heads) if flat else x
    size = size or heads.shape[3]
    require_caches(t, cos, sin, sh.floordiv(size, 2))
    turned = rotate(t, heads, angle(cos), angle(sin), size, bool(interleaved))
    return merged(t, turned) if flat else turned


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
        t.require_shape("cos_cache", cos_cache, (*_rows(x), cos_cache.shape[-1]))
    t.require_shape("position_ids", position_ids, _rows(x))

    def angle(cache: Tensor) -> Angle:
        if position_ids is None:
            return lambda n, s, pair: cache.at(n, s, pair)
        ids = position_ids
        return lambda n, s, pair: cache.at(t.checked_index(ids.at(n, s), cache.shape[0]), pair)

    return _applied(t, x, cos_cache, sin_cache, angle, rotary_embedding_dim, interleaved, num_heads)


@op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding_microsoft(
    t: Tracer, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """See `rotate`. position_ids (N, S), or (1,): the position of the first. The head size of 3-D input follows from
    num_heads, else from the cache. is_packed_batching: S may be more than the caches have positions."""
    if scale != 1.0:
        raise t.unsupported(f"scale {scale} is not implemented")
    if not rotary_embedding_dim and x.rank == 4:
        t.require_equal(x.shape[3], cos_cache.shape[1] * 2, "heads have twice as many features as caches have angles")
    size = rotary_embedding_dim or cos_cache.shape[1] * 2
    if x.rank == 3 and not num_heads:
        head = cos_cache.shape[1] * 2
        if not (isinstance(head, int) and isinstance(x.shape[2], int) and head):
            raise t.unsupported("3-D input needs num_heads, or caches whose angles tell the size of heads")
        num_heads = x.shape[2] // head
    t.require_shape("position_ids", position_ids, _rows(x) if position_ids.rank == 2 else (1,))

    def angle(cache: Tensor) -> Angle:
        def at(n: Expr, s: Expr, pair: Expr) -> Expr:
            if position_ids.rank == 2:
                return cache.at(t.checked_index(position_ids.at(n, s), cache.shape[0]), pair)
            first = t.checked_index(position_ids.at(0), cache.shape[0])
            return cache.at(t.checked_index(first + s, cache.shape[0]), pair)

        return at

    return _applied(t, x, cos_cache, sin_cache, angle, size, interleaved, num_heads)


@op("GemmaRotaryEmbedding", domain="com.microsoft")
def gemma_rotary_embedding(
    t: Tracer, emb: Tensor, q: Tensor, q_rot: Tensor, k: Tensor, k_rot: Tensor
) -> tuple[Tensor, Tensor]:
    """q · cos(emb) + q_rot · sin(emb), and the same of k, the angles' functions rounded to q's type.
    Shapes: emb (N, S, D) float32, others (N, H, S, D)"""
    angles = [t.cast(t.unsqueeze(t.map(fn(X), emb), [1]), q.dtype) for fn in (cos, sin)]

    def turned(x: Tensor, rotated: Tensor) -> Tensor:
        return t.map(X + Y, t.map(X * Y, x, angles[0]), t.map(X * Y, rotated, angles[1]))

    return turned(q, q_rot), turned(k, k_rot)


@op("MRotaryEmbedding", domain="com.microsoft")
def multimodal_rotary_embedding(
    t: Tracer, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, interleaved: int = 0,
    is_packed_batching: int = 0, mrope_layout: int = 0, mrope_section: Sequence[int], num_heads: int = 0,
    rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """See `rotate`. Three positions a token (time, row, column): pairs take theirs from one of them, by sections of
    mrope_section pairs each, or (mrope_layout 1) every third pair that of the row and of the column, as far as their
    sections reach, and time's elsewhere; the result times `scale`.
    Shapes: position_ids (3, N, S), others as RotaryEmbedding's."""
    if mrope_layout not in (0, 1):
        raise t.unsupported(f"mrope_layout {mrope_layout} is not 0 or 1")
    time, row, column = t.entries("mrope_section", mrope_section, 3)
    t.require_shape("position_ids", position_ids, (3, *_rows(x)))
    if x.rank == 3 and not num_heads:
        raise t.unsupported("3-D input needs num_heads")

    def stream(pair: Expr) -> Expr:
        if mrope_layout:
            third = rem(pair, 3)
            of_row, of_column = (third == 1) & (pair < row * 3), (third == 2) & (pair < column * 3)
        else:
            of_row, of_column = (pair >= time) & (pair < time + row), pair >= time + row
        return select(of_row, 1, select(of_column, 2, const(0, I32)))

    def angle(cache: Tensor) -> Angle:
        return lambda n, s, pair: cache.at(t.checked_index(position_ids.at(stream(pair), n, s), cache.shape[0]), pair)

    size = rotary_embedding_dim or cos_cache.shape[1] * 2
    if not rotary_embedding_dim:
        head = x.shape[3] if x.rank == 4 else sh.floordiv(x.shape[2], num_heads)
        t.require_equal(head, size, "heads have twice as many features as caches have angles")
    y = _applied(t, x, cos_cache, sin_cache, angle, size, interleaved, num_heads)
    return y if scale == 1.0 else t.map(X * scale, y)


__all__ = ["rotate"]
