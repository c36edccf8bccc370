"""ONNX Runtime's attention operators, with the letters of `attention`; M: the features of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime import shape as sh
from pyruntime.dtype import I32
from pyruntime.expr import Expr, X, Y, cast, const, dim, guard, select
from pyruntime.kernel import Tensor
from pyruntime.ops.attention import (
    Bias,
    add_mask,
    attend,
    chain,
    heads_of,
    length_mask,
    merged,
    window_biases,
    window_mask,
)  # fmt: skip
from pyruntime.ops.matmul import matmul
from pyruntime.ops.norm import root_mean_square, scaled
from pyruntime.ops.registry import op
from pyruntime.ops.rotary import Angle, rotate
from pyruntime.shape import AnyDim
from pyruntime.tracer import Tracer

MICROSOFT = "com.microsoft"
PerItem = Callable[[Expr], Expr]  # a number of a batch item, or of a head


def padding_bias(t: Tracer, mask: Tensor, value: float, keys: AnyDim, batch: AnyDim) -> Bias:
    """Adds `value` to keys that a padding mask leaves out: (N, T), (N, S, T) or (N, 1, S, T) of 0 and 1, the number
    of keys (N,), or ends and starts (2N,)."""
    if mask.rank == 1:
        bounds = mask.shape[0] == batch * 2 and batch != 0

        def keeps(n: Expr, i: Expr, j: Expr) -> Expr:
            inside = j < cast(mask.at(n), I32)
            return inside & (j >= cast(mask.at(n + dim(batch)), I32)) if bounds else inside

        if not bounds:
            t.require_equal(mask.shape[0], batch, "a 1-D mask has one length an item")
    elif mask.rank == 2:
        t.require_equal(mask.shape[1], keys, "mask and keys differ")

        def keeps(n: Expr, i: Expr, j: Expr) -> Expr:
            return mask.at(n, j) > 0
    elif mask.rank == 3:

        def keeps(n: Expr, i: Expr, j: Expr) -> Expr:
            return mask.at(n, i, j) > 0
    else:
        raise t.unsupported(f"a mask of rank {mask.rank} is not implemented")
    return lambda score, n, h, i, j: select(keeps(n, i, j), score, score + value)


def _blocks(t: Tracer, x: Tensor, axis: int, count: int) -> list[Tensor]:
    """Slices of one along an axis, without it."""
    return [t.squeeze(t.slice(x, axis, n, 1), [axis]) for n in range(count)]


def _biased(t: Tracer, x: Tensor, bias: Tensor | None, start: AnyDim) -> Tensor:
    """x plus the part of a bias vector that begins at `start`."""
    if bias is None:
        return x
    return t.map(X + Y, x, t.slice(bias, 0, start, x.shape[-1]))


# ── MultiHeadAttention ────────────────────────────────────────────────────────────────────────────────────────────


def _projections(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as (N, H, ·, D), from any of the packings."""
    if query.rank == 5:  # (N, S, H, 3, D)
        parts = [t.reshape(p, (*p.shape[:2], p.shape[2] * p.shape[3])) for p in _blocks(t, query, 3, 3)]
        query, key, value = parts
    elif key is not None and key.rank == 5:  # (N, T, H, 2, D)
        key, value = (t.reshape(p, (*p.shape[:2], p.shape[2] * p.shape[3])) for p in _blocks(t, key, 3, 2))
    if key is None or value is None:
        raise t.unsupported("key and value are needed unless packed")
    width = query.shape[2]
    q = heads_of(t, _biased(t, query, bias, 0), heads)
    if key.rank == 4:
        return q, key, value
    k = heads_of(t, _biased(t, key, bias, width), heads)
    return q, k, heads_of(t, _biased(t, value, bias, width + width), heads)


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    t: Tracer, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None, attention_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None, *, mask_filter_value: float = -10000.0, num_heads: int,
    scale: float = 0.0, unidirectional: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention over past and present keys. Shapes: query (N, S, M), key and value (N, T, ·), or packed
    (N, S, H, 3, D), (N, T, H, 2, D), or of another's heads (N, H, T, D); bias (3·M,)
    -> (N, S, M), present key and value (N, H, P+T, D), probabilities."""
    if past_sequence_length is not None or cache_indirection is not None:
        raise t.unsupported("a past in a shared buffer is not implemented")
    q, k, v = _projections(t, query, key, value, bias, num_heads)
    past: AnyDim = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = t.concat([past_key, k], 2), t.concat([past_value, v], 2)
    biases = _biases(t, q, k, key_padding_mask, attention_bias, mask_filter_value, past, bool(unidirectional))
    done = attend(t, q, k, v, scale=scale, bias=chain(*biases))
    return merged(t, done.out), k, v, t.cast(done.probabilities, query.dtype)


def _biases(
    t: Tracer, q: Tensor, k: Tensor, mask: Tensor | None, added: Tensor | None, value: float, past: AnyDim,
    causal: bool,
) -> list[Bias]:  # fmt: skip
    biases: list[Bias] = []
    if mask is not None:
        biases.append(padding_bias(t, mask, value, k.shape[2], q.shape[0]))
    if added is not None:
        biases.append(add_mask(t, added, (*q.shape[:3], k.shape[2])))
    return biases + window_biases(lambda n: dim(past), causal)


@op("Attention", domain=MICROSOFT)
def attention_microsoft(
    t: Tracer, x: Tensor, weights: Tensor, bias: Tensor | None = None, mask_index: Tensor | None = None,
    past: Tensor | None = None, attention_bias: Tensor | None = None, past_sequence_length: Tensor | None = None, *,
    do_rotary: int = 0, mask_filter_value: float = -10000.0, num_heads: int, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None, rotary_embedding_dim: int = 0, scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Projection by one weight, then attention. Shapes: x (N, S, M), weights (M, 3·M), bias (3·M,),
    past (2, N, H, P, D) -> (N, S, M), present (2, N, H, P+S, D)."""
    if do_rotary or past_present_share_buffer or past_sequence_length is not None:
        raise t.unsupported("rotary embedding and a shared past buffer are not implemented")
    third = sh.floordiv(weights.shape[1], 3)
    sizes: list[AnyDim] = list(qkv_hidden_sizes or [third, third, third])
    joined = matmul(t, x, weights)
    joined = joined if bias is None else t.map(X + Y, joined, bias)
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    q, k, v = (heads_of(t, t.slice(joined, 2, s, n), num_heads) for s, n in zip(starts, sizes, strict=True))
    before: AnyDim = 0
    if past is not None:
        before = past.shape[3]
        old_k, old_v = _blocks(t, past, 0, 2)
        k, v = t.concat([old_k, k], 2), t.concat([old_v, v], 2)
    biases = _biases(t, q, k, mask_index, attention_bias, mask_filter_value, before, bool(unidirectional))
    done = attend(t, q, k, v, scale=scale, bias=chain(*biases))
    present = t.concat([t.unsqueeze(k, [0]), t.unsqueeze(v, [0])], 0) if any(t.wanted[1:]) else k
    return merged(t, done.out), present


