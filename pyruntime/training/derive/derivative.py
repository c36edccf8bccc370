"""Derivatives of scalar expressions, in reverse mode: the cotangent of each load of an expression."""

from __future__ import annotations

import math
from collections.abc import Callable

from pyruntime.errors import NotDifferentiable
from pyruntime.ir.expr import (
    Expr,
    binary,
    cast,
    cos,
    exp,
    floor,
    guard,
    index,
    log,
    power,
    rewrite,
    select,
    sigmoid,
    sin,
    sqrt,
    trunc,
    unary,
)
from pyruntime.ir.kernel import Tensor

Derivative = Callable[[Expr, Expr], tuple[Expr, ...]]  # node, its cotangent -> those of its operands


def axes_of(x: Tensor) -> list[Expr]:
    """The index of each axis."""
    return [index(n) for n in range(x.rank)]


def zero_like(x: Expr) -> Expr:
    return _number(0, x)


def _number(value: float, x: Expr) -> Expr:
    return Expr("const", (), x.dtype, float(value) if x.dtype.is_float else int(value))


def _only(condition: Expr, g: Expr) -> Expr:
    return select(condition, g, zero_like(g))


def _abs(x: Expr, g: Expr) -> tuple[Expr]:
    a = x.args[0]
    return (select(a > 0.0, g, _only(a < 0.0, -g)),)


def _pow(x: Expr, g: Expr) -> tuple[Expr, Expr]:
    a, b = x.args
    into_base = _only(b != zero_like(b), cast(b, x.dtype) * power(a, b - _number(1, b)))
    if not b.dtype.is_float:
        return g * into_base, zero_like(b)
    return g * into_base, cast(g * _only(a > 0.0, x * log(a)), b.dtype)


def _larger(x: Expr, g: Expr) -> tuple[Expr, Expr]:
    """Into the larger operand (the smaller one for min), half into each of two equal ones. The derivative of relu at 0
    is 0."""
    a, b = x.args
    wins = "gt" if x.op == "max" else "lt"
    if b.op == "const":  # decided by the result, so that the operand need not be kept
        return _only(binary(wins, x, b), g), g
    tie = _only(a == b, g * 0.5)
    return _only(binary(wins, a, b), g) + tie, _only(binary(wins, b, a), g) + tie


# The cotangents of the operands of x, if g is that of x. Those that mention x itself can read a stored result.
_TABLE: dict[str, Derivative] = {
    "neg": lambda x, g: (-g,),
    "abs": _abs,
    "sqrt": lambda x, g: (select(x == 0.0, 0.0, g * 0.5 / x),),  # 0 at 0, or the norm of zeros would give NaN
    "exp": lambda x, g: (g * x,),
    "log": lambda x, g: (g / x.args[0],),
    "sin": lambda x, g: (g * cos(x.args[0]),),
    "cos": lambda x, g: (-(g * sin(x.args[0])),),
    "tan": lambda x, g: (g * (x * x + 1.0),),
    "asin": lambda x, g: (g / sqrt(1.0 - x.args[0] * x.args[0]),),
    "acos": lambda x, g: (-(g / sqrt(1.0 - x.args[0] * x.args[0])),),
    "atan": lambda x, g: (g / (x.args[0] * x.args[0] + 1.0),),
    "sinh": lambda x, g: (g * unary("cosh", x.args[0]),),
    "cosh": lambda x, g: (g * unary("sinh", x.args[0]),),
    "tanh": lambda x, g: (g * (1.0 - x * x),),
    "asinh": lambda x, g: (g / sqrt(x.args[0] * x.args[0] + 1.0),),
    "acosh": lambda x, g: (g / sqrt(x.args[0] * x.args[0] - 1.0),),
    "atanh": lambda x, g: (g / (1.0 - x.args[0] * x.args[0]),),
    "erf": lambda x, g: (g * exp(-(x.args[0] * x.args[0])) * (2 / math.sqrt(math.pi)),),
    "add": lambda x, g: (g, g),
    "sub": lambda x, g: (g, -g),
    "mul": lambda x, g: (g * x.args[1], g * x.args[0]),
    "div": lambda x, g: (g / x.args[1], -(g * x / x.args[1])),
    "pow": _pow,
    "max": _larger,
    "min": _larger,
    "rem": lambda x, g: (g, -(g * trunc(x.args[0] / x.args[1]))),
    "mod": lambda x, g: (g, -(g * floor(x.args[0] / x.args[1]))),
    "cast": lambda x, g: (cast(g, x.args[0].dtype) if x.args[0].dtype.is_float else g,),
}  # fmt: skip
# The same for codes (see `Tracer.rounded`), whose cotangents are floats.
_CODES: dict[str, Derivative] = {
    "add": lambda x, g: (g, g),
    "sub": lambda x, g: (g, -g),
    "mul": lambda x, g: (g * cast(x.args[1], g.dtype), g * cast(x.args[0], g.dtype)),
    "neg": lambda x, g: (-g,),
    "cast": lambda x, g: (g,),
}  # fmt: skip
# Piecewise constant operations, and leaves.
_FLAT = frozenset("floor ceil trunc round isnan const dim index var bitcast".split())


