"""Loops over axes, and whether the elements along an axis can be the lanes of a vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pyruntime.codegen.addressing import split
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: its variable, its extent, and what is added to the variable."""

    var: Expr
    extent: Expr
    base: Expr | None = None

    def at(self, place: Expr) -> Expr:
        """The index of an element, given its place in the loop."""
        return place if self.base is None else self.base + place

    @property
    def index(self) -> Expr:
        return self.at(self.var)


@contextmanager
def over(k: Builder, axes: Sequence[Axis], kind: str, outer: str = "serial") -> Iterator[None]:
    """Loops over axes; kind: of the innermost one; outer: of the others"""
    with ExitStack() as stack:
        for n, a in enumerate(axes):
            stack.enter_context(k.loop(a.extent, kind if n == len(axes) - 1 else outer, a.var))
        yield


def depends(e: Expr, v: Expr) -> bool:
    return any(x.op == "var" and x.value == v.value for x in walk(e))


def load_steps(v: Expr, e: Expr) -> list[AnyDim | None]:
    """The distance in elements of neighbours along a variable, for each load; None if it is not fixed."""
    found: list[AnyDim | None] = []
    for x in walk(e):
        if x.op == "at":
            _, terms, opaque = split(x.value, x.args)
            found.append(None if any(depends(c, v) for c, _ in opaque) else terms.get(("var", v.value), 0))
    return found


def loads_lanes(v: Expr, e: Expr) -> bool:
    """Whether neighbours along a variable load adjacent elements, or the same one."""
    return all(isinstance(s, int) and s in (0, 1) for s in load_steps(v, e))


def stores_lanes(v: Expr, target: Tensor, coords: Sequence[Expr]) -> bool:
    """Whether neighbours along a variable store adjacent elements."""
    return load_steps(v, target.at(*coords))[-1] == 1
