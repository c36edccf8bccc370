"""exp, log and log1p."""

from __future__ import annotations

import math

from pyruntime.ir.expr import Expr, cast, maximum, minimum, round_even, select
from pyruntime.mathlib.format import Format, poly


def exp(f: Format, x: Expr, shift: int = 0, ends_in_zero: bool = False) -> Expr:
    """e^x · 2^shift. ends_in_zero: 0 instead of subnormal numbers (docs/use/wrong.md#subnormal-numbers).

    x = n·ln 2 + r with |r| <= ln 2 / 2; ln 2 is split in two parts, so that n times the first part is exact. If the
    result is normal, n is added to the exponent of e^r. Else the power of two is applied as two factors, so that the
    last multiplication yields overflow and gradual underflow."""
    low, high, to_base2, normal, last = f.table["EXP_RANGE"]
    ln2, ln2_rest = f.table["LN2"]
    x = x if ends_in_zero else minimum(maximum(x, low), high)
    n = round_even(x * to_base2)
    r = x - n * ln2 - n * ln2_rest
    if ends_in_zero:
        scaled = f.float(f.bits(r * poly(r, f.table["EXP"]) + 1.0) + (f.bits(n + f.whole) << f.fraction))
        return select(x < normal, f.const(0.0), select(x <= last, scaled, x + math.inf))  # NaN stays
    power = f.bits(n + (f.whole + 2 * f.bias + shift))  # its low bits are n + shift + the biases of both factors
    half = power >> 1
    first, second = f.float(half << f.fraction), f.float((power - half) << f.fraction)
    return (r * poly(r, f.table["EXP"]) + 1.0) * first * second


def log(f: Format, x: Expr) -> Expr:
    tiny = x < 2.0 ** (1 - f.bias)
    scale = 2.0 ** (f.fraction + 1)
    finite = _log(f, select(tiny, x * scale, x), select(tiny, f.const(-(f.fraction + 1)), 0.0), None)
    limit = select(x == 0.0, f.const(-math.inf), math.nan)
    return select(x > 0.0, select(x < math.inf, finite, x), limit)


def log1p(f: Format, u: Expr, more: Expr | None = None) -> Expr:
    """log(1 + u) + more·ln 2 for finite u >= 0; the rounding error of 1 + u is added to the small terms. The maximum
    hides 1 + u from compilers: WGSL permits them to replace (u + 1) - 1 by u, which loses all digits near 0, and
    lavapipe does so."""
    w = maximum(u + 1.0, 1.0)
    return _log(f, w, more, (u - (w - 1.0)) / w)


def _log(f: Format, w: Expr, more: Expr | None, rest: Expr | None) -> Expr:
    """log(w) + more·ln 2 + rest for normal w: w = 2^k·(1 + g) with 1 + g in √½ .. √2; log(1 + g) is a series in s = g /
    (2 + g). The large terms are added last."""
    root_half, *_ = f.table["ROOT_HALF_BITS"]
    ln2, ln2_rest = f.table["LN2"]
    exponent = (f.bits(w) - int(root_half)) >> f.fraction
    g = f.float(f.bits(w) - (exponent << f.fraction)) - 1.0
    k = cast(exponent, f.floats)
    k = k if more is None else k + more
    s = g / (g + 2.0)
    z = s * s
    half_square = g * g * 0.5
    small = k * ln2_rest if rest is None else k * ln2_rest + rest
    series = s * (half_square + z * poly(z, f.table["LOG"])) + small
    return k * ln2 - ((half_square - series) - g)
