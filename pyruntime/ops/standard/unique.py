"""Unique, NonZero, Compress: operators whose number of results is known only at run time."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, I64
from pyruntime.ir.expr import Expr, cast, const, dim, guard, minimum
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.standard.index import nest
from pyruntime.ops.standard.sort import less, same


def nonzero_flag(e: Expr) -> Expr:
    return e if e.dtype is BOOL else e != 0


def _count(t: Tracer, flags: Tensor) -> AnyDim:
    """The number of true flags, as a dim."""
    total = t.reduce_compute("sum", (), flags.shape, lambda *i: cast(nonzero_flag(flags.at(*i)), I64))
    return t.ints(total, lower=0)[0]


@op("NonZero", since=9)
def nonzero(t: Tracer, x: Tensor) -> Tensor:
    """The coordinates of the nonzero elements, row-major. Shapes: x -> (rank, count)."""
    x = t.reshape(x, [1]) if x.rank == 0 else x
    count = _count(t, x)

    def body(k: Builder, out: Tensor) -> None:
        column = k.var(0, I32)
        with nest(k, x.shape) as at, k.when(nonzero_flag(x.at(*at))):
            for n, c in enumerate(at):
                k.store(out, (n, column.get), cast(c, I64))
            column.set(column.get + 1)

    return t.loops("nonzero", [x], [((x.rank, count), I64)], body)[0]


@op("Compress", since=9)
def compress(t: Tracer, x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """The slices along an axis (default: elements of the flattened tensor) whose condition is true."""
    x = t.reshape(x, [sh.size(x.shape)]) if axis is None else x
    axis = t.axis(axis or 0, x.rank)
    length = sh.minimum(condition.shape[0], x.shape[axis])
    places = nonzero(t, t.slice(condition, 0, 0, length))
    shape = [*x.shape[:axis], places.shape[1], *x.shape[axis + 1 :]]
    return t.compute(shape, lambda *i: x.at(*i[:axis], cast(places.at(0, i[axis]), I32), *i[axis + 1 :]))


# ── Unique ────────────────────────────────────────────────────────────────────────────────────────────────────────

Before = Callable[[Builder, Expr, Expr], Expr]


def argsort(t: Tracer, x: Tensor, count: AnyDim, before: Before) -> Tensor:
    """The stable order (int32) of `count` items by a strict comparison, from a merge sort."""

    def body(k: Builder, order: Tensor, spare: Tensor) -> None:
        n = dim(count)
        with k.loop(n) as i:
            k.store(order, (i,), i)
        width = k.var(1, I32)
        with k.while_(width.get < n):
            runs = (n + width.get * 2 - 1) / (width.get * 2)
            with k.loop(runs) as run:
                start = k.let(run * width.get * 2)
                middle = k.let(minimum(start + width.get, n))
                _merge(k, order, spare, start, middle, k.let(minimum(middle + width.get, n)), before)
            with k.loop(n, "vector") as i:
                k.store(order, (i,), spare.at(i))
            width.set(width.get * 2)

    return t.loops("argsort", [x], [((count,), I32)], body, [((count,), I32)])[0]


def _merge(k: Builder, order: Tensor, out: Tensor, start: Expr, middle: Expr, end: Expr, before: Before) -> None:
    left, right = k.var(start, I32), k.var(middle, I32)
    with k.loop(end - start) as n:
        take_right = k.var(left.get >= middle, BOOL)
        with k.when((left.get < middle) & (right.get < end)):
            take_right.set(before(k, k.let(order.at(right.get)), k.let(order.at(left.get))))
        with k.when(take_right.get):
            k.store(out, (start + n,), order.at(right.get))
            right.set(right.get + 1)
        with k.otherwise():
            k.store(out, (start + n,), order.at(left.get))
            left.set(left.get + 1)


def _first_difference(k: Builder, rows: Tensor, a: Expr, b: Expr) -> Expr:
    """The first column where two rows differ, or their width."""
    width = dim(rows.shape[1])
    j = k.var(0, I32)
    with k.while_(guard(j.get < width, same(rows.at(a, j.get), rows.at(b, j.get)), const(False, BOOL))):
        j.set(j.get + 1)
    return k.let(j.get)


def _row_before(rows: Tensor) -> Before:
    def before(k: Builder, a: Expr, b: Expr) -> Expr:
        j = _first_difference(k, rows, a, b)
        return guard(j < dim(rows.shape[1]), less(rows.at(a, j), rows.at(b, j)), const(False, BOOL))

    return before


@op("Unique", since=11)
def unique(t: Tracer, x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The distinct elements (or slices along an axis), the index of the first occurrence of each, for each input its
    index among them, and their counts.
    Spec: https://onnx.ai/onnx/operators/onnx__Unique.html"""
    if axis is None:
        rows = t.reshape(x, [sh.size(x.shape), 1])
        others: list[AnyDim] = []
    else:
        axis = t.axis(axis, x.rank)
        perm = [axis, *[n for n in range(x.rank) if n != axis]]
        others = [x.shape[n] for n in perm[1:]]
        rows = t.reshape(t.transpose(x, perm), [x.shape[axis], prod(others)])
    firsts, inverse, counts = _groups(t, rows, argsort(t, rows, rows.shape[0], _row_before(rows)))
    if not sorted:
        firsts, inverse, counts = _by_appearance(t, firsts, inverse, counts)
    picked = t.compute([firsts.shape[0], rows.shape[1]], lambda i, j: rows.at(cast(firsts.at(i), I32), j))
    y = t.reshape(picked, [firsts.shape[0], *others])
    if axis:
        y = t.transpose(y, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)])
    return y, firsts, inverse, counts


