"""Running sums and products, and determinants."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, const, dim, guard
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import sum_type

Combine = Callable[[Expr, Expr], Expr]


def _running(
    t: Tracer, x: Tensor, axis: Tensor, reverse: int, exclusive: int, neutral: int, combine: Combine
) -> Tensor:
    """out[j] = x[0] ∘ … ∘ x[j] along an axis; exclusive: without x[j]; reverse: from the end."""
    n = t.axis(t.static(axis)[0], x.rank)
    wide = t.cast(x, sum_type(x.dtype))
    rows = t.reshape(wide, [prod(x.shape[:n]), x.shape[n], prod(x.shape[n + 1 :])])
    length, inner = dim(rows.shape[1]), dim(rows.shape[2])

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(rows.shape[0])) as row, k.loop(length) as j:
            at = k.let(length - 1 - j if reverse else j)
            before = k.let(at + 1 if reverse else at - 1)
            with k.loop(inner, "vector") as c:
                so_far = guard(j > 0, out.at(row, before, c), const(neutral, wide.dtype))
                if exclusive:
                    last = guard(j > 0, rows.at(row, before, c), const(neutral, wide.dtype))
                    k.store(out, (row, at, c), combine(so_far, last))
                else:
                    k.store(out, (row, at, c), combine(so_far, rows.at(row, at, c)))

    out = t.loops("running", [rows], [(rows.shape, rows.dtype)], body)[0]
    return t.cast(t.reshape(out, x.shape), x.dtype)


@op("CumSum", since=11)
def cum_sum(t: Tracer, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(t, x, axis, reverse, exclusive, 0, lambda a, b: a + b)


@op("CumProd", since=26)
def cum_prod(t: Tracer, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(t, x, axis, reverse, exclusive, 1, lambda a, b: a * b)


@op("Det", since=11)
def det(t: Tracer, x: Tensor) -> Tensor:
    """The determinant, by elimination with row exchanges. Shapes: (*B, n, n) -> (*B)."""
    n = x.shape[-1]
    t.require_equal(x.shape[-2], n, "a determinant needs square matrices")
    wide = t.cast(x, sum_type(x.dtype))
    batch = prod(x.shape[:-2])
    matrices = t.reshape(wide, [batch, n, n])

    def body(k: Builder, out: Tensor, a: Tensor) -> None:
        size = dim(n)
        with k.parallel(dim(batch)) as b:
            with k.loop(size) as i, k.loop(size, "vector") as j:
                k.store(a, (b, i, j), matrices.at(b, i, j))
            value = k.var(1.0, wide.dtype)
            with k.loop(size) as c:
                pivot = pivot_row(k, a, b, c, size)
                with k.when(pivot != c):
                    value.set(-value.get)
                    with k.loop(size) as j:
                        upper, lower = k.let(a.at(b, c, j)), k.let(a.at(b, pivot, j))
                        k.store(a, (b, c, j), lower)
                        k.store(a, (b, pivot, j), upper)
                value.set(value.get * a.at(b, c, c))
                with k.when(a.at(b, c, c) != 0.0), k.loop(size - 1 - c) as r:
                    row = k.let(r + c + 1)
                    factor = k.let(a.at(b, row, c) / a.at(b, c, c))
                    with k.loop(size) as j:
                        k.store(a, (b, row, j), a.at(b, row, j) - factor * a.at(b, c, j))
            k.store(out, (b,), value.get)

    scratch = [(matrices.shape, wide.dtype)]
    out = t.loops("det", [matrices], [((batch,), wide.dtype)], body, scratch)[0]
    return t.cast(t.reshape(out, x.shape[:-2]), x.dtype)


def pivot_row(k: Builder, a: Tensor, b: Expr, c: Expr, size: Expr) -> Expr:
    """The row at or below c with the largest magnitude in column c."""
    best = k.var(c, I32)
    with k.loop(size - c) as r:
        row = k.let(r + c)
        with k.when(abs(a.at(b, row, c)) > abs(a.at(b, best.get, c))):
            best.set(row)
    return k.let(best.get)
