"""GroupQueryAttention, with the letters of `standard.attention`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F8E4M3FN, I8, U8
from pyruntime.ir.expr import Expr, X, const, dim, maximum, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.kv_cache import Codes, PerItem, Window, append_keys
from pyruntime.ops.standard.attention import (
    MASKED,
    Bias,
    add_mask,
    attend,
    behind,
    chain,
    length_mask,
    merge_heads,
    require_bias,
    split_heads,
    window_mask,
)  # fmt: skip
from pyruntime.ops.standard.norm import root_mean_square, scale_and_shift
from pyruntime.ops.standard.rotary import Angle, require_caches, rotate


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, past_key: Tensor | None,
    past_value: Tensor | None, seqlens_k: Tensor, total_sequence_length: Tensor, cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None, position_ids: Tensor | None = None, attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    q_norm_weight: Tensor | None = None, k_norm_weight: Tensor | None = None, *, causal: int = 1, do_rotary: int = 0,
    k_quant_type: str = "NONE", kv_cache_bit_width: int = 0, kv_num_heads: int, left_padded: int = 0,
    local_window_size: int = -1, num_heads: int, qk_norm_epsilon: float = 1e-6, qk_output: int = 0,
    rotary_interleaved: int = 0, scale: float = 0.0, sliding_window_cache: int = 0, smooth_softmax: int = -1,
    softcap: float = 0.0, v_quant_type: str = "NONE",
) -> tuple[Tensor, ...]:  # fmt: skip
    """Causal attention where item n has seqlens_k[n] + 1 keys, of which the last S (all, in a first prompt) are new.
    New keys are appended to the item's own past, in a cache of max(P, total_sequence_length) places, or of P places if
    sliding_window_cache is set (see `Window`). Caches may be quantised (see `Codes`).

    left_padded: an attribute that `onnx/sampling.py` adds: the keys of item n are the last seqlens_k[n] + 1 places, the
        places before them are padding, and new keys follow the past, which has total_sequence_length - S places

    Shapes: query (N, S, H·D), key and value (N, S, G·D), or query alone (N, S, (H + 2·G)·D), past (N, G, P, D)
    -> (N, S, H·D), present key and value (N, G, max(P, total), D)"""
    _check_attributes(t, local_window_size, causal, smooth_softmax)
    q, k, v = group_heads(t, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q, k = (_normalised(t, x, w, qk_norm_epsilon) for x, w in ((q, q_norm_weight), (k, k_norm_weight)))
    rows = q.shape[2]
    for x in (k, v):
        t.require_equal(x.shape[2], rows, "keys and queries differ in number")
    if past_key is not None and past_value is not None:
        t.require_equal(past_key.shape[2], past_value.shape[2], "past_key and past_value differ in length")
    seqlens_k = t.reshape(seqlens_k, (q.shape[0],))  # older models have (N, 1)
    total = t.ints(t.reshape(total_sequence_length, ()), 0)[0]
    require_bias(t, attention_bias, rows, total)
    first = dim(sh.compare("eq", rows, total))

    def end(n: Expr) -> Expr:
        """The number of keys of item n."""
        return t.checked_index(seqlens_k.at(n), total) + 1

    def start(n: Expr) -> Expr:
        """The number of past keys of item n."""
        return select(first != 0, 0, end(n) - dim(rows))

    def position(n: Expr, s: Expr) -> Expr:
        return maximum(end(n) - dim(rows) + s, 0) if left_padded else start(n) + s

    if do_rotary == 1 and cos_cache is not None and sin_cache is not None:
        rotation = (cos_cache, sin_cache, position_ids, position, rotary_interleaved)
        q, k = (rotate_by_caches(t, x, *rotation) for x in (q, k))
    elif do_rotary == 1:
        raise t.shape_error("do_rotary needs cos_cache and sin_cache")
    scales = [_channels(t, scale, x) for scale, x in ((k_scale, k), (v_scale, v))]
    codes = _codes(t, past_key, scales, (k_quant_type, v_quant_type), kv_cache_bit_width)
    olds, news = (past_key, past_value), [code.encode(t, x) for code, x in zip(codes, (k, v), strict=True)]

    if sliding_window_cache:
        window = _window(t, past_key, local_window_size if causal else 0, start, end)
        presents = [window.update(t, old, new) for old, new in zip(olds, news, strict=True) if old is not None]
        cached = [t.concat([old, new], 2) for old, new in zip(olds, news, strict=True) if old is not None]
        added = None if attention_bias is None else add_mask(t, attention_bias, (*q.shape[:3], total))
        bias: Bias | None = window.bias(added)
    else:
        most = rows if past_key is None else past_key.shape[2] + rows
        t.require(sh.compare("le", total, most), "total_sequence_length exceeds the past keys plus the new ones")
        presents = [
            _followed(t, old, new, total) if left_padded else append_keys(t, old, new, start, total)
            for old, new in zip(olds, news, strict=True)
        ]
        cached = [t.slice(x, 2, 0, total) for x in presents]  # a cache may have unused places
        biases = [] if attention_bias is None else [add_mask(t, attention_bias, (*q.shape[:3], total))]
        left = local_window_size - 1 if local_window_size > 0 else -1
        if left_padded:
            places = window_mask(lambda n: dim(total) - dim(rows), left, 0 if causal else -1)
            bias = chain(*biases, places, behind(lambda n: dim(total) - end(n)))
        else:
            bias = chain(*biases, window_mask(start, left, 0) if causal else length_mask(end))
    keys, values = (code.decode(t, x, query.dtype) for code, x in zip(codes, cached, strict=True))
    sink = _sink(head_sink, smooth_softmax == 1)
    done = attend(t, q, keys, values, scale=scale or None, softcap=softcap, bias=bias, sink=sink)
    scores = done.probabilities if qk_output == 2 else t.map(select(X == MASKED, 0.0, X), done.biased)
    return merge_heads(t, done.out), *presents, t.cast(scores, query.dtype)


def _normalised(t: Tracer, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return scale_and_shift(t, root_mean_square(t, x, -1, epsilon)[0], weight, None, x.dtype)


def _followed(t: Tracer, old: Tensor | None, new: Tensor, total: AnyDim) -> Tensor:
    """The cache with new entries behind all places of the past."""
    present = new if old is None else t.concat([old, new], 2)
    t.require_equal(present.shape[2], total, "the past and the new keys are not total_sequence_length places")
    return present


def _channels(t: Tracer, scale: Tensor | None, x: Tensor) -> Tensor | None:
    """One scale per channel of x (N, G, ·, D) as (1, G, 1, D). ONNX Runtime accepts any shape with that number of
    elements."""
    _, groups, _, head = x.shape
    if scale is None or sh.size(scale.shape) != groups * head:
        return scale
    return t.reshape(scale, (1, groups, 1, head))


def _codes(
    t: Tracer, past: Tensor | None, scales: Sequence[Tensor | None], types: Sequence[str], bits: int
) -> list[Codes]:
    """The encodings of the key and value caches."""
    for scale, kind in zip(scales, types, strict=True):
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
            raise t.unsupported(f"the cache type {kind} is not known")
        if (scale is None) != (kind == "NONE"):
            raise t.shape_error("k_scale and v_scale belong to quantised caches, and only to them")
    dtype = past.dtype if past is not None else U8 if bits == 4 else I8
    if types != ("NONE", "NONE") and (dtype, bits or 8) not in ((U8, 4), (I8, 8), (F8E4M3FN, 8)):
        text = f"a cache of {bits} bits in {dtype.name} is not known"
        raise t.unsupported(text, "use 4 bits in uint8, or 8 in int8 or float8e4m3fn")
    return [Codes(scale, dtype) for scale in scales]


def _check_attributes(t: Tracer, local_window_size: int, causal: int, smooth_softmax: int) -> None:
    """Refuse unknown values. -1 turns the window or the smooth softmax off."""
    if local_window_size != -1 and not causal:
        raise t.unsupported("local_window_size needs causal attention")
    if local_window_size < -1 or local_window_size == 0:
        raise t.unsupported(f"local_window_size is {local_window_size}, must be -1 or above 0")
    if smooth_softmax not in (-1, 0, 1):
        raise t.unsupported(f"smooth_softmax is {smooth_softmax}, must be -1, 0 or 1")


def _window(t: Tracer, past: Tensor | None, width: int, start: PerItem, end: PerItem) -> Window:
    if past is None or width <= 0:
        raise t.unsupported("sliding_window_cache needs past_key, causal attention and local_window_size")
    places = past.shape[2]
    text = f"a cache of {places} places is smaller than its window of {width}; free dimension overrides give its size"
    t.require(sh.compare("le", width, places), text)
    return Window(past.shape[2], width, start, end)


def _sink(head_sink: Tensor | None, smooth: bool) -> PerItem | None:
    """The additional logit of each row's softmax: one per head, or 0."""
    if head_sink is not None:
        return lambda h: head_sink.at(h)
    return (lambda h: const(0.0)) if smooth else None


def group_heads(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query (N, H, S, D), key and value (N, G, S, D), from separate or packed inputs."""
    if key is not None and value is not None:
        return split_heads(t, query, heads), split_heads(t, key, groups), split_heads(t, value, groups)
    every = split_heads(t, query, heads + 2 * groups)
    parts = ((0, heads), (heads, groups), (heads + groups, groups))
    q, k, v = (t.slice(every, 1, begin, count) for begin, count in parts)
    return q, k, v


def rotate_by_caches(
    t: Tracer,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    ids: Tensor | None,
    position: Callable[[Expr, Expr], Expr],
    interleaved: int,
) -> Tensor:
    """Rotary embedding by tables of cosines and sines, at positions `ids` (N, S) or position(n, s)."""

    def angle(cache: Tensor) -> Angle:
        def at(n: Expr, s: Expr, pair: Expr) -> Expr:
            place = position(n, s) if ids is None else ids.at(n, s)
            return cache.at(t.checked_index(place, cache.shape[0]), pair)

        return at

    require_caches(t, cos, sin, cos.shape[1])
    return rotate(t, x, angle(cos), angle(sin), cos.shape[1] * 2, bool(interleaved))
