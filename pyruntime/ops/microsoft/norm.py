"""Fused normalisations: a sum, or embeddings, then a normalisation over the last axis."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, Y, cast, const
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import float_type
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.norm import centre, root_mean_square, scale_and_shift, stash_dtype


@op("SimplifiedLayerNormalization")
@op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(
    t: Tracer, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x²) + epsilon) · scale over the axes from `axis` on, and 1 / sqrt(mean(x²) + epsilon)."""
    y, inverse = root_mean_square(t, x, axis, epsilon)
    return scale_and_shift(t, y, scale, None, scale.dtype), t.cast(inverse, stash_dtype(t, stash_type))


def _sum(
    t: Tracer, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None, bias: Tensor | None
) -> Tensor:  # fmt: skip
    """x + skip + bias in float_type(x); a skip without a batch, or with a batch of 1, serves all items."""
    dtype = float_type(x.dtype)
    batched = skip.rank == x.rank
    t.require_shape("skip", skip, (*skip.shape[:batched], *x.shape[1:]))
    t.require_broadcast_shape("skip", skip, x.shape[not batched :])
    for name, v in (("gamma", gamma), ("beta", beta), ("bias", bias)):
        t.require_shape(name, v, x.shape[-1:])
    total = t.compute(x.shape, lambda *i: cast(x.at(*i), dtype) + cast(t.aligned(skip, x.shape), dtype))
    return total if bias is None else t.map_onto(X + cast(Y, dtype), total, bias)


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    t: Tracer, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None, *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """LayerNormalization of x + skip + bias over the last axis; outputs y, mean, 1/deviation and the sum.
    Shapes: x (N, S, D), skip (N, S, D), (1, S, D) or (S, D), others (D,)."""
    total = _sum(t, x, skip, gamma, beta, bias)
    y, mean, inverse = centre(t, total, [-1], epsilon)
    return scale_and_shift(t, y, gamma, beta, x.dtype), t.cast(mean, F32), t.cast(inverse, F32), t.cast(total, x.dtype)


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    t: Tracer, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple[Tensor, None, Tensor, Tensor]:
    """SimplifiedLayerNormalization of x + skip + bias; outputs y, no mean, 1/root and the sum."""
    if len(t.wanted) > 1 and t.wanted[1]:
        raise t.unsupported("the second output, mean, is not supported: this norm has no mean")
    total = _sum(t, x, skip, gamma, None, bias)
    y, inverse = root_mean_square(t, total, -1, epsilon)
    return scale_and_shift(t, y, gamma, None, x.dtype), None, t.cast(inverse, F32), t.cast(total, x.dtype)


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    t: Tracer, input_ids: Tensor, segment_ids: Tensor | None, word_embedding: Tensor, position_embedding: Tensor,
    segment_embedding: Tensor | None, gamma: Tensor, beta: Tensor, mask: Tensor | None = None,
    position_ids: Tensor | None = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """LayerNormalization of word + position + segment embeddings; also the number of ones in the mask, and the sum.
    Shapes: ids and mask (N, S), embeddings (·, D) -> (N, S, D), (N,), (N, S, D)."""
    batch, steps = input_ids.shape
    width = word_embedding.shape[1]
    for name, table in (("position_embedding", position_embedding), ("segment_embedding", segment_embedding)):
        t.require_shape(name, table, (table.shape[0], width) if table is not None else ())
    for name, factor in (("gamma", gamma), ("beta", beta)):
        t.require_shape(name, factor, (width,))
    for name, ids in (("segment_ids", segment_ids), ("mask", mask)):
        t.require_shape(name, ids, (batch, steps))
    if position_ids is not None:
        t.require_shape("position_ids", position_ids, (position_ids.shape[0], steps))
        t.require_broadcast_shape("position_ids", position_ids, (batch, steps))
    shape = (batch, steps, width)

    def row(table: Tensor, i: Expr, d: Expr) -> Expr:
        return cast(table.at(t.checked_index(i, table.shape[0]), d), F32)

    def body(n: Expr, s: Expr, d: Expr) -> Expr:
        place = s if position_ids is None else t.aligned(position_ids, shape[:2], [n, s])
        total = row(word_embedding, input_ids.at(n, s), d) + row(position_embedding, place, d)
        if segment_embedding is not None:  # without segment_ids all tokens are in segment 0, as in ONNX Runtime
            segment = const(0, I32) if segment_ids is None else segment_ids.at(n, s)
            total = total + row(segment_embedding, segment, d)
        return total

    total = t.compute(shape, body)
    y = scale_and_shift(t, centre(t, total, [-1], epsilon)[0], gamma, beta, gamma.dtype)
    if mask is None:
        count = t.fill((input_ids.shape[0],), 0, I32)
    else:
        count = t.reduce("sum", mask, [1], keepdims=False, of=cast(X == 1, I32))
    return y, count, t.cast(total, gamma.dtype)
