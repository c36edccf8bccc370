"""Operators on strings. Moves and comparisons of strings are Map kernels as for other types; see
`passes/lowering/string_kernels.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyruntime.host.text  # noqa: F401  registers its functions
from pyruntime.frontend.registry import elementwise, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.host.regex import compiled
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, I32, I64, STRING
from pyruntime.ir.expr import X, Y, dim, maximum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.keys import positions

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
    rows = t.unsqueeze(x, [0]) if x.rank == 1 else x
    grams = _grams(t, pool_strings or pool_int64s, ngram_counts, ngram_indexes, min_gram_length, max_gram_length)
    items = list(dict.fromkeys([*[gram[0] for gram in grams], *[item for gram in grams for item in gram]]))
    numbers = {item: n for n, item in enumerate(items)}
    found = positions(t, rows if x.dtype is STRING else t.cast(rows, I64), items)
    tree = _tree({tuple([numbers[item] for item in gram]): column for gram, column in grams.items()})
    if weights and len(weights) != len(ngram_indexes):
        raise t.unsupported(f"{len(weights)} weights for {len(ngram_indexes)} n-grams")
    if any(n < 0 for n in ngram_indexes):
        raise t.unsupported(f"ngram_indexes has {min(ngram_indexes)}, which is not a column")
    size = max(ngram_indexes, default=-1) + 1
    skips = sh.minimum(max_skip_count + 1, rows.shape[1]) if any(len(gram) > 1 for gram in grams) else 1
    counts = _count(t, t.cast(found, I32), tree, size, skips)
    if mode != "TF":
        scale = t.constant(weights or [1.0] * size, F32)
        counts = t.map(X * Y if mode == "TFIDF" else select(X > 0.0, Y, 0.0), counts, scale)
    return t.reshape(counts, (size,)) if x.rank == 1 else counts


def _grams(
    t: Tracer, pool: Sequence[Any], starts: Sequence[int], columns: Sequence[int], shortest: int, longest: int
) -> dict[tuple[Any, ...], int]:
    """n-gram -> column of the output. The pool lists the 1-grams, then the 2-grams, …; n-grams begin at starts[n -
    1]."""
    out: dict[tuple[Any, ...], int] = {}
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


@dataclass(frozen=True, slots=True)
class _Tree:
    """The n-grams as a tree of numbers of items, level by level. Of node n: its item, the column of the n-gram ending
    there or -1, and its first child. The children of a node are sorted by item and end where those of the next begin.
    roots: the number of nodes of the first level; their items are numbered 0, 1, …"""

    roots: int
    items: list[int]
    columns: list[int]
    children: list[int]


def _tree(grams: dict[tuple[int, ...], int]) -> _Tree:
    top: dict[int, Any] = {}
    for gram, column in grams.items():
        level = top
        for item in gram[:-1]:
            level = level.setdefault(item, (-1, {}))[1]
        level[gram[-1]] = column, level.get(gram[-1], (-1, {}))[1]
    tree = _Tree(len(top), [], [], [])
    levels = [top]
    after = len(top)
    for level in levels:  # grows
        for item in sorted(level):
            column, inner = level[item]
            tree.items.append(item)
            tree.columns.append(column)
            tree.children.append(after)
            after += len(inner)
            if inner:
                levels.append(inner)
    tree.children.append(after)
    return tree


def _count(t: Tracer, rows: Tensor, tree: _Tree, size: int, skips: sh.AnyDim) -> Tensor:
    """The number of occurrences of each n-gram. From each item on, and for each distance between items, the n-grams of
    the pool are looked up in a tree, so that the time does not grow with the pool.
    Shapes: rows (B, C), numbers of items or -1 -> float32 (B, size)"""
    items, columns, children = (t.constant(v or [0], I32) for v in (tree.items, tree.columns, tree.children))
    batch, length = rows.shape

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(batch) as b:
            with k.loop(size, "vector") as o:
                k.store(out, (b, o), 0.0)
            with k.loop(dim(skips)) as skip, k.loop(dim(length)) as start:
                first = k.let(rows[b, start])  # number of a child of the root, or of something else
                place, low = k.var(start, I32), k.var(maximum(first, 0), I32)
                high = k.var(select((first >= 0) & (first < tree.roots), first + 1, 0), I32)
                with k.while_((place.get < dim(length)) & (low.get < high.get)):
                    item = k.let(rows[b, place.get])
                    with k.while_(low.get + 1 < high.get):
                        middle = k.let((low.get + high.get) >> 1)
                        with k.when(items[middle] <= item):
                            low.set(middle)
                        with k.otherwise():
                            high.set(middle)
                    node = k.let(low.get)
                    column = k.let(columns[node])
                    equal = k.let(items[node] == item)
                    with k.when(equal & (column >= 0) & ((skip == 0) | (place.get > start))):
                        k.store(out, (b, column), out[b, column] + 1.0)
                    low.set(children[node])
                    high.set(select(equal, children[node + 1], 0))
                    place.set(place.get + skip + 1)

    return t.loops("tfidf", [rows, items, columns, children], [((batch, size), F32)], body)[0]
