"""Transcendental functions as expressions of basic operations, one definition for every printer.

`expand` rewrites them into add sub mul div sqrt abs neg floor ceil trunc round min max select, comparisons, casts and
bit operations. float32 needs 32-bit lanes only: no loads, no branches, no fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyruntime.ir.dtype import BF16, F16, F32, F64, DType
from pyruntime.ir.expr import GRADUAL, Expr, cast, rewrite, walk
from pyruntime.mathlib import explog, hyperbolic, power, remainder, trig
from pyruntime.mathlib.f32 import SINGLE
from pyruntime.mathlib.f64 import DOUBLE
from pyruntime.mathlib.format import Format

UNARY: dict[str, Callable[[Format, Expr], Expr]] = {
    "exp": explog.exp,
    "log": explog.log,
    "sin": trig.sin,
    "cos": trig.cos,
    "tan": trig.tan,
    "asin": trig.asin,
    "acos": trig.acos,
    "atan": trig.atan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
}
BY_FORMAT: dict[DType, tuple[Format, dict[str, Callable[[Format, Expr], Expr]]]] = {
    F32: (SINGLE, UNARY | {name: partial(hyperbolic.saturating, name=name.upper()) for name in ("tanh", "erf")}),
    F64: (DOUBLE, UNARY | {"tanh": hyperbolic.tanh, "erf": hyperbolic.erf}),
}
BINARY = {"pow": power.power, "rem": remainder.rem, "mod": remainder.mod}
_EXPANDED = {*BY_FORMAT[F64][1], *BINARY}


def expand(e: Expr) -> Expr:
    """e without transcendental nodes, pow, and rem and mod of floats. A subexpression that is used more than once is
    one object: the result is a graph, not a tree, so visit each object once (`Expr.key` does not)."""
    return rewrite(e, _visit) if any(x.op in _EXPANDED for x in walk(e)) else e


def depth(e: Expr) -> int:
    """How many operations of `expand(e)` are nested in one another."""
    found: dict[int, int] = {}
    for x in walk(e):
        own = _depth_of(x.op, x.dtype) if x.op in _EXPANDED else 1
        found[id(x)] = own + max([found[id(a)] for a in x.args], default=0)
    return found[id(e)]


def _depth_of(op: str, dtype: DType) -> int:
    if (op, dtype) not in _DEPTHS:
        args = (Expr("var", (), dtype, 0),) * (2 if op in BINARY else 1)
        _DEPTHS[op, dtype] = depth(expand(Expr(op, args, dtype))) if dtype.is_float else 1
    return _DEPTHS[op, dtype]


_DEPTHS: dict[tuple[str, DType], int] = {}


def _visit(e: Expr) -> Expr | None:
    if e.op == "pow" and not e.dtype.is_float:
        return _integer_pow(*e.args)
    if not (e.op in BY_FORMAT[F64][1] or e.op in BINARY and e.dtype.is_float):
        return None
    width = F32 if e.dtype in (F16, BF16) else e.dtype
    f, functions = BY_FORMAT[width]
    args = [cast(a, width) for a in e.args]
    if e.op == "exp":
        return cast(explog.exp(f, args[0], ends_in_zero=e.value != GRADUAL), e.dtype)
    return cast(BINARY[e.op](f, *args) if e.op in BINARY else functions[e.op](f, *args), e.dtype)


def _integer_pow(x: Expr, y: Expr) -> Expr:
    if not y.dtype.is_float:
        return power.integer_power(x, y)
    width = F64 if y.dtype is F64 or x.dtype.size == 8 else F32
    return cast(power.power(BY_FORMAT[width][0], cast(x, width), cast(y, width)), x.dtype)
