"""Attention and MultiHeadAttention, with the letters of `standard.attention`; M: the features of the model."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, X, Y, cast, dim, maximum, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import LOWEST
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.kv_cache import append_keys, from_beams
from pyruntime.ops.microsoft.quant import matmul_integer_to_float
from pyruntime.ops.standard.attention import (
    Bias,
    add_mask,
    attend,
    chain,
    merge_heads,
    require_bias,
    split_heads,
    window_biases,
)
from pyruntime.ops.standard.matmul import matmul
from pyruntime.ops.standard.rotary import rotate_by_position


def padding_bias(t: Tracer, mask: Tensor, value: float, keys: AnyDim, batch: AnyDim) -> Bias:
    """Adds `value` to the scores of keys that a padding mask excludes. The mask holds 0 or 1 per key, with shape
    (N, T), (N, S, T) or (N, 1, S, T); or the number of keys (N,); or N ends of the keys, then N starts (2N,)."""
    if mask.rank == 1:
        bounds = mask.shape[0] == batch * 2 and batch != 0

        def keeps(n: Expr, i: Expr, j: Expr) -> Expr:
            inside = j < cast(mask.at(n), I32)
            return inside & (j >= cast(mask.at(n + dim(batch)), I32)) if bounds else inside

        if not bounds:
            t.require_equal(mask.shape[0], batch, "a 1-D mask must have one length per item")
    elif mask.rank == 2:
        t.require_shape("the mask", mask, (batch, keys))

        def keeps(n: Expr, i: Expr, j: Expr) -> Expr:
            return mask.at(n, j) > 0
    elif mask.rank == 3:
        t.require_shape("the mask", mask, (batch, mask.shape[1], keys))

        def keeps(n: Expr, i: Expr, j: Expr) -> Expr:
            return mask.at(n, i, j) > 0
    else:
        raise t.unsupported(f"a mask of rank {mask.rank} is not implemented")
    return lambda score, n, h, i, j: select(keeps(n, i, j), score, score + value)


def last_sees_all(mask: Bias, rows: AnyDim) -> Bias:
    """The mask for all queries but the last, which sees all keys, as in onnxruntime: a decoder whose key operand is the
    whole cache asks with a single query."""
    return lambda score, n, h, i, j: select(i == dim(rows) - 1, score, mask(score, n, h, i, j))


def _unstacked(t: Tracer, x: Tensor, axis: int, count: int) -> list[Tensor]:
    """The `count` slices of length 1 along an axis, without that axis."""
    return [t.squeeze(t.slice(x, axis, n, 1), [axis]) for n in range(count)]


def _biased(t: Tracer, x: Tensor, bias: Tensor | None, start: AnyDim) -> Tensor:
    """x plus the x.shape[-1] elements of a bias vector from `start` on."""
    if bias is None:
        return x
    return t.map(X + Y, x, t.slice(bias, 0, start, x.shape[-1]))


# ── MultiHeadAttention ────────────────────────────────────────────────────────────────────────────────────────────


def _projections(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as (N, H, ·, D), from any of the packed layouts."""
    if query.rank == 5:  # (N, S, H, 3, D)
        parts = [t.reshape(p, (*p.shape[:2], p.shape[2] * p.shape[3])) for p in _unstacked(t, query, 3, 3)]
        query, key, value = parts
    elif key is not None and key.rank == 5:  # (N, T, H, 2, D)
        key, value = (t.reshape(p, (*p.shape[:2], p.shape[2] * p.shape[3])) for p in _unstacked(t, key, 3, 2))
    if key is None or value is None:
        raise t.unsupported("key and value are needed unless query is packed")
    if key.rank != value.rank:
        raise t.shape_error(f"key has rank {key.rank}, value {value.rank}")
    width = query.shape[2]
    q = split_heads(t, _biased(t, query, bias, 0), heads)
    if key.rank == 4:
        return q, key, value
    t.require_shape("the bias", bias, (width + key.shape[2] + value.shape[2],))
    k = split_heads(t, _biased(t, key, bias, width), heads)
    return q, k, split_heads(t, _biased(t, value, bias, width + width), heads)


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    t: Tracer, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None, attention_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None, *, mask_filter_value: float = -10000.0, num_heads: int,
    scale: float = 0.0, unidirectional: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention over past and present keys. Shapes: query (N, S, M), key and value (N, T, ·), or packed (N, S, H, 3,
    D), (N, T, H, 2, D), or cross-attention's (N, H, T, D); bias (3·M,)
    -> (N, S, M), present key and value (N, H, P+T, D), the scores before softmax (N, H, S, P+T).

    With past_sequence_length, the past is the front of a buffer and the present is that buffer with the new keys;
    cache_indirection gives the beam that each key comes from (see `from_beams`)."""
    q, k, v = _projections(t, query, key, value, bias, num_heads)
    past, k, v, *present = _with_past(t, k, v, past_key, past_value, past_sequence_length)
    if cache_indirection is not None:
        k, v = (from_beams(t, x, cache_indirection, past) for x in (k, v))
    biases = _biases(t, q, k, key_padding_mask, attention_bias, mask_filter_value, past, unidirectional == 1)
    if unidirectional == 1 and k.shape[2] != past + q.shape[2]:
        biases[-1] = last_sees_all(biases[-1], q.shape[2])
    done = attend(t, q, k, v, scale=scale or None, bias=chain(*biases))
    scores = t.map(maximum(X, LOWEST), done.biased) if unidirectional == 1 else done.biased
    return merge_heads(t, done.out), present[0], present[1], t.cast(scores, query.dtype)


def _with_past(
    t: Tracer, k: Tensor, v: Tensor, past_key: Tensor | None, past_value: Tensor | None, length: Tensor | None
) -> tuple[AnyDim, Tensor, Tensor, Tensor, Tensor]:
    """The number of past keys, all keys, all values, the present key, the present value. With `length`, the past is the
    front of a buffer."""
    if past_key is None or past_value is None:
        return 0, k, v, k, v
    for name, old, new in (("past_key", past_key, k), ("past_value", past_value, v)):
        t.require_shape(name, old, (*new.shape[:2], past_key.shape[2], new.shape[3]))
    if length is None:
        k, v = t.concat([past_key, k], 2), t.concat([past_value, v], 2)
        return past_key.shape[2], k, v, k, v
    past = t.ints(t.reshape(length, ()), 0)[0]
    total, places = past + k.shape[2], past_key.shape[2]
    t.require(sh.compare("le", total, places), f"{total} keys do not fit into a buffer of {places}")
    key, value = (append_keys(t, *pair, lambda n: dim(past), places) for pair in ((past_key, k), (past_value, v)))
    return past, t.slice(key, 2, 0, total), t.slice(value, 2, 0, total), key, value


@op("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_masked_attention(
    t: Tracer, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, mask_index: Tensor | None = None,
    attention_bias: Tensor | None = None, past_key: Tensor | None = None, past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None, beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None, bias: Tensor | None = None, *, mask_filter_value: float = -10000.0,
    num_heads: int, output_qk: int = 0, past_present_share_buffer: int = 0, scale: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """MultiHeadAttention of one query, with a buffer of keys. beam_width is redundant: it is a dim of
    cache_indirection.
    Shapes: query (N, 1, M), key and value likewise, or (N, H, T, D), or query alone (N, 1, 3·M)."""
    if past_present_share_buffer and past_key is not None and past_sequence_length is None:
        raise t.shape_error("past_present_share_buffer needs past_sequence_length")
    if key is None or value is None:
        third = t.divided(query.shape[2], 3, "features into query, key and value")
        query, key, value = (t.slice(query, 2, third * n, third) for n in range(3))
    length = past_sequence_length if past_present_share_buffer else None
    done = multi_head_attention(
        t, query, key, value, bias, mask_index, attention_bias, past_key, past_value, length, cache_indirection,
        mask_filter_value=mask_filter_value, num_heads=num_heads, scale=scale,
    )  # fmt: skip
    return done if output_qk else done[:3]


def _biases(
    t: Tracer, q: Tensor, k: Tensor, mask: Tensor | None, added: Tensor | None, value: float, past: AnyDim,
    causal: bool,
) -> list[Bias]:  # fmt: skip
    biases: list[Bias] = []
    if mask is not None:
        biases.append(padding_bias(t, mask, value, k.shape[2], q.shape[0]))
    require_bias(t, added, q.shape[2], k.shape[2])
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
    """One projection to query, key and value, then attention. Shapes: x (N, S, M), weights (M, 3·M), bias (3·M,), past
    (2, N, H, P, D) -> (N, S, M), present (2, N, H, P+S, D), or of past's shape with past_present_share_buffer."""
    if past_present_share_buffer and (past is None or past_sequence_length is None):
        raise t.shape_error("past_present_share_buffer needs past and past_sequence_length")
    joined = matmul(t, x, weights)
    t.require_shape("the bias", bias, joined.shape[-1:])
    joined = joined if bias is None else t.map(X + Y, joined, bias)
    return attend_joined(
        t, joined, mask_index, past, attention_bias, qkv_hidden_sizes, num_heads, scale, mask_filter_value,
        unidirectional == 1, past_sequence_length if past_present_share_buffer else None,
        rotary=rotary_embedding_dim if do_rotary == 1 else None,
    )  # fmt: skip


