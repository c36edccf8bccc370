"""tanh, sinh, cosh, their inverses, and erf."""

from __future__ import annotations

import math

from pyruntime.ir.expr import Expr, clip, select, unary
from pyruntime.mathlib import explog
from pyruntime.mathlib.format import Format, absolute, poly, signed


def saturating(f: Format, x: Expr, name: str) -> Expr:
    """tanh or erf as 2s / (1 + s²) with s = x·p(x²) / q(x²); x is clamped to where the function rounds to ±1.

    For tanh, s is tanh(x/2). The outer function is flat at s = 1, which damps the errors of p and q there."""
    edge, *_ = f.table[name + "_EDGE"]
    x = clip(x, -edge, edge)
    z = x * x
    a, b = x * poly(z, f.table[name]), poly(z, f.table[name + "_BELOW"])
    return clip((a + a) * b / (a * a + b * b), -1.0, 1.0)


def tanh(f: Format, x: Expr) -> Expr:
    """An odd polynomial up to TANH_EDGE, 1 - 2 / (e^2a + 1) above it."""
    a = absolute(x)
    z = x * x
    far = 1.0 - 2.0 / (explog.exp(f, a + a) + 1.0)
    return signed(f, select(a < f.table["TANH_EDGE"][0], a + a * (z * poly(z, f.table["TANH"])), far), x)


def sinh(f: Format, x: Expr) -> Expr:
    """An odd polynomial up to 1; above it ½e^a - ½e^-a, computed from ½e^a, which overflows no earlier than sinh."""
    a = absolute(x)
    z = x * x
    half = explog.exp(f, a, shift=-1)
    return select(a < 1.0, x + x * (z * poly(z, f.table["SINH"])), signed(f, half - 0.25 / half, x))


def cosh(f: Format, x: Expr) -> Expr:
    half = explog.exp(f, absolute(x), shift=-1)
    return half + 0.25 / half


def asinh(f: Format, x: Expr) -> Expr:
    """log(1 + (a + a² / (1 + √(1 + a²)))); for large a, log a + log 2."""
    a = absolute(x)
    square = a * a
    u = a + square / (unary("sqrt", square + 1.0) + 1.0)
    return signed(f, _log_or_double(f, a, u), x)


def acosh(f: Format, x: Expr) -> Expr:
    """log(1 + (t + √(2t + t²))) with t = x - 1; NaN below 1."""
    t = x - 1.0
    return select(x >= 1.0, _log_or_double(f, x, t + unary("sqrt", t * (t + 2.0))), math.nan)


def _log_or_double(f: Format, a: Expr, u: Expr) -> Expr:
    """log(1 + u), or log(2a) for large a, where u may have overflowed."""
    is_large = a > f.table["LARGE"][0]
    value = explog.log1p(f, select(is_large, a - 1.0, u), select(is_large, f.const(1.0), 0.0))
    return select(a < math.inf, value, a)


def atanh(f: Format, x: Expr) -> Expr:
    """½·log(1 + 2a / (1 - a)); ±infinity for ±1, NaN beyond."""
    a = absolute(x)
    u = (a + a) / (1.0 - a)
    inside = explog.log1p(f, u) * 0.5
    return signed(f, select(a < 1.0, inside, select(a == 1.0, f.const(math.inf), math.nan)), x)


def erf(f: Format, x: Expr) -> Expr:
    """An odd polynomial up to 1; above it 1 - e^-a²·w / (a + 2) with w a polynomial in 1 / (a + 2)."""
    a = clip(absolute(x), 0.0, 6.0)
    u = 1.0 / (a + 2.0)
    far = 1.0 - explog.exp(f, -(a * a)) * (u * poly(u * 9.6 - 2.2, f.table["ERFC"]))
    return select(a < 1.0, x * poly(a * a, f.table["ERF"]), signed(f, far, x))
