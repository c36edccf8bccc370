"""Operators on strings. Moves and comparisons of strings are Map kernels as for other types; see
`passes/lowering/string_kernels.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import elementwise, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.host.regex import compiled
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, I32, I64, STRING
from pyruntime.ir.expr import X, Y, cast, dim, maximum, select
from pyruntime.ir.kernel import Builder, Tensor

elementwise("StringConcat", since=20, expr=X + Y)


@op("StringNormalizer", since=10)
def string_normalizer(
    t: Tracer, x: Tensor, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "",
    stopwords: Sequence[str] = (),
) -> Tensor:  # fmt: skip
    """Words without stop words, in upper or lower case. Case mapping is Unicode's, for any locale.
    Shapes: (C) -> (D), (1, C) -> (1, D). Spec: https://onnx.ai/onnx/operators/onnx__StringNormalizer.html"""
    if x.rank == 2:
        t.require_equal(x.shape[0], 1, "the first axis of a matrix must have 1 element")
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise t.unsupported(f"case_change_action {case_change_action!r} is not known")
    attrs = {"action": case_change_action, "case_sensitive": is_case_sensitive, "stopwords": tuple(stopwords)}
    return t.host("string_normalize", [x], [((*x.shape[:-1], None), STRING)], **attrs)[0]


@op("StringSplit", since=20)
def string_split(t: Tracer, x: Tensor, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Tensor, ...]:
    outputs = [((*x.shape, None), STRING), (x.shape, I64)]
    return t.host("string_split", [x], outputs, delimiter=delimiter, maxsplit=maxsplit)


@op("RegexFullMatch", since=20)
def regex_full_match(t: Tracer, x: Tensor, *, pattern: str = "") -> Tensor:
    """Whether the whole string matches a pattern in RE2's syntax.
    Spec: https://onnx.ai/onnx/operators/onnx__RegexFullMatch.html, https://github.com/google/re2/wiki/Syntax"""
    compiled(pattern)  # so that a bad pattern is refused at compile time
    return t.host("regex_full_match", [x], [(x.shape, BOOL)], pattern=pattern)[0]


# ── TfIdfVectorizer ───────────────────────────────────────────────────────────────────────────────────────────────


@op("TfIdfVectorizer", since=9)
def tfidf_vectorizer(
    t: Tracer, x: Tensor, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: Sequence[int], ngram_indexes: Sequence[int], pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (), weights: Sequence[float] = (),
) -> Tensor:  # fmt: skip
    """How often each n-gram of the pool occurs in a row, with up to max_skip_count items between its items. Mode TF
    gives the counts, IDF the weight of each n-gram that occurs, TFIDF counts x weights.

    Shapes: (C) -> (size), (B, C) -> (B, size), size = max(ngram_indexes) + 1
    Spec:   https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html"""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise t.unsupported(f"mode {mode!r} is not known")
    if bool(pool_strings) == bool(pool_int64s) or bool(pool_strings) != (x.dtype is STRING):
        raise t.unsupported(f"a pool of {'strings' if pool_strings else 'integers'} for an input of {x.dtype}")
    pool: Sequence[int] = pool_int64s
    if x.dtype is STRING:
        keys = tuple(dict.fromkeys(pool_strings))
        pool = [keys.index(s) for s in pool_strings]
        x = t.host("find_keys", [x], [(x.shape, I64)], keys=keys)[0]
    rows = t.cast(t.unsqueeze(x, [0]) if x.rank == 1 else x, I64)
    grams = _grams(t, pool, ngram_counts, ngram_indexes, min_gram_length, max_gram_length)
    if weights and len(weights) != len(ngram_indexes):
        raise t.unsupported(f"{len(weights)} weights for {len(ngram_indexes)} n-grams")
    if any(n < 0 for n in ngram_indexes):
        raise t.unsupported(f"ngram_indexes has {min(ngram_indexes)}, which is not a column")
    size = max(ngram_indexes, default=-1) + 1
    counts = _count(t, rows, grams, size, sh.minimum(max_skip_count + 1, rows.shape[1]))
    if mode != "TF":
        scale = t.constant(weights or [1.0] * size, F32)
        counts = t.map(X * Y if mode == "TFIDF" else select(X > 0.0, Y, 0.0), counts, scale)
    return t.reshape(counts, (size,)) if x.rank == 1 else counts


def _grams(
    t: Tracer, pool: Sequence[int], starts: Sequence[int], columns: Sequence[int], shortest: int, longest: int
) -> dict[tuple[int, ...], int]:
    """n-gram -> column of the output. The pool lists the 1-grams, then the 2-grams, …; n-grams begin at starts[n -
    1]."""
    out: dict[tuple[int, ...], int] = {}
    number = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % n:
            raise t.unsupported(f"ngram_counts {list(starts)} do not cut a pool of {len(pool)} into whole n-grams")
        for at in range(start, end, n):
            if number == len(columns):
                raise t.unsupported(f"the pool has more n-grams than ngram_indexes, which has {number}")
            if shortest <= n <= longest:
                out[tuple(pool[at : at + n])] = columns[number]
            number += 1
    return out


def _count(t: Tracer, rows: Tensor, grams: dict[tuple[int, ...], int], size: int, skips: sh.AnyDim) -> Tensor:
    """The number of occurrences of each n-gram. Shapes: rows (B, C) -> float32 (B, size)"""
    items = t.constant([item for gram in grams for item in gram], I64)
    ends = [0]
    for gram in grams:
        ends.append(ends[-1] + len(gram))
    bounds, columns = t.constant(ends, I32), t.constant(list(grams.values()), I32)
    batch, length = rows.shape

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(batch) as b:
            with k.loop(size, "vector") as o:
                k.store(out, (b, o), 0.0)
            with k.loop(len(grams)) as g:
                first = k.let(bounds[g])
                n = k.let(bounds[g + 1] - first)
                count = k.var(0, I32)
                with k.loop(select(n < 2, 1, dim(skips))) as skip:
                    step = skip + 1
                    with k.loop(maximum(dim(length) - step * (n - 1), 0)) as at:
                        equal = k.var(0, I32)
                        with k.loop(n) as m:
                            same = rows[b, at + m * step] == items[first + m]
                            equal.set(equal.get + cast(same, I32))
                        count.set(count.get + cast(equal.get == n, I32))
                k.store(out, (b, columns[g]), out[b, columns[g]] + cast(count.get, F32))

    return t.loops("tfidf", [rows, items, bounds, columns], [((batch, size), F32)], body)[0]
