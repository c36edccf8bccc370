"""Operators on tokens: hashes, repeated n-grams, alignments, a tokenizer.

Letters: B batch, S sequence, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyruntime.host.text  # noqa: F401  registers its functions
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.host.regex import compiled
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, I32, I64, STRING, U32
from pyruntime.ir.expr import Expr, bitcast, cast, const, dim, maximum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.random import mix_bits

# ── MurmurHash3 ───────────────────────────────────────────────────────────────────────────────────────────────────


def _rotate_left(x: Expr, by: int) -> Expr:
    return (x << by) | (x >> (32 - by))


def _murmur(words: Sequence[Expr], seed: int) -> Expr:
    """MurmurHash3_x86_32 of 32-bit words. Source: https://github.com/aappleby/smhasher/wiki/MurmurHash3"""
    h: Expr = const(seed, U32)
    for word in words:
        h = _rotate_left(h ^ (_rotate_left(word * 0xCC9E2D51, 15) * 0x1B873593), 13) * 5 + 0xE6546B64
    return mix_bits(h ^ const(4 * len(words), U32))


@op("MurmurHash3", domain=MICROSOFT)
def murmur_hash3(t: Tracer, x: Tensor, *, positive: int = 1, seed: int = 0) -> Tensor:
    """The hash of each element's bytes, as uint32 if `positive` is 1, else int32."""
    if x.dtype is STRING:
        codes = t.host("murmur_hash3", [x], [(x.shape, U32)], seed=seed & 0xFFFFFFFF)[0]
        return codes if positive == 1 else t.compute(x.shape, lambda *i: bitcast(codes.at(*i), I32))

    def body(*i: Expr) -> Expr:
        value = x.at(*i)
        if x.dtype.size == 8:
            value = bitcast(value, I64) if x.dtype.is_float else cast(value, I64)
            words = [cast(value, U32), cast(value >> 32, U32)]
        else:
            words = [bitcast(value, U32) if x.dtype.is_float else cast(value, U32)]
        h = _murmur(words, seed & 0xFFFFFFFF)
        return h if positive == 1 else bitcast(h, I32)

    return t.compute(x.shape, body)


# ── sequences ─────────────────────────────────────────────────────────────────────────────────────────────────────


@op("NGramRepeatBlock", domain=MICROSOFT)
def ngram_repeat_block(t: Tracer, input_ids: Tensor, scores: Tensor, *, ngram_size: int) -> Tensor:
    """The scores with -inf for each token that would repeat an n-gram of the sequence. Shapes: input_ids (B, S), scores
    (B, V)"""
    if ngram_size < 1:
        raise t.shape_error(f"ngram_size {ngram_size} must be at least 1")
    t.require_equal(input_ids.shape[0], scores.shape[0], "batches of input_ids and scores differ")
    length, vocabulary = dim(input_ids.shape[1]), scores.shape[1]
    # An n-gram longer than the sequence never occurs; the limit keeps indices within int32.
    size = dim(sh.minimum(min(ngram_size, 2**31 - 1), input_ids.shape[1] + 1))

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(scores.shape[0])) as b:
            with k.loop(vocabulary, "vector") as v:
                k.store(out, (b, v), scores.at(b, v))
            with k.loop(length - size + 1) as start:
                same = k.var(const(1, BOOL), BOOL)
                with k.loop(size - 1) as n:
                    same.set(same.get & (input_ids.at(b, start + n) == input_ids.at(b, length - size + 1 + n)))
                with k.when(same.get):
                    token = k.let(t.checked_index(input_ids.at(b, start + (size - 1)), vocabulary))
                    k.store(out, (b, token), const(-math.inf, scores.dtype))

    return t.loops("ngram_repeat_block", [input_ids, scores], [(scores.shape, scores.dtype)], body)[0]