def attend_joined(
    t: Tracer, joined: Tensor, mask: Tensor | None, past: Tensor | None, added: Tensor | None,
    sizes: Sequence[int] | None, heads: int, scale: float, value: float, causal: bool, length: Tensor | None = None,
    *, rotary: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of query, key and value that are concatenated along the last axis: joined (N, S, 3·M) -> (N, S, M),
    present.

    length: number of past keys, if the past is the front of a buffer. rotary: the number of features to rotate (0: all;
    None: no rotary embedding)."""
    third = sh.floordiv(joined.shape[2], 3)
    widths: list[AnyDim] = [*t.entries("qkv_hidden_sizes", sizes, 3)] if sizes else [third, third, third]
    t.require_equal(sum(widths), joined.shape[2], "the sizes of query, key and value do not add up to the features")
    starts: list[AnyDim] = [0, widths[0], widths[0] + widths[1]]
    q, k, v = (split_heads(t, t.slice(joined, 2, s, n), heads) for s, n in zip(starts, widths, strict=True))
    if rotary is not None:
        before = 0 if past is None else past.shape[3] if length is None else t.ints(t.reshape(length, ()), 0)[0]
        q, k = (rotate_by_position(t, x, before, rotary or x.shape[3]) for x in (q, k))
    old_k, old_v = _unstacked(t, past, 0, 2) if past is not None else (None, None)
    before, k, v, *new = _with_past(t, k, v, old_k, old_v, length)
    done = attend(t, q, k, v, scale=scale or None, bias=chain(*_biases(t, q, k, mask, added, value, before, causal)))
    present = t.concat([t.unsqueeze(x, [0]) for x in new], 0) if any(t.wanted[1:]) else new[0]
    return merge_heads(t, done.out), present


@op("QAttention", domain=MICROSOFT)
def qattention(
    t: Tracer, x: Tensor, weight: Tensor, bias: Tensor, x_scale: Tensor, weight_scale: Tensor,
    mask_index: Tensor | None = None, x_zero_point: Tensor | None = None, weight_zero_point: Tensor | None = None,
    past: Tensor | None = None, *, do_rotary: int = 0, mask_filter_value: float = -10000.0, num_heads: int,
    past_present_share_buffer: int = 0, scale: float = 0.0, unidirectional: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention with a quantised projection. Shapes: as Attention's."""
    if past_present_share_buffer and past is not None:
        raise t.unsupported("past_present_share_buffer is not implemented", "no input gives the length of the past")
    joined = matmul_integer_to_float(t, x, weight, x_scale, weight_scale, x_zero_point, weight_zero_point, bias)
    return attend_joined(
        t, joined, mask_index, past, None, None, num_heads, scale, mask_filter_value, unidirectional == 1,
        rotary=0 if do_rotary == 1 else None,
    )  # fmt: skip
