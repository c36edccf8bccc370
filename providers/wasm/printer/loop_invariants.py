"""What all lanes of a loop share, in registers before it.

V8 writes a constant of 128 bits anew wherever it is used, in four instructions, and moves none out of a loop.
"""

from __future__ import annotations

import math
from typing import Any

from pyruntime.codegen.loop_ir import children
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Accum, For, Let, Set, Stmt, Store

from .vector import Lanes

_STAY = ("load", "guard", "checked")


def uniform(body: list[Stmt], lanes: Lanes) -> dict[Any, Expr]:
    """Of the lane expressions of these statements, by key, what does not change in a round of the loop."""
    found: dict[Any, Expr] = {}
    _collect(body, lanes, assigned(body) | {lanes.var} | lanes.varying, found)
    return found


def assigned(body: list[Stmt]) -> set[int]:
    """Variables that statements give values to."""
    found = {s.var for s in body if isinstance(s, (Let, Set, Accum, For))}
    return found.union(*[assigned(inner) for s in body for inner in children(s)])


def _collect(body: list[Stmt], lanes: Lanes, changing: set[int], found: dict[Any, Expr]) -> None:
    seen: set[int] = set()
    for s in body:
        if isinstance(s, (Store, Accum)) or (isinstance(s, (Let, Set)) and s.var in lanes.varying):
            _taken(s.value, lanes, changing, found, seen)
        for inner in children(s):
            _collect(inner, lanes, changing, found)


def _taken(e: Expr, lanes: Lanes, changing: set[int], found: dict[Any, Expr], seen: set[int]) -> None:
    if id(e) in seen:
        return
    seen.add(id(e))
    if lanes.depends(e):
        for a in () if e.op == "load" and lanes.step(e) else e.args[:1] if e.op in ("shl", "shr") else e.args:
            _taken(a, lanes, changing, found, seen)
    elif not _is_cheap(e) and not any(x.op in _STAY or (x.op == "var" and x.value in changing) for x in walk(e)):
        found.setdefault(e.key(), e)


def _is_cheap(e: Expr) -> bool:
    """Whether it is made by one instruction: zeros."""
    return e.op == "const" and e.value == 0 and not (e.dtype is F32 and math.copysign(1, e.value) < 0)


__all__ = ["assigned", "uniform"]
