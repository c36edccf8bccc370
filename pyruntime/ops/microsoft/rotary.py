"""Rotary position embeddings: see `standard.rotary`."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, X, Y, const, cos, rem, select, sin
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.rotary import Angle, batch_and_length, embed


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    t: Tracer, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """See `rotate`. position_ids (N, S), or (1,): the position of the first token. The head size of 3-D input follows
    from num_heads, else from the cache. is_packed_batching: S may exceed the number of positions in the caches."""
    if scale != 1.0:
        raise t.unsupported(f"scale {scale} is not implemented")
    if not rotary_embedding_dim and x.rank == 4:
        t.require_equal(x.shape[3], cos_cache.shape[1] * 2, "the head size must be twice the width of the caches")
    size = rotary_embedding_dim or cos_cache.shape[1] * 2
    if x.rank == 3 and not num_heads:
        head = cos_cache.shape[1] * 2
        if not (isinstance(head, int) and isinstance(x.shape[2], int) and head):
            raise t.unsupported("3-D input needs num_heads, or caches of known width")
        num_heads = x.shape[2] // head
    t.require_shape("position_ids", position_ids, batch_and_length(x) if position_ids.rank == 2 else (1,))

    def angle(cache: Tensor) -> Angle:
        def at(n: Expr, s: Expr, pair: Expr) -> Expr:
            if position_ids.rank == 2:
                return cache.at(t.checked_index(position_ids.at(n, s), cache.shape[0]), pair)
            first = t.checked_index(position_ids.at(0), cache.shape[0])
            return cache.at(t.checked_index(first + s, cache.shape[0]), pair)

        return at

    return embed(t, x, cos_cache, sin_cache, angle, size, interleaved, num_heads)


@op("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(
    t: Tracer, emb: Tensor, q: Tensor, q_rot: Tensor, k: Tensor, k_rot: Tensor
) -> tuple[Tensor, Tensor]:
    """q · cos(emb) + q_rot · sin(emb), and the same for k; cos and sin are rounded to q's type.
    Shapes: emb (N, S, D) float32, others (N, H, S, D)"""
    angles = [t.cast(t.unsqueeze(t.map(fn(X), emb), [1]), q.dtype) for fn in (cos, sin)]

    def embedded(x: Tensor, rotated: Tensor) -> Tensor:
        return t.map(X + Y, t.map(X * Y, x, angles[0]), t.map(X * Y, rotated, angles[1]))

    return embedded(q, q_rot), embedded(k, k_rot)


@op("MRotaryEmbedding", domain=MICROSOFT)
def multimodal_rotary_embedding(
    t: Tracer, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, interleaved: int = 0,
    is_packed_batching: int = 0, mrope_layout: int = 0, mrope_section: Sequence[int], num_heads: int = 0,
    rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """See `rotate`. Each token has three positions (time, row, column), and each pair uses one of them. With
    mrope_layout 0 three consecutive sections, of mrope_section pairs, use them in this order. With 1 they are
    interleaved: pair 3n + 1 uses the row and pair 3n + 2 the column, while n is below the size of their section; all
    other pairs use the time. The result is multiplied by `scale`.
    Shapes: position_ids (3, N, S), others as RotaryEmbedding's."""
    if mrope_layout not in (0, 1):
        raise t.unsupported(f"mrope_layout {mrope_layout} is not 0 or 1")
    time, row, column = t.entries("mrope_section", mrope_section, 3)
    t.require_shape("position_ids", position_ids, (3, *batch_and_length(x)))
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
        t.require_equal(head, size, "the head size must be twice the width of the caches")
    y = embed(t, x, cos_cache, sin_cache, angle, size, interleaved, num_heads)
    return y if scale == 1.0 else t.map(X * scale, y)
