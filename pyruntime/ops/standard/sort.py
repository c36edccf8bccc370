"""TopK, and the order of elements: NaN counts as the largest number, and all NaNs as equal."""

from __future__ import annotations

from math import prod

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, I64
from pyruntime.ir.expr import Expr, cast, const, dim, isnan, minimum
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim

TOP_K = GradientRule[Tensor, Tensor]()


def less(a: Expr, b: Expr) -> Expr:
    if a.dtype is BOOL:
        return ~a & b
    return (a < b) | (~isnan(a) & isnan(b)) if a.dtype.is_float else a < b


def same(a: Expr, b: Expr) -> Expr:
    return (a == b) | (isnan(a) & isnan(b)) if a.dtype.is_float else a == b


@op("TopK")
def topk_1(t: Tracer, x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return top_k(t, x, k, axis, True)


@op("TopK", since=10)
def topk(
    t: Tracer, x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis and their indices, best first; of equal elements the first
    wins.
    Spec: https://onnx.ai/onnx/operators/onnx__TopK.html"""
    return top_k(t, x, t.ints(k, lower=0)[0], axis, bool(largest))


def top_k(t: Tracer, x: Tensor, count: AnyDim, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    axis = t.axis(axis, x.rank)
    n = x.shape[axis]
    t.require(sh.compare("le", count, n), f"k = {count} exceeds {n} elements")
    if count == 1 and (largest or not x.dtype.is_float):  # a "min" reduction would return NaN
        name = "max" if largest else "min"
        return t.reduce(name, x, [axis]), t.reduce(f"arg{name}", x, [axis])
    rows = t.reshape(x, [prod(x.shape[:axis]), n, prod(x.shape[axis + 1 :])])
    shape = [rows.shape[0], count, rows.shape[2]]
    values, places = t.loops(
        "topk", [rows], [(shape, x.dtype), (shape, I64)], lambda k, v, p: _TopK(k, rows, v, p, largest).body()
    )
    t.own_gradient(values, TOP_K, rows, places)
    full = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    return t.reshape(values, full), t.reshape(places, full)


class _TopK:
    """A heap of the best k so far with the worst at its root, stored in the outputs; then sorted in place."""

    def __init__(self, k: Builder, x: Tensor, values: Tensor, places: Tensor, largest: bool) -> None:
        self.k, self.x, self.values, self.places, self.largest = k, x, values, places, largest

    def body(self) -> None:
        k, count = self.k, dim(self.values.shape[1])
        inner = dim(self.x.shape[2])
        with k.parallel(dim(self.x.shape[0] * self.x.shape[2])) as unit, k.when(count > 0):
            self.row, self.column = k.let(unit / inner), k.let(unit % inner)
            with k.loop(count) as j:
                self.write(j, self.x.at(self.row, j, self.column), cast(j, I64))
            with k.loop(count / 2) as j:
                at = k.let(count / 2 - 1 - j)
                self.sift(at, count, self.value(at), self.place(at))
            with k.loop(dim(self.x.shape[1]) - count) as j:
                new = k.let(self.x.at(self.row, j + count, self.column))
                root = self.value(const(0, I32))
                with k.when(less(root, new) if self.largest else less(new, root)):
                    self.sift(const(0, I32), count, new, cast(j + count, I64))
            with k.loop(count - 1) as j:
                last = k.let(count - 1 - j)
                value, place = self.value(last), self.place(last)
                self.write(last, self.value(const(0, I32)), self.place(const(0, I32)))
                self.sift(const(0, I32), last, value, place)

    def value(self, at: Expr) -> Expr:
        return self.k.let(self.values.at(self.row, at, self.column))

    def place(self, at: Expr) -> Expr:
        return self.k.let(self.places.at(self.row, at, self.column))

    def write(self, at: Expr, value: Expr, place: Expr) -> None:
        self.k.store(self.values, (self.row, at, self.column), value)
        self.k.store(self.places, (self.row, at, self.column), place)

    def worse(self, a: Expr, place_a: Expr, b: Expr, place_b: Expr) -> Expr:
        return (less(a, b) if self.largest else less(b, a)) | (same(a, b) & (place_a > place_b))

    def sift(self, start: Expr, size: Expr, value: Expr, place: Expr) -> None:
        """Put an element at `start` and let it sink until no child is worse."""
        k = self.k
        hole, child = k.var(start, I32), k.var(start * 2 + 1, I32)
        with k.while_(child.get < size):
            other = k.let(minimum(child.get + 1, size - 1))
            with k.when(self.worse(self.value(other), self.place(other), self.value(child.get), self.place(child.get))):
                child.set(other)
            v, p = self.value(child.get), self.place(child.get)
            with k.when(self.worse(v, p, value, place)):
                self.write(hole.get, v, p)
                hole.set(child.get)
                child.set(child.get * 2 + 1)
            with k.otherwise():
                child.set(size)
        self.write(hole.get, value, place)