def _groups(t: Tracer, rows: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers the runs of equal rows in sorted order: first row of each group, group of each row, size of each
    group."""
    n = rows.shape[0]

    def number(k: Builder, group: Tensor, total: Tensor) -> None:
        last = k.var(-1, I32)
        with k.loop(dim(n)) as i:
            new = k.var(i < 1, BOOL)
            with k.when(i > 0):
                j = _first_difference(k, rows, k.let(order.at(i - 1)), k.let(order.at(i)))
                new.set(j < dim(rows.shape[1]))
            last.set(last.get + cast(new.get, I32))
            k.store(group, (i,), last.get)
        k.store(total, (), cast(last.get + 1, I64))

    group, total = t.loops("group_rows", [rows, order], [((n,), I32), ((), I64)], number)
    count = t.ints(total, lower=0)[0]

    def collect(k: Builder, firsts: Tensor, inverse: Tensor, counts: Tensor) -> None:
        with k.loop(dim(count)) as g:
            k.store(counts, (g,), 0)
        with k.loop(dim(n)) as r:
            i = k.let(dim(n) - 1 - r)
            g, source = k.let(group.at(i)), k.let(order.at(i))
            k.store(firsts, (g,), cast(source, I64))  # backwards, so that the first row of each group is stored last
            k.store(inverse, (source,), cast(g, I64))
            k.store(counts, (g,), counts.at(g) + 1)

    firsts, inverse, counts = t.loops(
        "collect_groups", [order, group], [((count,), I64), ((n,), I64), ((count,), I64)], collect
    )
    return firsts, inverse, counts


def _by_appearance(t: Tracer, firsts: Tensor, inverse: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The groups in the order of their first elements."""
    m = firsts.shape[0]
    order = argsort(t, firsts, m, lambda k, a, b: k.let(firsts.at(a) < firsts.at(b)))

    def invert(k: Builder, rank: Tensor) -> None:
        with k.loop(dim(m)) as i:
            k.store(rank, (order.at(i),), i)

    rank = t.loops("invert", [order], [((m,), I32)], invert)[0]
    return (
        t.compute((m,), lambda i: firsts.at(order.at(i))),
        t.compute(inverse.shape, lambda i: cast(rank.at(cast(inverse.at(i), I32)), I64)),
        t.compute((m,), lambda i: counts.at(order.at(i))),
    )
