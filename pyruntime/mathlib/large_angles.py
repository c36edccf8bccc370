"""Argument reduction of large angles modulo 2π (Payne and Hanek). x = whole · 2^e, and x/2π is needed modulo 1, so only
digits of 2^e/2π after the point matter: as many as `whole` has, and a few guard digits.

The first 32 of them (64 for float64), rounded, form an integer whose product with `whole` wraps modulo one turn; a
float holds the remaining digits."""

from __future__ import annotations

import math
from typing import Any

from pyruntime.ir.dtype import U64
from pyruntime.ir.expr import Expr, bitcast, cast, round_even, select
from pyruntime.mathlib.format import Format, absolute

DIGITS = 1216  # binary digits
INVERSE_TURN = int(
    "28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107F9458EAF7AEF1586DC91B8E909374B801924BBA82746487"
    "3F877AC72C4A69CFBA208D7D4BAED1213A671C09AD17DF904E64758E60D4CE7D272117E2EF7E4A0EC7FE25FFF7816603"
    "FBCBC462D6829B47DB4D9FB3C9F2C26DD3D18FD9A797FA8B5D49EEB1FAF97C5ECF41CE7DE294A4BA9AFED7EC47E35742"
    "1580CC11BF1EDAEA",
    16,
)  # 2^DIGITS / 2π
STEP = 8  # step between exponents of float32: `whole` has up to 31 binary digits, the significand 24


def reduce_turns(f: Format, x: Expr) -> Expr:
    """x minus a multiple of 2π, in -π .. π, with an absolute error of a few units in the last place of 1. Infinity and
    NaN give NaN."""
    return (_by_steps if f.ints.bits == 32 else _by_words)(f, x)


def _digits(first: int, count: int) -> int:
    """`count` binary digits of 1/2π, from digit `first` after the point on, as a signed integer."""
    digits = INVERSE_TURN >> (DIGITS - first - count) & (1 << count) - 1
    return digits - (digits >> (count - 1) << count)


def _by_steps(f: Format, x: Expr) -> Expr:
    """float32 in 32-bit lanes: comparisons choose the digits for exponents 0, 8, 16, …."""
    size = absolute(x)
    unit, (turn, lost) = f.const(1.0), _step(f, 0)
    for e in range(STEP, f.bias - 22, STEP):
        beyond = size >= 2.0 ** (31 - STEP + e)
        unit = select(beyond, 2.0**-e, unit)
        turn, lost = [select(beyond, new, old) for new, old in zip(_step(f, e), (turn, lost), strict=True)]
    scaled = x * unit
    nearest = round_even(scaled)
    return _angle(f, cast(nearest, f.ints), turn, lost, scaled - nearest)


def _step(f: Format, e: int) -> tuple[Expr, Expr]:
    rest = _digits(e + 32, 32)
    return f.integer(_digits(e, 32) + (rest < 0)), f.const(rest * 2 * math.pi / 2**64)


def _by_words(f: Format, x: Expr) -> Expr:
    """float64: three words of digits, shifted by the exponent."""
    size = absolute(x)
    far = size >= 2.0**63
    bits = f.bits(size)
    exponent = select(far, (bits >> f.fraction) - (f.bias + f.fraction), f.integer(0))
    significand = (bits & (1 << f.fraction) - 1) | 1 << f.fraction
    nearest = round_even(x)
    whole = select(far, select(x < 0.0, -significand, significand), cast(nearest, f.ints))
    words = [f.integer(_digits(64 * n, 64)) for n in range(3)]
    for word in range(1, 16):
        beyond = exponent >= 64 * word
        words = [select(beyond, _digits(64 * (word + n), 64), old) for n, old in enumerate(words)]
    shift = exponent & 63

    def shifted(first: Expr, second: Expr) -> Expr:
        return (first << shift) | bitcast((bitcast(second, U64) >> 1) >> bitcast(63 - shift, U64), f.ints)

    turn, rest = shifted(words[0], words[1]), shifted(words[1], words[2])
    lost = cast(rest, f.floats) * (2 * math.pi / 2.0**128)
    return _angle(f, whole, select(rest < 0, turn + 1, turn), lost, select(far, x - x, x - nearest))


def _angle(f: Format, whole: Expr, turn: Expr, lost: Expr, fraction: Any) -> Expr:
    scale = 2 * math.pi / 2.0**f.ints.bits
    return cast(whole * turn, f.floats) * scale + (cast(whole, f.floats) * lost + fraction)
