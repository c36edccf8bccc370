"""sin, cos, tan and their inverses."""

from __future__ import annotations

from pyruntime.expr import Expr, cast, round_even, select
from pyruntime.mathlib.format import Format, absolute, poly


def sin(f: Format, x: Expr) -> Expr:
    y = _fold(f, x)
    n = round_even(y * f.table["INVERSE_PI"][0])
    return _sin_parity(f, _reduce(f, y, n), f.bits(n + f.whole))


def cos(f: Format, x: Expr) -> Expr:
    """sin(x + π/2): the multiples of π to take away are n + ½."""
    y = _fold(f, x)
    n = round_even(y * f.table["INVERSE_PI"][0] - 0.5)
    return _sin_parity(f, _reduce(f, y, n + 0.5), f.bits(n + (f.whole + 1.0)))


def _fold(f: Format, x: Expr) -> Expr:
    """x, or where |x| is large, x less a multiple of 2π.

    The whole part of x times 1/2π is wanted modulo 1: as an integer product that wraps, with the fraction of 1/2π that
    the integer lacks as a float. Past the integers' range the result is some number of -π .. π; infinity gives NaN.
    """
    limit, turn, lost, scale = f.table["FOLD"]
    nearest = round_even(x)
    whole = cast(nearest, f.ints)
    phase = cast(whole * int(turn), f.floats) * scale
    return select(absolute(x) < limit, x, phase + (cast(whole, f.floats) * lost + (x - nearest)))


def _reduce(f: Format, x: Expr, n: Expr) -> Expr:
    """x - n·π, with π in parts whose products with n are exact but for the last. Near a multiple of π all differences
    are exact; elsewhere the rounding of the third is given back to the next."""
    first, second, third, fourth, last = f.table["PI"]
    coarse = x - n * first - n * second
    step = n * third
    fine = coarse - step
    return fine - (n * fourth - (coarse - fine - step)) - n * last


def _sin_parity(f: Format, r: Expr, n: Expr) -> Expr:
    """(-1)^n · sin(r), |r| <= π/2; only the lowest bit of n counts."""
    z = r * r
    y = r + r * (z * poly(z, f.table["SIN"]))
    return f.float(f.bits(y) ^ (n << (f.ints.bits - 1)))
