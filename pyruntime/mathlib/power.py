"""pow of floats and integers."""

from __future__ import annotations

import math
from typing import Any

from pyruntime.ir.expr import Expr, cast, clip, const, round_even, select, unary
from pyruntime.mathlib.format import Format, absolute, poly, signed

Pair = tuple[Expr, Expr]  # an unevaluated sum, the larger part first


def power(f: Format, x: Expr, y: Expr) -> Expr:
    """x^y as C's pow defines it: 2^(y·log2|x|) with the logarithm and the product as sums of two floats."""
    small = _small_power(x, y)
    if small is not None:
        return small
    a = absolute(x)
    value = _exp2(f, _times(f, _log2(f, a), y))
    edge = select(y < 0.0, 1.0 / a, select(y > 0.0, a, y))  # for x of 0, infinity and NaN
    value = select((a > 0.0) & (a < math.inf), value, edge)
    half = y * 0.5
    odd = (y == round_even(y)) & (half != round_even(half))
    value = select(odd, signed(f, value, x), value)
    fails = (x < 0.0) & (a < math.inf) & (y != round_even(y))
    return select((x == 1.0) | (y == 0.0), f.const(1.0), select(fails, math.nan, value))


def _small_power(x: Expr, y: Expr) -> Expr | None:
    """x^y for constant exponents that take a few multiplications, else None."""
    if y.op == "cast" and y.args[0].op == "const":
        y = y.args[0]
    if y.op != "const":
        return None
    forms: dict[float, Any] = {
        0.0: lambda: const(1.0, x.dtype),
        1.0: lambda: x,
        2.0: lambda: x * x,
        3.0: lambda: x * x * x,
        -1.0: lambda: 1.0 / x,
        0.5: lambda: select(x == -math.inf, math.inf, unary("sqrt", x + 0.0)),
    }
    form = forms.get(float(y.value))
    return form() if form else None


def upper(f: Format, x: Expr) -> Expr:
    """x with the lower half of its significand cleared: products of two such numbers are exact."""
    return f.float(f.bits(x) & -(1 << (f.fraction + 2) // 2))


def _log2(f: Format, a: Expr) -> Pair:
    """log2(a) for finite a > 0: k + (2 / 3 ln 2)·s·(3 + s² + …) with s = g / (2 + g) and its rounding error."""
    root_half, *_ = f.table["ROOT_HALF_BITS"]
    tiny = a < 2.0 ** (1 - f.bias)
    a = select(tiny, a * 2.0 ** (f.fraction + 1), a)
    exponent = (f.bits(a) - int(root_half)) >> f.fraction
    k = cast(exponent, f.floats) - select(tiny, f.const(f.fraction + 1), 0.0)
    m = f.float(f.bits(a) - (exponent << f.fraction))
    s, s_high, s_low = _half_tanh(f, m)
    z = s * s
    more = z * z * poly(z, f.table["POW_LOG"]) + s_low * (s_high + s)
    square = s_high * s_high
    t_high = upper(f, square + 3.0 + more)
    t_low = more - ((t_high - 3.0) - square)
    u, v = s_high * t_high, s_low * t_high + t_low * s
    p_high = upper(f, u + v)
    p_low = v - (p_high - u)
    scale, scale_high, scale_low = f.table["POW_SCALE"]
    high, low = p_high * scale_high, p_high * scale_low + p_low * scale
    first = upper(f, high + low + k)
    return first, low - ((first - k) - high)


def _half_tanh(f: Format, m: Expr) -> tuple[Expr, Expr, Expr]:
    """s = (m - 1) / (m + 1), its upper half, and its rest beyond float precision."""
    g, w = m - 1.0, m + 1.0
    s = g / w
    s_high, w_high = upper(f, s), upper(f, w)
    w_low = m - (w_high - 1.0)
    return s, s_high, (g - s_high * w_high - s_high * w_low) / w


def _times(f: Format, log: Pair, y: Expr) -> Pair:
    """log·y, clamped to limits at which 2^(log·y) overflows or underflows. If |y| exceeds its own limit, 2^(log·y)
    overflows or underflows for every base but 1."""
    high, low = log
    limit, most = f.table["POW_LIMIT"]
    y = clip(y, -limit, limit)
    y_high = upper(f, y)
    return clip(high * y_high, -most, most), clip((y - y_high) * high + y * low, -1.0, 1.0)


def _exp2(f: Format, exponent: Pair) -> Expr:
    high, low = exponent
    n = round_even(high + low)
    part = high - n
    t = upper(f, part + low)
    ln2, ln2_high, ln2_low = f.table["POW_LN2"]
    u, v = t * ln2_high, (low - (t - part)) * ln2 + t * ln2_low
    z = u + v
    head = z + 1.0
    rest = (v - (z - u)) + (z - (head - 1.0)) + z * z * poly(z, f.table["POW_EXP"])
    bits = f.bits(n + (f.whole + 2 * f.bias))
    half = bits >> 1
    return (head + rest) * f.float(half << f.fraction) * f.float((bits - half) << f.fraction)


def integer_power(x: Expr, n: Expr) -> Expr:
    """x^n for integers, wrapping; for negative n 1 / x^-n, truncated.

    Exact modulo 2^bits for n < 64. For larger n, exact for |x| <= 1 and even x; all other powers are out of range."""
    one, zero = const(1, x.dtype), const(0, x.dtype)
    parity = n & 1
    count = absolute(n) if n.dtype.kind == "i" else n
    count = select((count >= 0) & (count < 64), count, parity + 64)  # abs of the lowest integer is negative
    result, base = one, x
    for bit in range(7):
        result = select((count & (1 << bit)) != 0, result * base, result)
        base = base * base
    if n.dtype.kind != "i":
        return result
    unit = x == one if x.dtype.kind == "u" else (x == one) | (x == -1)
    return select((n >= 0) | unit, result, zero)