def _is_one(e: Expr) -> bool:
    return e.op == "const" and e.value == 1


def _known_formula(x: Expr) -> tuple[Expr, Callable[[Expr], Expr]] | None:
    """The operand and the derivative of x if x is a sigmoid or softplus: the product of the derivatives of their parts
    is 0 · inf at large operands."""
    if x.op == "div" and _is_one(x.args[0]):
        e = _plus_one(x.args[1])
        if e is not None and e.args[0].op == "neg":
            return e.args[0].args[0], lambda g: g * x * (1.0 - x)
    if x.op == "log":
        e = _plus_one(x.args[0])
        if e is not None:
            return e.args[0], lambda g: g * sigmoid(e.args[0])
    return None


def _plus_one(x: Expr) -> Expr | None:
    """e if x is e + 1 or 1 + e and e is an exponential."""
    if x.op != "add":
        return None
    a, b = x.args
    e, one = (a, b) if a.op == "exp" else (b, a)
    return e if e.op == "exp" and _is_one(one) else None


def _operands(x: Expr) -> tuple[Expr, ...]:
    """The operands of which `_cotangents` gives the cotangents."""
    if x.op in ("at", "guard", "select"):
        return ()
    known = _known_formula(x)
    return x.args if known is None else (known[0],)


def _cotangents(x: Expr, g: Expr) -> tuple[Expr, ...]:
    if not x.dtype.is_float:
        return _CODES[x.op](x, g)
    known = _known_formula(x)
    if known is not None:
        return (known[1](g),)
    if x.op not in _TABLE:
        raise NotDifferentiable(f"the operation {x.op} has no derivative")
    return _TABLE[x.op](x, g)


def contributions(
    e: Expr, g: Expr, active: Callable[[Tensor], bool], made: Expr | None = None
) -> list[tuple[Expr, Expr]]:
    """Return (load, its cotangent) for the loads in e of active tensors, if g is the cotangent of e.

    made: a load of e's stored result, which derivatives read instead of computing e again

    The sides of a guard or select stay inside one, because the side that is not chosen may be out of bounds or
    infinite."""
    leads = _Leads(active)
    if not leads(e):
        return []
    cotangent_of: dict[int, Expr] = {id(e): g}
    out: dict[object, tuple[Expr, Expr]] = {}

    def give(load: Expr, value: Expr) -> None:
        key = load.key()
        out[key] = (load, out[key][1] + value if key in out else value)

    for x in reversed(_order(e, leads)):
        g_x = cotangent_of.pop(id(x), None)
        if g_x is None or x.op in _FLAT:
            continue
        if x.op == "at":
            give(x, g_x)
        elif x.op in ("guard", "select"):
            for load, value in _through_choice(x, g_x, active):
                give(load, value)
        else:
            for a, part in zip(_operands(x), _cotangents(x, g_x), strict=True):
                if leads(a):
                    cotangent_of[id(a)] = cotangent_of[id(a)] + part if id(a) in cotangent_of else part
    if made is None:
        return list(out.values())
    return [(load, rewrite(value, lambda x: made if x is e else None)) for load, value in out.values()]


def _through_choice(x: Expr, g: Expr, active: Callable[[Tensor], bool]) -> list[tuple[Expr, Expr]]:
    choose, condition = guard if x.op == "guard" else select, x.args[0]
    out = []
    for n, side in enumerate(x.args[1:]):
        for load, value in contributions(side, g, active):
            zero = zero_like(value)
            out.append((load, choose(condition, value, zero) if n == 0 else choose(condition, zero, value)))
    return out


class _Leads:
    """Whether an active load of a float, or of codes that are rounded floats, contributes to an expression."""

    def __init__(self, active: Callable[[Tensor], bool]) -> None:
        self.active = active
        self.known: dict[int, bool] = {}

    def __call__(self, x: Expr) -> bool:
        if id(x) not in self.known:
            if x.dtype is None or x.op in _FLAT:
                self.known[id(x)] = False
            elif x.op == "at":
                self.known[id(x)] = self.active(x.value)
            elif not x.dtype.is_float:
                known = x.op in ("guard", "select") or (x.dtype.is_int and x.op in _CODES)
                codes = known and not any(a.dtype.is_float for a in x.args)
                args = x.args[1:] if x.op in ("guard", "select") else x.args
                self.known[id(x)] = codes and any([self(a) for a in args])
            else:
                args = x.args[1:] if x.op in ("guard", "select") else x.args
                self.known[id(x)] = any([self(a) for a in args])
        return self.known[id(x)]


def _order(e: Expr, leads: _Leads) -> list[Expr]:
    """The nodes that have a cotangent, operands before their users."""
    order: list[Expr] = []
    seen: set[int] = set()

    def collect(x: Expr) -> None:
        seen.add(id(x))
        for a in _operands(x):
            if id(a) not in seen and leads(a):
                collect(a)
        order.append(x)

    collect(e)
    return order
