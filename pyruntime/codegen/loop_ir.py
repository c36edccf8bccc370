"""The loop form, which all printers print: statements over numbered buffers, integer parameters and variables.

The leaves of its expressions are const, param, var and load; addresses are element offsets (int32).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Stmt, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import rebuild, statement_key


@dataclass(frozen=True, slots=True)
class Site:
    """A placeholder in `Lowered.params` for the number of a node whose indices are checked; emit assigns the number."""

    node: str


@dataclass(frozen=True, slots=True)
class RangeNumber:
    """A placeholder in `Lowered.params` for the number of a range of steps. count: of ranges; there is a dispatch for
    each (step_ranges.py)"""

    count: AnyDim


Param = AnyDim | Site | RangeNumber


@dataclass(frozen=True, slots=True, eq=False)
class LoopCode:
    """buffers: the element type of each, and whether the code writes it; body: statements, of which the outermost is
    one `For` of kind "parallel" (its iterations are the work units)."""

    buffers: tuple[tuple[DType, bool], ...]
    params: int
    variables: int
    body: list[Stmt]

    def key(self) -> Any:
        """A cache key: equal for kernels with the same code."""
        return (self.buffers, self.params, *[statement_key(s, Expr.key, lambda n: n) for s in self.body])


@dataclass(slots=True, eq=False)
class Lowered:
    """Code and the arguments of one call: tensors for its buffers, dims for its parameters, and the number of work
    units."""

    code: LoopCode
    tensors: list[Tensor]
    params: list[Param]
    work: AnyDim


def map_expressions(code: LoopCode, e: Callable[[Expr], Expr]) -> LoopCode:
    """The loop form with `e` applied to every expression."""

    def inner(body: list[Stmt]) -> list[Stmt]:
        return [rebuild(s, e, inner) for s in body]

    return replace(code, body=inner(code.body))
