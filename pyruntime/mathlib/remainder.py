"""rem and mod of floats, exact for any quotient."""

from __future__ import annotations

import math

from pyruntime.ir.expr import Expr, cast, guard, select, trunc
from pyruntime.mathlib.format import Format, absolute, signed
from pyruntime.mathlib.power import upper

STEPS = 4  # of the long division; each yields half a significand of the quotient's digits


def rem(f: Format, a: Expr, b: Expr) -> Expr:
    """C's fmod: a minus a whole multiple of b; NaN for b = 0 and infinite a."""
    x, d = absolute(a), absolute(b)
    near = x / d < 2.0 ** (STEPS * (f.fraction // 2))
    r = guard(near, _long_division(f, x, d), _by_powers(f, x, d))
    return signed(f, select(x < d, x, select(r < d, r, math.nan)), a)


def mod(f: Format, a: Expr, b: Expr) -> Expr:
    """Python's %: the remainder with the sign of b."""
    r = rem(f, a, b)
    return select((r < 0.0) ^ (b < 0.0), select(r == 0.0, r, r + b), r)


def _long_division(f: Format, x: Expr, d: Expr) -> Expr:
    d_high = upper(f, d)
    d_low = d - d_high
    for _ in range(STEPS):  # q may be one too large; x is then negative, which the next step corrects
        q = trunc(upper(f, x / d))
        x = x - q * d_high - q * d_low
    return select(x < 0.0, x + d, x)


def _by_powers(f: Format, x: Expr, d: Expr) -> Expr:
    """x mod d for any quotient. x = m · 2^a and d = n · 2^b with integers m and n below 2^(fraction + 1). With k = a -
    b (at least 0), m · (2^k mod n) mod n is the significand of x mod d."""
    (m, e), (n, unit) = _parts(f, x), _parts(f, d)
    k = e - unit
    power = f.integer(1)
    for bit in reversed(range((2 * f.bias + f.fraction).bit_length())):
        power = _product(f, power, power, n)
        power = select((k & (1 << bit)) != 0, power + power, power)
    r = cast(_product(f, m, power, n), f.floats)
    scaled = r * 2.0**-f.fraction * f.float(unit << f.fraction)
    return select((x < math.inf) & (d > 0.0), scaled, math.nan)


def _parts(f: Format, x: Expr) -> tuple[Expr, Expr]:
    """The significand as an integer, and the biased exponent, of a non-negative x."""
    bits = f.bits(x)
    stored, digits = bits >> f.fraction, bits & (1 << f.fraction) - 1
    normal = stored != 0
    return select(normal, digits | 1 << f.fraction, digits), select(normal, stored, f.integer(1))


def _product(f: Format, a: Expr, b: Expr, n: Expr) -> Expr:
    """a · b mod n for 0 <= a <= 2n, b <= 2n. The quotient, computed as a float, may be a few units off; the products
    wrap, but their difference is small."""
    divisor = cast(n, f.floats)
    q = cast(cast(a, f.floats) * cast(b, f.floats) / divisor, f.ints)
    r = a * b - q * n
    r = r - cast(cast(r, f.floats) / divisor, f.ints) * n
    return select(r < 0, r + n, r)
