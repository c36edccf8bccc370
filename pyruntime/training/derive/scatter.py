"""The procedure "scatter_add": adds values at coordinates, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import reduce
from operator import and_

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, const, dim, minimum, substitute, uses_index
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim, Shape
from pyruntime.training.derive.derivative import zero_like

SCATTER_ADD = GradientRule[Expr, Sequence[Expr], Sequence[AnyDim], Sequence[Expr]]()
BLOCK = 64  # elements that one work unit of a scatter takes of an axis that is a coordinate of its own


def scattered(
    t: Tracer, shape: Shape, coords: Sequence[Expr], value: Expr, extents: Sequence[AnyDim], inside: Sequence[Expr]
) -> Tensor:
    """A tensor of zeros to which value(i) is added at coords(i), for all i in extents where `inside` holds.

    If the value is 0 under a condition, its coordinates are not evaluated there: the index of an ignored label may be
    out of range."""
    value, conditions = _without_zeros(value)
    inside = [*inside, *conditions]
    return _Scatter(shape, coords, value, extents, inside).record(t)


def _without_zeros(value: Expr) -> tuple[Expr, list[Expr]]:
    conditions: list[Expr] = []
    while value.op in ("guard", "select"):
        condition, yes, no = value.args
        if _is_zero(no):
            conditions.append(condition)
            value = yes
        elif _is_zero(yes):
            conditions.append(~condition)
            value = no
        else:
            break
    return value, conditions


def _is_zero(e: Expr) -> bool:
    return e.op == "const" and e.value == 0


class _Scatter:
    def __init__(
        self, shape: Shape, coords: Sequence[Expr], value: Expr, extents: Sequence[AnyDim], inside: Sequence[Expr]
    ) -> None:
        self.shape, self.coords, self.value, self.extents, self.inside = shape, coords, value, extents, inside
        # `axis` of the nest is coordinate `place` as it is, so that work units and lanes can divide it
        self.place = next((n for n in reversed(range(len(coords))) if self._is_own(n)), None)
        self.axis = None if self.place is None else coords[self.place].value

    def _is_own(self, n: int) -> bool:
        c = self.coords[n]
        if c.op != "index" or self.shape[n] != self.extents[c.value]:
            return False
        return not any(uses_index(other, c.value) for m, other in enumerate(self.coords) if m != n)

    def record(self, t: Tracer) -> Tensor:
        args = dict.fromkeys([x for e in (self.value, *self.coords, *self.inside) for x in e.tensors()])
        (out,) = t.loops("scatter_add", tuple(args), [(self.shape, self.value.dtype)], self._body)
        t.own_gradient(out, SCATTER_ADD, self.value, self.coords, self.extents, self.inside)
        return out

    def _body(self, k: Builder, out: Tensor) -> None:
        if self.axis is None:
            self._add(k, out, const(0, I32), const(1, I32))
            return
        extent = self.extents[self.axis]
        with k.parallel(dim(sh.ceildiv(extent, BLOCK))) as block:
            low = k.let(block * BLOCK)
            self._add(k, out, low, k.let(minimum(dim(extent) - low, BLOCK)))

    def _add(self, k: Builder, out: Tensor, low: Expr, count: Expr) -> None:
        rank = len(self.shape)
        with nest(k, [n for n in range(rank) if n != self.place], self.shape) as at:
            with _lanes(k, self.place, low, count) as last:
                k.store(out, [(at | last)[n] for n in range(rank)], zero_like(self.value))
        others = [a for a in range(len(self.extents)) if a != self.axis]
        with (
            nest(k, others, self.extents) as at,
            when(k, [substitute(c, at) for c in self.inside if not self._varies(c)]),
        ):
            late = [c for c in self.inside if self._varies(c)]
            where = [c if self._varies(c) or late else k.let(substitute(c, at)) for c in self.coords]
            with _lanes(k, self.axis, low, count) as last:
                at |= last
                with when(k, [substitute(c, at) for c in late]):
                    there = [substitute(c, at) for c in where]
                    k.store(out, there, out.at(*there) + substitute(self.value, at))

    def _varies(self, e: Expr) -> bool:
        return self.axis is not None and uses_index(e, self.axis)


@contextmanager
def nest(k: Builder, axes: Sequence[int], shape: Sequence[AnyDim]) -> Iterator[dict[int, Expr]]:
    """Nested loops over some axes of a shape; gives the variable of each axis."""
    with ExitStack() as stack:
        yield {a: stack.enter_context(k.loop(dim(shape[a]))) for a in axes}


@contextmanager
def _lanes(k: Builder, axis: int | None, low: Expr, count: Expr) -> Iterator[dict[int, Expr]]:
    if axis is None:
        yield {}
        return
    with k.loop(count, "vector") as i:
        yield {axis: low + i}


def when(k: Builder, conditions: Sequence[Expr]):  # type: ignore[no-untyped-def]
    return k.when(reduce(and_, conditions)) if conditions else nullcontext()