@op("BifurcationDetector", domain=MICROSOFT)
def bifurcation_detector(
    t: Tracer, source: Tensor, current: Tensor, previous: Tensor, predicted: Tensor | None = None,
    *, max_ngram_size: int = 3, min_ngram_size: int = 1,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Appends to the current tokens the predicted ones that equal the source from `previous` on, and the first that
    differs. Then finds where the source continues the result: for the largest n such that the last n tokens occur in
    the source, the index after them; -1 if they occur more than once, or no n is possible.
    Shapes: source (S), current (C), previous (1), predicted (S + 1 - previous) -> (C + 1 and more), (1)"""
    if not 0 < min_ngram_size <= max_ngram_size:
        raise t.shape_error(f"min_ngram_size {min_ngram_size} and max_ngram_size {max_ngram_size} are not a range")
    tokens = current if predicted is None else _predicted(t, source, current, previous, predicted)
    t.require_equal(sh.size(previous.shape), 1, "prev_suffix_match_idx must be one number")
    extent, length = dim(source.shape[0]), dim(tokens.shape[0])
    sizes = sh.maximum(sh.minimum(tokens.shape[0], max_ngram_size) - min_ngram_size + 1, 0)

    def body(k: Builder, out: Tensor) -> None:
        found, over = k.var(-1, I32), k.var(0, I32)
        with k.loop(dim(sizes)) as size:
            n = k.let(size + min_ngram_size)
            with k.when(over.get == 0):
                count, first = k.var(0, I32), k.var(0, I32)
                with k.loop(extent - n + 1) as start:
                    same = k.var(1, I32)
                    with k.loop(n) as i:
                        same.set(same.get & cast(source.at(start + i) == tokens.at(length - n + i), I32))
                    with k.when(same.get != 0):
                        first.set(select(count.get == 0, start, first.get))
                        count.set(count.get + 1)
                found.set(select(count.get == 0, found.get, select(count.get == 1, first.get + n, -1)))
                over.set(cast((count.get == 0) | (first.get + n >= extent), I32))
        k.store(out, (0,), cast(found.get, I64))

    at = t.loops("suffix_match", [source, tokens], [((1,), I64)], body)[0]
    return tokens, t.reshape(at, previous.shape)


def _predicted(t: Tracer, source: Tensor, current: Tensor, previous: Tensor, predicted: Tensor) -> Tensor:
    """The current tokens and the accepted ones of the prediction."""
    start = t.ints(t.reshape(previous, ()), lower=0)[0]
    left = source.shape[0] - start
    t.require(sh.compare("le", 0, left), f"prev_suffix_match_idx {start} exceeds the length of the source")
    t.require_equal(predicted.shape[0], left + 1, "pred_tokens must be one longer than the rest of the source")

    def body(k: Builder, count: Tensor) -> None:
        accepted, same = k.var(1, I32), k.var(1, I32)
        with k.loop(dim(left)) as i:
            same.set(same.get & cast(predicted.at(i) == source.at(i + dim(start)), I32))
            accepted.set(accepted.get + same.get)
        k.store(count, (0,), cast(accepted.get, I64))

    accepted = t.ints(t.loops("bifurcation", [source, predicted], [((1,), I64)], body)[0], lower=1)[0]
    return t.concat([current, t.slice(predicted, 0, 0, accepted)], 0)


@op("DynamicTimeWarping", domain=MICROSOFT)
def dynamic_time_warping(t: Tracer, cost: Tensor) -> Tensor:
    """The cheapest path from the first cell to the last by steps down, right, or diagonally. A step to the right is
    taken whenever neither other step is strictly the cheapest, even at a higher cost, as in Whisper and ONNX Runtime.
    Shapes: cost (M, N) or (1, M, N) -> int32 (2, length): rows, columns"""
    rows, columns = cost.shape[-2:]
    grid = t.reshape(cost, (rows, columns))

    def body(k: Builder, path: Tensor, length: Tensor, best: Tensor) -> None:
        with k.loop(rows) as i, k.loop(columns) as j:
            up, left, corner = _costs(best, i, j)
            diagonal, upward = _steps(up, left, corner)
            before = select((i + j) == 0, 0.0, select(diagonal, corner, select(upward, up, left)))
            k.store(best, (i, j), grid.at(i, j) + before)
        _trace_back(k, path, length, best)

    outputs = [((2, rows + columns), I32), ((1,), I64)]
    path, length = t.loops("dynamic_time_warping", [grid], outputs, body, [((rows, columns), F32)])
    count = t.ints(length, lower=0)[0]
    return t.compute((2, count), lambda c, n: path.at(c, dim(count) - 1 - n))


def _costs(best: Tensor, i: Expr, j: Expr) -> tuple[Expr, Expr, Expr]:
    """The costs of the paths to the cells above, to the left, and diagonally before."""
    above, before = maximum(i - 1, 0), maximum(j - 1, 0)
    up = select(i > 0, best.at(above, j), math.inf)
    left = select(j > 0, best.at(i, before), math.inf)
    return up, left, select((i > 0) & (j > 0), best.at(above, before), math.inf)


def _steps(up: Expr, left: Expr, corner: Expr) -> tuple[Expr, Expr]:
    """Whether the path comes diagonally, and whether from above; else it comes from the left."""
    return (corner < up) & (corner < left), (up < corner) & (up < left)


def _trace_back(k: Builder, path: Tensor, length: Tensor, best: Tensor) -> None:
    """Stores the path from the last cell to the first; it ends when an index leaves the grid."""
    i, j, count = k.var(dim(best.shape[0]) - 1, I32), k.var(dim(best.shape[1]) - 1, I32), k.var(0, I32)
    with k.while_((i.get >= 0) & (j.get >= 0)):
        k.store(path, (0, count.get), i.get)
        k.store(path, (1, count.get), j.get)
        count.set(count.get + 1)
        up, left, corner = map(k.let, _costs(best, i.get, j.get))
        diagonal, upward = map(k.let, _steps(up, left, corner))
        last = k.let((i.get + j.get) == 0)
        i.set(i.get - cast(diagonal | upward | last, I32))
        j.set(j.get - cast(~upward | last, I32))
    k.store(length, (0,), cast(count.get, I64))


# ── Tokenizer ─────────────────────────────────────────────────────────────────────────────────────────────────────


@op("Tokenizer", domain=MICROSOFT)
def tokenizer(
    t: Tracer, x: Tensor, *, mark: int, mincharnum: int, pad_value: str, separators: Sequence[str] = (),
    tokenexp: str | None = None,
) -> Tensor:  # fmt: skip
    """Splits strings into tokens along a new last axis, padded to the longest: the text between matches of separators,
    or the matches of tokenexp. An empty separator alone, or tokenexp ".", gives characters. Shapes: (C), (N, C) -> (…,
    D)"""
    if bool(separators) == (tokenexp is not None):
        raise t.unsupported("exactly one of separators and tokenexp is needed")
    if "" in separators and len(separators) > 1:
        raise t.unsupported("an empty separator, which splits into characters, must be the only one")
    if mincharnum < 1:
        raise t.shape_error(f"mincharnum {mincharnum} must be at least 1")
    for pattern in separators if tokenexp is None else [tokenexp]:
        if compiled(pattern).reads_bytes:  # `compiled` refuses a bad pattern at compile time
            raise t.unsupported(f"pattern {pattern!r} matches parts of characters")
    attrs = {"mark": mark, "least": mincharnum, "pad": pad_value, "separators": tuple(separators), "tokens": tokenexp}
    return t.host("tokenize", [x], [((*x.shape, None), STRING)], **attrs)[0]
