"""Scaled dot-product attention as products, maps and reductions.

Letters: N batch, H heads, G key heads (each serves H / G query heads), S queries, P past keys, T keys, D head size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BF16, BOOL, F16, F32, F64, DType
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, exp, guard, maximum, select, sqrt, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import float_type
from pyruntime.ops.standard.cast import float_of
from pyruntime.ops.standard.matmul import product

Bias = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]  # (score, n, h, s, t) -> masked score; -inf excludes a key
MASKED = -math.inf


@dataclass(frozen=True, slots=True)
class Attended:
    """The result (N, H, S, Dv) and the intermediate stages (N, H, S, T)."""

    out: Tensor
    raw: Tensor
    capped: Tensor
    biased: Tensor
    probabilities: Tensor


def attend(
    t: Tracer, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, softcap: float = 0.0,
    bias: Bias | None = None, precision: DType | None = None, sink: Callable[[Expr], Expr] | None = None,
) -> Attended:  # fmt: skip
    """softmax(bias(softcap(q·kᵀ·scale)))·v. Rows without any key give 0. `sink(h)` is an additional logit per row that
    takes probability but adds no value. A scale of None means 1/√D; only Microsoft's operators write 0 for it.

    Shapes: q (N, H, S, D), k (N, G, T, D), v (N, G, T, Dv)"""
    require_values(t, k, v)
    factor = default_scale(q.shape[3], q.dtype) if scale is None else scale
    raw = t.map(X * factor, shared_product(t, q, t.transpose(k, [0, 1, 3, 2])))
    capped = t.map(tanh(X / softcap) * softcap, raw) if softcap > 0 else raw
    biased = capped
    if bias is not None:
        fn = bias
        biased = t.compute(capped.shape, lambda n, h, i, j: fn(capped.at(n, h, i, j), n, h, i, j))
    logits = biased if precision not in (F16, BF16) or precision is None else t.cast(t.cast(biased, precision), F32)
    probabilities = masked_softmax(t, logits if precision is not F64 else t.cast(logits, F64), sink)
    weights = t.cast(probabilities, v.dtype)
    return Attended(t.cast(shared_product(t, weights, v), q.dtype), raw, capped, biased, probabilities)


def require_values(t: Tracer, k: Tensor, v: Tensor) -> None:
    """Refuse values unless there is one per key."""
    t.require_shape("the values", v, (*k.shape[:3], v.shape[-1]))


def default_scale(head: AnyDim, dtype: DType) -> float | Expr:
    """1/√D for a head size D, evaluated at run time if D is dynamic; 1 if D is 0, where all scores are 0."""
    if isinstance(head, int):
        return 1.0 / math.sqrt(head or 1)
    wide = float_type(dtype)  # products of half floats are float32
    return 1.0 / sqrt(maximum(cast(dim(head), wide), const(1.0, wide)))


def shared_product(t: Tracer, a: Tensor, b: Tensor) -> Tensor:
    """a·b, where each of b's G heads serves H / G consecutive heads of a: their rows form one matrix."""
    if not a.rank == b.rank == 4:
        raise t.shape_error(f"operands of rank {a.rank} and {b.rank}, must have 4: batch, heads, rows and features")
    t.require_equal(a.shape[0], b.shape[0], "operands differ in the batch")
    n, heads, rows, inner = a.shape
    groups = b.shape[1]
    if heads == groups:
        return product(t, a, b)
    share = sh.floordiv(heads, groups)
    t.require(sh.compare("eq", share * groups, heads), f"{heads} heads are not a multiple of {groups}")
    y = product(t, t.reshape(a, (n, groups, share * rows, inner)), b)
    return t.reshape(y, (n, heads, rows, b.shape[3]))


def masked_softmax(t: Tracer, x: Tensor, sink: Callable[[Expr], Expr] | None = None) -> Tensor:
    """Softmax over the last axis of (N, H, S, T); a row of -inf gives 0."""
    peak = t.reduce("max", x, [-1])
    if sink is not None:
        extra = sink
        high = peak
        peak = t.compute(high.shape, lambda n, h, i, j: maximum(high.at(n, h, i, j), cast(extra(h), x.dtype)))
    e = t.map(exp(X - select(Y == MASKED, 0.0, Y)), x, peak)
    total = t.reduce("sum", e, [-1])
    if sink is not None:
        extra, sums, top = sink, total, peak
        total = t.compute(
            sums.shape, lambda n, h, i, j: sums.at(n, h, i, j) + exp(cast(extra(h), x.dtype) - top.at(n, h, i, j))
        )
    return t.map(X / select(Y == 0.0, 1.0, Y), e, total)


def split_heads(t: Tracer, x: Tensor, heads: int) -> Tensor:
    """(N, S, H·D) -> (N, H, S, D)."""
    size = sh.floordiv(x.shape[2], heads)
    t.require(sh.compare("eq", size * heads, x.shape[2]), f"{x.shape[2]} features are not a multiple of {heads} heads")
    return t.transpose(t.reshape(x, (*x.shape[:2], heads, size)), [0, 2, 1, 3])


def merge_heads(t: Tracer, x: Tensor) -> Tensor:
    """(N, H, S, D) -> (N, S, H·D)."""
    n, h, s, d = x.shape
    return t.reshape(t.transpose(x, [0, 2, 1, 3]), (n, s, h * d))


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def require_bias(t: Tracer, added: Tensor | None, rows: AnyDim, keys: AnyDim) -> None:
    """Refuse an attention_bias unless it has a row per query and a column per key, as Microsoft's operators demand."""
    if added is not None:
        t.require_equal(added.shape[2], rows, "attention_bias must have a row for each query")
        t.require_equal(added.shape[3], keys, "attention_bias must have a column for each key")


