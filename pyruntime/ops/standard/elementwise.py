"""Arithmetic and mathematical functions: one broadcasting expression each."""

from __future__ import annotations

import math
from functools import partial

from pyruntime.frontend.registry import elementwise, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, F64, I64, DType
from pyruntime.ir.expr import (  # fmt: skip
    Expr,
    X,
    Y,
    binary,
    cast,
    cos,
    erf,
    exp,
    log,
    maximum,
    minimum,
    power,
    rem,
    round_even,
    select,
    sigmoid,
    sin,
    sqrt,
    tanh,
    unary,
)
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import formula, legacy_formula, mapped, number, variadic

for _name in "Abs Neg Floor Ceil Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh".split():
    elementwise(_name, expr=unary(_name.lower(), X))
elementwise("Sqrt", expr=sqrt(X))
elementwise("Exp", expr=exp(X))
elementwise("Log", expr=log(X))
elementwise("Sin", expr=sin(X))
elementwise("Cos", expr=cos(X))
elementwise("Tanh", expr=tanh(X))
elementwise("Round", expr=round_even(X))
elementwise("Reciprocal", expr=1.0 / X)
elementwise("Sigmoid", expr=sigmoid(X))

for _name, _template in {"Add": X + Y, "Sub": X - Y, "Mul": X * Y, "Div": X / Y}.items():
    legacy_formula(_name, partial(binary, _template.op))
    elementwise(_name, since=7, expr=_template)

variadic("Sum", lambda a, b: a + b)
variadic("Max", maximum)
variadic("Min", minimum)
variadic("Mean", lambda a, b: a + b, lambda e, n: e / n)


@op("Erf")
def erf_of_floats(t: Tracer, x: Tensor) -> Tensor:
    """Erf of floats only. The schema also has integers, whose results would all truncate to -1, 0 or 1."""
    if not x.dtype.is_float:
        raise t.unsupported(f"Erf of {x.dtype} is not implemented")
    return t.map(erf(X), x)


@formula("Sign", since=9)
def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN for NaN."""
    if not x.dtype.is_float:
        return select(x > 0, 1, select(x < 0, number(-1, x.dtype), number(0, x.dtype)))
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))


def _pow(x: Expr, y: Expr) -> Expr:
    """x ** y in x's type; operands of different types are computed in a type that holds both."""
    if x.dtype is y.dtype:
        return power(x, y)
    if x.dtype.is_float:
        return power(x, cast(y, x.dtype))
    wide: DType = I64 if y.dtype.is_int else F64 if x.dtype.size > 2 or y.dtype is F64 else F32
    return cast(power(cast(x, wide), cast(y, wide)), x.dtype)


legacy_formula("Pow", _pow)


@op("Pow", since=7)
def pow_(t: Tracer, x: Tensor, y: Tensor) -> Tensor:
    """x ** y, in x's type. Constant exponents 2 and 3 become products."""
    if x.dtype.is_float and y.rank <= x.rank and all(d == 1 for d in y.shape):
        known = t.known(y)
        if known == [2]:
            return t.map(X * X, x)
        if known == [3]:
            return t.map(X * X * X, x)
    return mapped(t, _pow, x, y)


@formula("Mod", since=10)
def mod(a: Expr, b: Expr, *, fmod: int = 0) -> Expr:
    """a - floor(a / b) * b, or with fmod a - trunc(a / b) * b. If b is infinite and differs from a in sign, the result
    is b, as in Python."""
    if fmod:
        return rem(a, b)
    if not a.dtype.is_float:
        return a % b
    r = rem(a, b)
    zero = number(0.0, a.dtype)
    signed = select(r == zero, select(b < zero, number(-0.0, a.dtype), zero), select((r < zero) ^ (b < zero), r + b, r))
    return select(unary("isnan", r), r, signed)


def _shift(x: Expr, y: Expr, direction: str) -> Expr:
    bits = x.dtype.bits
    fits = (y >= 0) & (y < bits)
    n = select(fits, y, 0)
    if direction == "LEFT":
        return select(fits, x << n, 0)
    fill = select(x < 0, number(-1, x.dtype), number(0, x.dtype)) if x.dtype.kind == "i" else number(0, x.dtype)
    return select(fits, x >> n, fill)


@formula("BitShift", since=11)
def bit_shift(x: Expr, y: Expr, *, direction: str) -> Expr:
    """x shifted by y bits; counts outside the type's width leave only copies of the sign.
    Spec: https://onnx.ai/onnx/operators/onnx__BitShift.html"""
    return _shift(x, y, direction)


@formula("Clip")
def clip_1(x: Expr, *, min: float = -math.inf, max: float = math.inf) -> Expr:
    return minimum(maximum(x, min), max)


@formula("Clip", since=6)
def clip_6(x: Expr, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38) -> Expr:
    return clip_1(x, min=min, max=max)


@op("Clip", since=11)
def clip(t: Tracer, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """min(max(x, low), high); the bounds are scalars."""
    low, high = (None if b is None else t.reshape(b, ()) for b in (low, high))
    if low is not None:
        return t.map(maximum(X, Y), x, low) if high is None else mapped(t, _clip, x, low, high)
    return x if high is None else t.map(minimum(X, Y), x, high)


def _clip(x: Expr, low: Expr, high: Expr) -> Expr:
    return minimum(maximum(x, low), high)
