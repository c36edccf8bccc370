"""Checks that 64-bit integers of a kernel provably fit the 32 bits that the GPU has for them."""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import U64
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import For, Leaf, Let, Loops, Map, Reduce, Stmt, root
from pyruntime.ir.statements import expressions, statements

from .integer_ranges import ExpressionRanges, Range, Ranges, constant, of_dim, of_type, within

_HIGH_BITS = {"bitcast", "popcount", "shl", "shr", "pow"}
_UNSIGNED_HIGH_BITS = {"neg", "bitnot"}
_LEAVES = {"const", "at", "var", "arg"}


def reason(kernel: Map | Reduce | Loops, ranges: Ranges) -> str:
    """ "" if every 64-bit value of the kernel fits, else the reason as a sentence."""
    for t in map(root, kernel.inputs):
        if t.dtype.is_int and t.dtype.size == 8 and isinstance(t.kernel, Leaf):
            if not within(constant(t.kernel, t), of_type(t.dtype)):
                return f"a constant of {t.dtype} has more than 32 bits"
    if isinstance(kernel, Loops):
        return _procedure(kernel, ranges)
    bounds = ExpressionRanges(ranges, kernel)
    why = _expression(bounds, kernel.expr)
    if why or isinstance(kernel, Map):
        return why
    if kernel.expr.dtype.size == 8 and not kernel.op.startswith("arg"):
        bounds.reduced = total = bounds.total()
        if not within(total, of_type(kernel.expr.dtype)):
            return f"a {kernel.op} of {kernel.expr.dtype} may need more than 32 bits"
        count = of_dim(sh.size(kernel.extents))
        if kernel.op in ("max", "min") and count.low < 1:
            return f"the {kernel.op} of an empty {kernel.expr.dtype} tensor has more than 32 bits"
    return _expression(bounds, kernel.epilogue) if kernel.epilogue is not None else ""


def _expression(bounds: ExpressionRanges, e: Expr, seen: set[int] | None = None) -> str:
    if e.op == "const" and e.dtype is not None and e.dtype.size == 8 and not e.dtype.is_float:
        return _constant(e)
    return next(filter(None, (_node(bounds, x) for x in walk(e, seen))), "")


def _node(bounds: ExpressionRanges, x: Expr) -> str:
    longs = [a for a in x.args if _is_int64(a)]
    if x.op not in ("min", "max"):
        for a in longs:
            if a.op == "const" and (why := _constant(a)):
                return why
    if not _is_int64(x) and not longs:
        return ""
    if x.op in _HIGH_BITS or (x.dtype is U64 and x.op in _UNSIGNED_HIGH_BITS):
        return f"{x.op} of 64-bit integers"
    if _is_int64(x) and x.op not in _LEAVES and not within(bounds.of(x), of_type(x.dtype)):
        return f"{x.op} as {x.dtype} may need more than 32 bits"
    return ""


def _constant(e: Expr) -> str:
    fits = within(Range(e.value, e.value), of_type(e.dtype))
    return "" if fits else f"the {e.dtype} constant {e.value} has more than 32 bits"


def _is_int64(x: Expr) -> bool:
    return x.dtype is not None and x.dtype.size == 8 and x.dtype.is_int


def _procedure(kernel: Loops, ranges: Ranges) -> str:
    bounds = ExpressionRanges(ranges, kernel)
    seen: set[int] = set()
    for s in statements(kernel.body):
        if why := next(filter(None, (_expression(bounds, e, seen) for e in expressions(s))), ""):
            return why
        learn(s, bounds)
    return ""


def learn(s: Stmt, bounds: ExpressionRanges) -> None:
    """Record the bounds of the variable that a statement declares."""
    if isinstance(s, For):
        bounds.variables[s.var] = Range(0, max(bounds.of(s.extent).high - 1, 0))
    elif isinstance(s, Let) and not s.mutable:
        bounds.variables[s.var] = bounds.of(s.value)
