"""Running sums and products, and determinants."""

from __future__ import annotations

from math import prod

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import binary, const, dim, guard
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.matrices import pivot_row

CUM_SUM = GradientRule[Tensor, int, int]()
CUM_PROD = GradientRule[Tensor, int, int]()
DET = GradientRule[Tensor, Tensor]()

_NEUTRAL = {"add": 0, "mul": 1}


def _running(t: Tracer, x: Tensor, axis: Tensor, reverse: int, exclusive: int, combine: str) -> Tensor:
    n = t.axis(t.static(axis)[0], x.rank)
    wide = t.cast(x, sum_type(x.dtype))
    rows = t.reshape(wide, [prod(x.shape[:n]), x.shape[n], prod(x.shape[n + 1 :])])
    return t.cast(t.reshape(running(t, rows, reverse, exclusive, combine), x.shape), x.dtype)


def running(t: Tracer, rows: Tensor, reverse: int, exclusive: int, combine: str) -> Tensor:
    """out[j] = x[0] ∘ … ∘ x[j] along axis 1 of three; exclusive: without x[j]; reverse: from the end."""
    length, inner = dim(rows.shape[1]), dim(rows.shape[2])
    neutral = const(_NEUTRAL[combine], rows.dtype)

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(rows.shape[0])) as row, k.loop(length) as j:
            at = k.let(length - 1 - j if reverse else j)
            before = k.let(at + 1 if reverse else at - 1)
            with k.loop(inner, "vector") as c:
                so_far = guard(j > 0, out.at(row, before, c), neutral)
                if exclusive:
                    last = guard(j > 0, rows.at(row, before, c), neutral)
                    k.store(out, (row, at, c), binary(combine, so_far, last))
                else:
                    k.store(out, (row, at, c), binary(combine, so_far, rows.at(row, at, c)))

    out = t.loops("running", [rows], [(rows.shape, rows.dtype)], body)[0]
    return t.own_gradient(out, CUM_SUM if combine == "add" else CUM_PROD, rows, reverse, exclusive)


@op("CumSum", since=11)
def cum_sum(t: Tracer, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(t, x, axis, reverse, exclusive, "add")


@op("CumProd", since=26)
def cum_prod(t: Tracer, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(t, x, axis, reverse, exclusive, "mul")


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
    t.own_gradient(out, DET, out, matrices)
    return t.cast(t.reshape(out, x.shape[:-2]), x.dtype)
