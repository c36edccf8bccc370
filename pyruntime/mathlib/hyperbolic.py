"""tanh, sinh, cosh, their inverses, and erf."""

from __future__ import annotations

from pyruntime.expr import Expr, clip
from pyruntime.mathlib.format import Format, poly


def saturating(f: Format, x: Expr, name: str) -> Expr:
    """tanh or erf, as 2s / (1 + s²) with s = x·p(x²) / q(x²), x clamped to where the function rounds to ±1.

    For tanh, s is tanh(x/2). The outer function is flat at s = 1, which damps the errors of p and q there.
    """
    edge, *_ = f.table[name + "_EDGE"]
    x = clip(x, -edge, edge)
    z = x * x
    a, b = x * poly(z, f.table[name]), poly(z, f.table[name + "_BELOW"])
    return (a + a) * b / (a * a + b * b)
