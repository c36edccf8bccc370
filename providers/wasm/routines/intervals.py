"""The range of integer expressions, by types and constants."""

from __future__ import annotations

from pyruntime.ir.dtype import BOOL, I32, bounds
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Map


def interval(e: Expr) -> tuple[int, int] | None:
    """Return the least and the greatest value of an integer expression, None if unknown."""
    if e.op == "const" and e.dtype.is_int:
        return e.value, e.value
    if e.op == "cast" and e.dtype is I32:
        return interval(e.args[0])
    if e.op == "at" and isinstance(e.value.kernel, Map) and e.dtype is I32:
        return interval(e.value.kernel.expr)
    if e.op in ("sub", "add") and e.dtype is I32:
        a, b = interval(e.args[0]), interval(e.args[1])
        if a and b:
            return (a[0] - b[1], a[1] - b[0]) if e.op == "sub" else (a[0] + b[0], a[1] + b[1])
        return None
    if e.dtype is BOOL:
        return 0, 1
    return bounds(e.dtype) if e.dtype is not None and e.dtype.is_int and e.dtype.bits <= 16 else None
