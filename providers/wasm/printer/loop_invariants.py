"""Loop-invariant lane expressions, which the printer computes before a loop.

V8 materialises a 128-bit constant at each use, in four instructions, and hoists none out of a loop.
"""

from __future__ import annotations

import math
from typing import Any

from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Accum, For, Let, Set, Stmt, Store
from pyruntime.ir.statements import statements

from .vector import Lanes

_NOT_HOISTED = ("load", "guard", "checked")


def invariants(body: list[Stmt], lanes: Lanes) -> dict[Any, Expr]:
    """Return the lane expressions of these statements that do not change in the loop, by key."""
    found: dict[Any, Expr] = {}
    changing, seen = assigned(body) | {lanes.var} | lanes.varying, set[int]()
    for s in statements(body):
        if isinstance(s, (Store, Accum)) or (isinstance(s, (Let, Set)) and s.var in lanes.varying):
            _find(s.value, lanes, changing, found, seen)
    return found


def assigned(body: list[Stmt]) -> set[int]:
    """Return the variables that statements assign."""
    return {s.var for s in statements(body) if isinstance(s, (Let, Set, Accum, For))}


def _find(e: Expr, lanes: Lanes, changing: set[int], found: dict[Any, Expr], seen: set[int]) -> None:
    if id(e) in seen:
        return
    seen.add(id(e))
    if lanes.depends(e):
        for a in () if e.op == "load" and lanes.step(e) else e.args[:1] if e.op in ("shl", "shr") else e.args:
            _find(a, lanes, changing, found, seen)
    elif not _is_cheap(e) and not any(x.op in _NOT_HOISTED or (x.op == "var" and x.value in changing) for x in walk(e)):
        found.setdefault(e.key(), e)


def _is_cheap(e: Expr) -> bool:
    """Whether one instruction makes the constant, as for zeros."""
    return e.op == "const" and e.value == 0 and not (e.dtype is F32 and math.copysign(1, e.value) < 0)
