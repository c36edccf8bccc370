"""Elimination with row exchanges, on matrices of shape (B, n, n)."""

from __future__ import annotations

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, const, dim, select
from pyruntime.ir.kernel import Builder, Tensor

INVERSE = GradientRule[Tensor, Tensor]()


def pivot_row(k: Builder, a: Tensor, b: Expr, c: Expr, size: Expr) -> Expr:
    """The row at or below c with the largest magnitude in column c."""
    best = k.var(c, I32)
    with k.loop(size - c) as r:
        row = k.let(r + c)
        with k.when(abs(a.at(b, row, c)) > abs(a.at(b, best.get, c))):
            best.set(row)
    return k.let(best.get)


def inverted(t: Tracer, matrices: Tensor) -> Tensor:
    """The inverse of each matrix, by Gauss-Jordan elimination."""
    dtype, n = matrices.dtype, matrices.shape[-1]

    def body(k: Builder, out: Tensor, a: Tensor) -> None:
        size = dim(n)
        with k.parallel(dim(matrices.shape[0])) as b:
            with k.loop(size) as i, k.loop(size, "vector") as j:
                k.store(a, (b, i, j), matrices.at(b, i, j))
                k.store(out, (b, i, j), select(i == j, const(1, dtype), const(0, dtype)))
            with k.loop(size) as c:
                pivot = pivot_row(k, a, b, c, size)
                for m in (a, out):
                    with k.loop(size) as j:
                        upper, lower = k.let(m.at(b, c, j)), k.let(m.at(b, pivot, j))
                        k.store(m, (b, pivot, j), upper)
                        k.store(m, (b, c, j), lower)
                first = k.let(a.at(b, c, c))
                for m in (a, out):
                    with k.loop(size, "vector") as j:
                        k.store(m, (b, c, j), m.at(b, c, j) / first)
                with k.loop(size) as r, k.when(r != c):
                    factor = k.let(a.at(b, r, c))
                    for m in (a, out):
                        with k.loop(size, "vector") as j:
                            k.store(m, (b, r, j), m.at(b, r, j) - factor * m.at(b, c, j))

    like = [(matrices.shape, dtype)]
    out = t.loops("inverse", [matrices], like, body, like)[0]
    return t.own_gradient(out, INVERSE, out, matrices)
