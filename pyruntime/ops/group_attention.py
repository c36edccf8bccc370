"""GroupQueryAttention of ONNX Runtime, with the letters of `attention`."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, const, dim, guard, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.attention import Bias, add_mask, attend, chain, heads_of, length_mask, merged, window_mask
from pyruntime.ops.norm import root_mean_square, scaled
from pyruntime.ops.rotary import Angle, require_caches, rotate

PerItem = Callable[[Expr], Expr]  # a number of a batch item, or of a head


@op("GroupQueryAttention", domain="com.microsoft")
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
    seqlens_k = t.reshape(seqlens_k, (q.shape[0],))  # of older models (N, 1)
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
            place = start(n) + s if ids is None else ids.at(n, s)
            return cache.at(t.checked_index(place, cache.shape[0]), pair)

        return at

    require_caches(t, cos, sin, cos.shape[1])
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