def add_mask(t: Tracer, mask: Tensor, shape: sh.Shape) -> Bias:
    """A bool mask excludes keys where it is false; a mask of numbers is added. Its last axis may be shorter than the
    keys."""
    last = mask.shape[-1]
    t.require(sh.compare("le", last, shape[-1]), f"the mask has {last} columns for {shape[-1]} keys")
    padded = last != shape[-1]

    def bias(score: Expr, n: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        m = t.aligned(mask, (*shape[:-1], last), [n, h, i, j])
        if mask.dtype is BOOL:
            return select(guard(j < dim(last), m, const(False, BOOL)) if padded else m, score, MASKED)
        m = cast(m, score.dtype)
        m = guard(j < dim(last), m, MASKED) if padded else m
        return select(m == MASKED, MASKED, score + m)

    return bias


def window_mask(offset: Callable[[Expr], Expr], left: int, right: int) -> Bias:
    """Query i is at position offset(n) + i and sees `left` keys before it and `right` after it (-1: all)."""

    def bias(score: Expr, n: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        place = i + offset(n)
        if right >= 0:
            score = select(j <= place + right, score, MASKED)
        return select(j >= place - left, score, MASKED) if left >= 0 else score

    return bias


def length_mask(length: Callable[[Expr], Expr]) -> Bias:
    """Excludes all but the first length(n) keys."""
    return lambda score, n, h, i, j: select(j < length(n), score, MASKED)


def behind(padding: Callable[[Expr], Expr]) -> Bias:
    """Excludes the first padding(n) keys."""
    return lambda score, n, h, i, j: select(j >= padding(n), score, MASKED)


def chain(*biases: Bias) -> Bias | None:
    """Applies all biases in turn; None without any."""
    if not biases:
        return None

    def bias(score: Expr, n: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        for one in biases:
            score = one(score, n, h, i, j)
        return score

    return bias


def window_biases(offset: Callable[[Expr], Expr], causal: bool, left: int = -1, right: int = -1) -> list[Bias]:
    """The mask for a window and causality, if either limits the keys."""
    limits = [r for r in (right, 0 if causal else -1) if r >= 0]
    if left < 0 and not limits:
        return []
    return [window_mask(offset, left, min(limits, default=-1))]


# ── the operator ──────────────────────────────────────────────────────────────────────────────────────────────────


@op("Attention", since=23)
def attention(
    t: Tracer, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, nonpad_kv_seqlen: Tensor | None = None, *, is_causal: int = 0,
    kv_num_heads: int = 0, left_window_size: int = -1, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    right_window_size: int = -1, scale: float | None = None, softcap: float = 0.0, softmax_precision: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """softmax(mask(softcap(q·kᵀ·scale)))·v over past and present keys.
    Shapes: q (N, H, S, D) or (N, S, H·D); k, v (N, G, T, D) or (N, T, G·D); past (N, G, P, D)
    -> y as q, present_key and present_value (N, G, P+T, D), scores (N, H, S, P+T) at the stage that
    qk_matmul_output_mode selects
    Spec: https://onnx.ai/onnx/operators/onnx__Attention.html"""
    if (past_key is None) != (past_value is None):
        raise t.shape_error("past_key and past_value must both be given, or neither")
    if not 0 <= qk_matmul_output_mode <= 3:
        raise t.unsupported(f"qk_matmul_output_mode {qk_matmul_output_mode} is not known")
    flat = q.rank == 3
    if flat:
        if not (q_num_heads and kv_num_heads):
            raise t.unsupported("3-D inputs need q_num_heads and kv_num_heads")
        q, k, v = split_heads(t, q, q_num_heads), split_heads(t, k, kv_num_heads), split_heads(t, v, kv_num_heads)
    past: AnyDim = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = t.concat([past_key, k], 2), t.concat([past_value, v], 2)
    rows = q.shape[2]
    lengths = nonpad_kv_seqlen
    offset: Callable[[Expr], Expr] = lambda n: dim(past)  # noqa: E731
    biases: list[Bias] = [] if attn_mask is None else [add_mask(t, attn_mask, (*q.shape[:3], k.shape[2]))]
    if attn_mask is not None and t.opset < 24:  # opset 24 permits shorter masks
        t.require_equal(attn_mask.shape[-1], k.shape[2], "the mask must have a column for each key")
    if lengths is not None:
        count, most = lengths, k.shape[2]
        t.require_equal(sh.size(count.shape), q.shape[0], "nonpad_kv_seqlen must have one element per batch item")

        def length(n: Expr) -> Expr:
            return t.checked_index(count.at(n), most + 1)

        biases.append(length_mask(length))
        if past_key is None:
            offset = lambda n: length(n) - dim(rows)  # noqa: E731
    biases += window_biases(offset, bool(is_causal), left_window_size, right_window_size)
    precision = float_of(t, softmax_precision) if softmax_precision else None
    done = attend(t, q, k, v, scale=scale, softcap=softcap, bias=chain(*biases), precision=precision)
    stage = (done.raw, done.capped, done.biased, done.probabilities)[qk_matmul_output_mode]
    return merge_heads(t, done.out) if flat else done.out, k, v, t.cast(stage, q.dtype)
