"""sin, cos, tan and their inverses.

float32 sin and cos: 2.4 ULP up to |x| = 1e5, above that an absolute error of 5e-7. float64: the same up to 1e6, then
1e-15."""

from __future__ import annotations

from pyruntime.ir.expr import Expr, guard, round_even, select, unary
from pyruntime.mathlib.format import Format, absolute, poly, signed
from pyruntime.mathlib.large_angles import reduce_turns


def sin(f: Format, x: Expr) -> Expr:
    y = _fold(f, x)
    n = round_even(y * f.table["INVERSE_PI"][0])
    return select(x == 0.0, x, _sin_parity(f, _reduce(f, y, n), f.bits(n + f.whole)))


def cos(f: Format, x: Expr) -> Expr:
    """sin(x + π/2): subtracts (n + ½)·π."""
    y = _fold(f, x)
    n = round_even(y * f.table["INVERSE_PI"][0] - 0.5)
    return _sin_parity(f, _reduce(f, y, n + 0.5), f.bits(n + (f.whole + 1.0)))


def _fold(f: Format, x: Expr) -> Expr:
    """x, or if |x| is large or infinite, x minus a multiple of 2π. A branch, because large angles are rare."""
    return guard(absolute(x) < f.table["FOLD"][0], x, reduce_turns(f, x))


def _reduce(f: Format, x: Expr, n: Expr) -> Expr:
    """x - n·π, with π in parts whose products with n, except the last, are exact. Near a multiple of π all differences
    are exact; elsewhere the rounding error of the third is added to the fourth."""
    first, second, third, fourth, last = f.table["PI"]
    coarse = x - n * first - n * second
    step = n * third
    fine = coarse - step
    return fine - (n * fourth - (coarse - fine - step)) - n * last


def _sin_parity(f: Format, r: Expr, n: Expr) -> Expr:
    """(-1)^n · sin(r) for |r| <= π/2; only the lowest bit of n counts."""
    z = r * r
    y = r + r * (z * poly(z, f.table["SIN"]))
    return f.float(f.bits(y) ^ (n << (f.ints.bits - 1)))


def tan(f: Format, x: Expr) -> Expr:
    """sin r / cos r with r = x - n·π/2 and n the nearest integer; for odd n, -cos r / sin r."""
    y = _fold(f, x)
    n = round_even(y * f.table["INVERSE_PI"][0] * 2.0)
    r = _reduce(f, y, n * 0.5)
    z = r * r
    sine = r + r * (z * poly(z, f.table["SIN"]))
    half_square = z * 0.5
    head = 1.0 - half_square
    cosine = head + (((1.0 - head) - half_square) + z * z * poly(z, f.table["COS"]))
    odd = (f.bits(n + f.whole) & 1) == 1
    return select(x == 0.0, x, select(odd, -cosine, sine) / select(odd, sine, cosine))


def atan(f: Format, x: Expr) -> Expr:
    """atan a = base + atan t with t = a, (a - 1) / (a + 1) or -1 / a for small, middle and large a, so that |t| <=
    tan(π/8)."""
    middle, large = f.table["ATAN_FROM"]
    quarter, quarter_rest, half, half_rest = f.table["ATAN_BASE"]
    a = absolute(x)
    is_middle, is_large = a > middle, a > large
    above = select(is_large, f.const(-1.0), select(is_middle, a - 1.0, a))
    below = select(is_large, a, select(is_middle, a + 1.0, 1.0))
    t = above / below
    z = t * t
    base = select(is_large, f.const(half), select(is_middle, f.const(quarter), 0.0))
    rest = select(is_large, f.const(half_rest), select(is_middle, f.const(quarter_rest), 0.0))
    return signed(f, base + (t + (t * (z * poly(z, f.table["ATAN"])) + rest)), x)


def asin(f: Format, x: Expr) -> Expr:
    """Above ½: π/2 - 2·asin √((1 - a) / 2)."""
    half_pi, half_pi_rest = f.table["ATAN_BASE"][2:]
    a = absolute(x)
    near, root, correction = _asin_core(f, a)
    far = half_pi - (root + root + (2.0 * correction - half_pi_rest))
    return signed(f, select(near, root + correction, far), x)


def acos(f: Format, x: Expr) -> Expr:
    """π/2 - asin x for |x| <= ½, 2·asin √((1 - x) / 2) above ½, π - acos(-x) below -½."""
    half_pi, half_pi_rest = f.table["ATAN_BASE"][2:]
    near, root, correction = _asin_core(f, absolute(x))
    correction_x = select(x < 0.0, -correction, correction)
    middle = half_pi - (select(x < 0.0, -root, root) + (correction_x - half_pi_rest))
    twice = root + root + 2.0 * correction
    far = select(x < 0.0, 2.0 * half_pi - (twice - 2.0 * half_pi_rest), twice)
    return select(near, middle, far)


def _asin_core(f: Format, a: Expr) -> tuple[Expr, Expr, Expr]:
    """(a <= ½, t, asin t - t) with t = a, or √((1 - a) / 2) above ½ (NaN above 1)."""
    near = a <= 0.5
    z = select(near, a * a, (1.0 - a) * 0.5)
    t = select(near, a, unary("sqrt", z))
    return near, t, t * (z * poly(z, f.table["ASIN"]))
