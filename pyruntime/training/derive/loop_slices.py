"""The slices of tensors from outside a loop that its steps read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, dim, guard
from pyruntime.ir.kernel import Block, Kernel, Map, Tensor
from pyruntime.ir.shape import AnyDim


class Slice(NamedTuple):
    """What a step reads of an outer tensor: a map makes `out`, which has the elements at some places along an axis.
    Step n reads `size` places from n · size on. Places are the indices of the axis or, with `last`, `last` minus these.

    others: the tensor's axis for each axis of `out`; along: the axis of `out` that counts places, None if it has none
    because size is 1"""

    kernel: Map
    axis: int
    last: AnyDim | None
    others: tuple[int, ...]
    along: int | None = None
    size: int = 1

    @property
    def out(self) -> Tensor:
        return self.kernel.out

    @property
    def source(self) -> Tensor:
        found: Tensor = self.kernel.expr.value
        return found

    def stacked(self, stack: Tensor, i: Sequence[Expr]) -> Expr:
        """The element of the outer tensor at the indices i, if `stack` has the slices of all steps, the last one first;
        0 if no step read it."""
        count = stack.shape[0]
        place = i[self.axis] if self.last is None else dim(self.last) - i[self.axis]
        step = place / self.size
        coords = [place - step * self.size if n == self.along else i[a] for n, a in enumerate(self.others)]
        inside = (place >= 0) & (place < dim(count * self.size))
        return guard(inside, stack.at(dim(count - 1) - step, *coords), 0.0)

    def several(self, t: Tracer, first: Expr, count: AnyDim) -> Tensor:
        """The elements of the outer tensor that `count` steps from the step `first` on read. The axis of the places is
        that of the outer tensor. Only where size is 1."""
        x = self.source
        shape = [count if a == self.axis else d for a, d in enumerate(x.shape)]

        def element(*i: Expr) -> Expr:
            place = _moved(self.kernel.expr.args[self.axis], first + i[self.axis])
            return x.at(*[place if a == self.axis else i[a] for a in range(x.rank)])

        return t.compute(shape, element, x.dtype)

    def one_of(self, t: Tracer, several: Tensor, step: Tensor) -> Tensor:
        """The slice of one step of those in `several`; step: its number among them"""
        coords = list(self.kernel.expr.args)
        coords[self.axis] = cast(step.at(), I32)
        return t.compute(self.out.shape, lambda *_: several.at(*coords), self.out.dtype)


def _moved(c: Expr, step: Expr) -> Expr:
    """The coordinate of a slice for another number of the step, with the same check of its bounds."""
    if c.op == "sub":
        return c.args[0] - _moved(c.args[1], step)
    if c.op == "checked":
        return Expr("checked", (step, *c.args[1:]), I32, c.value)
    return _moved(c.args[0], step) if c.op == "cast" else step


def slices(body: Block, x: Tensor) -> list[Slice]:
    """The slices of a tensor that the steps read, if they read nothing else of it."""
    found = [_slice(k, x, body.inputs[0]) for k in body.kernels if any(y is x for y in k.inputs)]
    return [] if any(y is x for y in body.outputs) or None in found else [s for s in found if s is not None]


def _slice(kernel: Kernel, x: Tensor, number: Tensor) -> Slice | None:
    if not isinstance(kernel, Map) or kernel.expr.op != "at" or kernel.expr.value is not x:
        return None
    coords, out = kernel.expr.args, kernel.out
    axes = [a for a, c in enumerate(coords) if c.op != "index"]
    if len(axes) != 1:
        return None
    (axis,) = axes
    c, last = coords[axis], None
    if c.op == "sub" and c.args[0].op in ("const", "dim"):
        c, last = c.args[1], c.args[0].value
    c, along, size = _uncast(c), None, 1
    if c.op == "add" and c.args[0].op == "mul" and c.args[1].op == "index":  # see `Slice.several`
        along, size = c.args[1].value, c.args[0].args[1].value
        c = _uncast(c.args[0].args[0])
    of = {c.value: a for a, c in enumerate(coords) if c.op == "index"}
    if along is not None:
        of[along] = axis
    if c.op != "at" or c.value is not number or sorted(of) != list(range(out.rank)):
        return None
    extents = [size if n == along else x.shape[of[n]] for n in range(out.rank)]
    if any(sh.compare("eq", a, b) != 1 for a, b in zip(extents, out.shape, strict=True)):
        return None
    return Slice(kernel, axis, last, tuple([of[n] for n in range(out.rank)]), along, size)


def _uncast(c: Expr) -> Expr:
    while c.op in ("cast", "checked"):
        c = c.args[0]
    return c
