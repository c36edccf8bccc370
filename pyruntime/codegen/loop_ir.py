"""The loop form, which all printers print: statements over numbered buffers, integer parameters and variables.

The leaves of its expressions are const, param, var and load; addresses are element offsets (int32).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Accum, For, Let, Set, Stmt, Store, Tensor, When, While
from pyruntime.ir.shape import AnyDim


@dataclass(frozen=True, slots=True)
class Site:
    """A placeholder in `Lowered.params` for the number of a node whose indices are checked; emit assigns the number."""

    node: str


Param = AnyDim | Site


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
        return (self.buffers, self.params, *map(statement_key, self.body))


@dataclass(slots=True, eq=False)
class Lowered:
    """Code and the arguments of one call: tensors for its buffers, dims for its parameters, and the number of work
    units."""

    code: LoopCode
    tensors: list[Tensor]
    params: list[Param]
    work: AnyDim


def statement_key(s: Stmt) -> Any:
    if isinstance(s, Let):
        return ("let", s.var, s.value.key(), s.mutable)
    if isinstance(s, Set):
        return ("set", s.var, s.value.key())
    if isinstance(s, Accum):
        return ("accum", s.var, s.op, s.value.key())
    if isinstance(s, Store):
        return ("store", s.target, s.coords[0].key(), s.value.key())
    if isinstance(s, For):
        return ("for", s.var, s.kind, s.extent.key(), *map(statement_key, s.body))
    if isinstance(s, While):
        return ("while", s.condition.key(), *map(statement_key, s.body))
    return ("when", s.condition.key(), tuple(map(statement_key, s.then)), tuple(map(statement_key, s.orelse)))


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself evaluates, without those of inner statements."""
    if isinstance(s, (Let, Set, Accum)):
        return (s.value,)
    if isinstance(s, Store):
        return (*s.coords, s.value)
    if isinstance(s, For):
        return (s.extent,)
    return (s.condition,)


def children(s: Stmt) -> tuple[list[Stmt], ...]:
    """The inner statement lists."""
    if isinstance(s, (For, While)):
        return (s.body,)
    return (s.then, s.orelse) if isinstance(s, When) else ()


def rebuild(s: Stmt, e: Callable[[Expr], Expr], inner: Callable[[list[Stmt]], list[Stmt]]) -> Stmt:
    """The statement with `e` applied to its expressions and `inner` to its inner lists."""
    if isinstance(s, Let):
        return Let(s.var, e(s.value), s.mutable)
    if isinstance(s, Set):
        return Set(s.var, e(s.value))
    if isinstance(s, Accum):
        return Accum(s.var, s.op, e(s.value))
    if isinstance(s, Store):
        return Store(s.target, tuple([e(c) for c in s.coords]), e(s.value))
    if isinstance(s, For):
        return For(s.var, e(s.extent), inner(s.body), s.kind)
    if isinstance(s, While):
        return While(e(s.condition), inner(s.body))
    return When(e(s.condition), inner(s.then), inner(s.orelse))


def map_expressions(code: LoopCode, e: Callable[[Expr], Expr]) -> LoopCode:
    """The loop form with `e` applied to every expression."""

    def inner(body: list[Stmt]) -> list[Stmt]:
        return [rebuild(s, e, inner) for s in body]

    return replace(code, body=inner(code.body))
