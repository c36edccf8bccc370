"""Generic walks over the statements of loop kernels, so that analyses and rewrites need no case for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Accum, For, Kernel, Let, Loops, Map, Reduce, Set, Stmt, Store, When, While

# the fields of a statement besides expressions, inner statements and a store's target
_OTHERS: dict[type, tuple[str, ...]] = {
    Let: ("var", "mutable"), Set: ("var",), Accum: ("var", "op"), Store: (), For: ("var", "kind"),
    While: ("most",), When: (),
}  # fmt: skip


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions that a statement itself evaluates, without those of inner statements."""
    if isinstance(s, (Let, Set, Accum)):
        return (s.value,)
    if isinstance(s, Store):
        return (*s.coords, s.value)
    if isinstance(s, For):
        return (s.extent,)
    return (s.condition,)


def children(s: Stmt) -> tuple[list[Stmt], ...]:
    """Return the inner statement lists."""
    if isinstance(s, (For, While)):
        return (s.body,)
    return (s.then, s.orelse) if isinstance(s, When) else ()


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Yield the statements and all inner ones, in the order of the text."""
    for s in body:
        yield s
        for inner in children(s):
            yield from statements(inner)


def nodes(body: Sequence[Stmt]) -> Iterator[Expr]:
    """Yield the nodes of all expressions of these and of inner statements."""
    for s in statements(body):
        for e in expressions(s):
            yield from walk(e)


def expressions_of(kernel: Kernel) -> list[Expr]:
    """Return the expressions that define a Map, Reduce or Loops."""
    if isinstance(kernel, Map):
        return [kernel.expr]
    if isinstance(kernel, Reduce):
        return [kernel.expr, *([] if kernel.epilogue is None else [kernel.epilogue])]
    return [e for s in statements(kernel.body) for e in expressions(s)] if isinstance(kernel, Loops) else []


def rebuild(s: Stmt, e: Callable[[Expr], Expr], inner: Callable[[list[Stmt]], list[Stmt]]) -> Stmt:
    """Return the statement with `e` applied to its expressions and `inner` to its inner lists."""
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
        return While(e(s.condition), inner(s.body), s.most)
    return When(e(s.condition), inner(s.then), inner(s.orelse))


def statement_key(s: Stmt, e: Callable[[Expr], Any], target: Callable[[Any], Any]) -> Any:
    """Return a hashable value, equal for equal statements. e: returns the key of an expression; target: that of a
    store's target"""
    own = [target(s.target)] if isinstance(s, Store) else [getattr(s, name) for name in _OTHERS[type(s)]]
    inner = [tuple([statement_key(b, e, target) for b in body]) for body in children(s)]
    return (type(s), *own, *map(e, expressions(s)), *inner)