# ── GroupQueryAttention ───────────────────────────────────────────────────────────────────────────────────────────


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, past_key: Tensor | None,
    past_value: Tensor | None, seqlens_k: Tensor, total_sequence_length: Tensor, cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None, position_ids: Tensor | None = None, attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    q_norm_weight: Tensor | None = None, k_norm_weight: Tensor | None = None, *, causal: int = 1, do_rotary: int = 0,
    k_quant_type: str = "NONE", kv_cache_bit_width: int = 0, kv_num_heads: int, local_window_size: int = -1,
    num_heads: int, qk_norm_epsilon: float = 1e-6, qk_output: int = 0, rotary_interleaved: int = 0,
    scale: float = 0.0, sliding_window_cache: int = 0, smooth_softmax: int = 0, softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Tensor, ...]:  # fmt: skip
    """Causal attention where item n has seqlens_k[n] + 1 keys, of which the last S (all, for a first prompt) are new.
    New keys go behind the item's own past, in a cache of max(P, total_sequence_length) places.

    Shapes: query (N, S, H·D), key and value (N, S, G·D), or query alone (N, S, (H + 2·G)·D), past (N, G, P, D)
    -> (N, S, H·D), present key and value (N, G, max(P, total), D)
    """
    if sliding_window_cache or "NONE" not in (k_quant_type, v_quant_type) or k_scale is not None:
        raise t.unsupported("sliding or quantised caches are not implemented")
    if v_scale is not None or k_quant_type != v_quant_type:
        raise t.unsupported("quantised caches are not implemented")
    q, k, v = _group_heads(t, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q, k = (
            scaled(t, root_mean_square(t, x, -1, qk_norm_epsilon)[0], w, None, x.dtype)
            for x, w in ((q, q_norm_weight), (k, k_norm_weight))
        )
    rows = q.shape[2]
    total = t.ints(t.reshape(total_sequence_length, ()), 0)[0]
    first = dim(sh.compare("eq", rows, total))

    def start(n: Expr) -> Expr:
        """How many keys item n had before."""
        return select(first != 0, 0, cast(seqlens_k.at(n), I32) + 1 - dim(rows))

    if do_rotary and cos_cache is not None and sin_cache is not None:
        q, k = (_turned(t, x, cos_cache, sin_cache, position_ids, start, rotary_interleaved) for x in (q, k))
    elif do_rotary:
        raise t.shape_error("do_rotary needs cos_cache and sin_cache")
    present_key, present_value = (_cached(t, old, new, start, total) for old, new in ((past_key, k), (past_value, v)))
    biases: list[Bias] = []
    if attention_bias is not None:
        biases.append(add_mask(t, attention_bias, (*q.shape[:3], present_key.shape[2])))
    if causal:
        biases.append(window_mask(start, local_window_size - 1 if local_window_size > 0 else -1, 0))
    else:
        biases.append(length_mask(lambda n: cast(seqlens_k.at(n), I32) + 1))
    sink = _sink(head_sink, bool(smooth_softmax))
    done = attend(t, q, present_key, present_value, scale=scale, softcap=softcap, bias=chain(*biases), sink=sink)
    scores = done.probabilities if qk_output == 2 else done.biased
    return merged(t, done.out), present_key, present_value, t.cast(scores, query.dtype)


def _sink(head_sink: Tensor | None, smooth: bool) -> PerItem | None:
    """The further logit of a row: one a head, or 0."""
    if head_sink is not None:
        return lambda h: head_sink.at(h)
    return (lambda h: const(0.0)) if smooth else None


def _group_heads(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    if key is not None and value is not None:
        return heads_of(t, query, heads), heads_of(t, key, groups), heads_of(t, value, groups)
    every = heads_of(t, query, heads + 2 * groups)
    parts = ((0, heads), (heads, groups), (heads + groups, groups))
    q, k, v = (t.slice(every, 1, begin, count) for begin, count in parts)
    return q, k, v


def _turned(
    t: Tracer, x: Tensor, cos: Tensor, sin: Tensor, ids: Tensor | None, start: PerItem, interleaved: int
) -> Tensor:
    def angle(cache: Tensor) -> Angle:
        def at(n: Expr, s: Expr, pair: Expr) -> Expr:
            return cache.at(start(n) + s if ids is None else cast(ids.at(n, s), I32), pair)

        return at

    return rotate(t, x, angle(cos), angle(sin), cos.shape[1] * 2, bool(interleaved))


def _cached(t: Tracer, old: Tensor | None, new: Tensor, start: PerItem, total: AnyDim) -> Tensor:
    """The cache with new entries written behind each item's past."""
    n_, g_, rows, d_ = new.shape
    past = 0 if old is None else old.shape[2]
    size = sh.maximum(past, total)

    def body(n: Expr, g: Expr, j: Expr, d: Expr) -> Expr:
        place = j - start(n)
        fresh = (place >= 0) & (place < dim(rows))
        kept = 0 if old is None else guard(j < dim(past), old.at(n, g, j, d), 0)
        return guard(fresh, new.at(n, g, place, d), kept)

    return t.compute((n_, g_, size, d_), body)


__all__ = ["group_query_attention"]
