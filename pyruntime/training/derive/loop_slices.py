"""The slices of tensors from outside a loop that its steps read."""

from __future__ import annotations

from typing import NamedTuple

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, I64
from pyruntime.ir.expr import Expr, affine, cast, const, dim, index, rewrite, substitute, uses_index
from pyruntime.ir.kernel import Alias, Block, Kernel, Map, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.training.derive.transpose import transposed

MOST_MAPS = 64  # of the body that a coordinate computes again: a chain that reads its operand twice would double it


class Slice(NamedTuple):
    """What each step reads of an outer tensor: a map of the body makes `out`, the elements of `source` at `coords`.
    These depend on index(0), which is the number of the step, on the axes of `out` from index(1) on, and on tensors
    from outside the loop."""

    out: Tensor
    source: Tensor
    coords: tuple[Expr, ...]

    def several(self, t: Tracer, first: Expr, count: AnyDim) -> Tensor:
        """What `count` steps from the step `first` on read; the first axis counts them."""
        axes = [first + index(0), *[index(n + 1) for n in range(self.out.rank)]]
        read = self.source.at(*[substitute(c, axes) for c in self.coords])
        return t.compute((count, *self.out.shape), lambda *_: read, self.out.dtype)

    def one_of(self, t: Tracer, several: Tensor, step: Tensor) -> Tensor:
        """The slice of one step of those in `several`; step: its number among them"""
        return t.compute(self.out.shape, lambda *i: several.at(cast(step.at(), I32), *i), self.out.dtype)

    def cotangent(self, t: Tracer, stack: Tensor) -> Tensor:
        """That of the outer tensor. stack: those of the slices of all steps, the last one first"""
        count = stack.shape[0]
        value = stack.at(dim(count - 1) - index(0), *[index(n) for n in range(1, stack.rank)])
        load = self.source.at(*[_plain(c, stack.shape) for c in self.coords])
        return transposed(t, load, value, stack.shape)


def slices(t: Tracer, body: Block, x: Tensor) -> list[Slice]:
    """The slices of an outer tensor that the steps read, if they read nothing else of it."""
    read = _Coordinates(t, body)
    found = [read.slice(k, x) for k in body.kernels if any(y is x for y in k.inputs)]
    return [] if any(y is x for y in body.outputs) or None in found else [s for s in found if s is not None]


class _Coordinates:
    """Coordinates in a body as functions of the step's number and of outer tensors."""

    def __init__(self, t: Tracer, body: Block) -> None:
        self.t, self.number = t, body.inputs[0]
        self.own = {x.uid for x in body.inputs} | {o.uid for k in body.kernels for o in k.outputs}
        self.maps = 0  # that the coordinates of a slice have computed again

    def slice(self, kernel: Kernel, x: Tensor) -> Slice | None:
        if not isinstance(kernel, Map) or kernel.expr.op != "at" or kernel.expr.value is not x:
            return None
        out, axes = kernel.out, [index(n + 1) for n in range(kernel.out.rank)]
        self.maps = 0
        try:
            coords = tuple([_short(self._of_step(substitute(c, axes))) for c in kernel.expr.args])
        except _Unknown:
            return None
        is_part = sh.estimate(sh.size(out.shape)) <= sh.estimate(sh.size(x.shape))
        return Slice(out, x, coords) if is_part and any(uses_index(c, 0) for c in coords) else None

    def _of_step(self, e: Expr) -> Expr:
        return rewrite(e, lambda x: self._load(x.value, x.args) if x.op == "at" else None)

    def _load(self, x: Tensor, args: tuple[Expr, ...]) -> Expr | None:
        """An element of a tensor; None: it is from outside the loop."""
        if x is self.number:
            return cast(index(0), I64)
        if sh.size(x.shape) == 1 and x.dtype.is_int and (known := self.t.known(x)) is not None:
            (value,) = known
            return const(value, x.dtype) if isinstance(value, int) else cast(dim(value), x.dtype)
        if x.uid not in self.own:
            return None
        self.maps += 1
        if isinstance(x.kernel, Map) and self.maps <= MOST_MAPS:
            return cast(self._of_step(substitute(x.kernel.expr, args)), x.dtype)
        if isinstance(x.kernel, Alias) and sh.size(x.shape) == 1:
            base = x.kernel.base
            return self._of_step(base.at(*[const(0, I32)] * base.rank))
        raise _Unknown


class _Unknown(Exception):
    """A step computes a coordinate in another way, or by many maps."""


def _plain(c: Expr, extents: sh.Shape) -> Expr:
    """A coordinate without the check that the forward pass makes, if it is affine and counts from the axis's start."""
    narrow = _narrow(c.args[0] if c.op == "checked" else c)
    form = affine(narrow)
    if form is None:
        return c
    least = form[0]
    for (_, axis), factor in form[1].items():
        if sh.interval(factor)[0] < 0:
            least = least + factor * (extents[axis] - 1)
    return narrow if sh.interval(least)[0] >= 0 else c


def _short(c: Expr) -> Expr:
    """The same coordinate with fewer conversions, so that passes recognise it."""
    if c.op != "checked":
        return _narrow(c)
    narrow = _narrow(c.args[0])
    form = affine(narrow)
    is_near = form is not None and all(factor in (-1, 1) for factor in form[1].values())  # else int32 may overflow
    return Expr("checked", (narrow, *c.args[1:]), I32, c.value) if is_near else c


def _narrow(c: Expr) -> Expr:
    """The same index as int32 if it is a sum of products. They agree with those of int64 in their low bits."""
    if c.op == "cast" and {c.dtype, c.args[0].dtype} <= {I32, I64}:
        inner = _narrow(c.args[0])
        return inner if inner.dtype is I32 else c
    if c.op == "const" and -(2**31) <= c.value < 2**31:
        return const(c.value, I32)
    if c.op in ("add", "sub", "mul"):
        a, b = map(_narrow, c.args)
        if a.dtype is I32 and b.dtype is I32:
            return a + b if c.op == "add" else a - b if c.op == "sub" else a * b
    return c
