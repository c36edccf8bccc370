"""A float format as the algorithms see it, and small helpers."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import Expr, bitcast, const, unary


@dataclass(frozen=True)
class Format:
    """floats, ints: types of equal width; fraction: explicit bits of the significand; bias: of the exponent; table:
    name -> coefficients or parts of a constant, each exact in the format."""

    floats: DType
    ints: DType
    fraction: int
    bias: int
    table: dict[str, tuple[float, ...]]

    def const(self, x: float) -> Expr:
        return const(x, self.floats)

    def integer(self, n: int) -> Expr:
        return const(n, self.ints)

    def bits(self, x: Expr) -> Expr:
        return bitcast(x, self.ints)

    def float(self, x: Expr) -> Expr:
        """The float with these bits."""
        return bitcast(x, self.floats)

    @property
    def sign_mask(self) -> int:
        return -(1 << (self.ints.bits - 1))

    @property
    def whole(self) -> builtins.float:
        """1.5 · 2^fraction: the sum with a small integer has that integer in its low bits."""
        return 1.5 * 2.0**self.fraction


def poly(z: Expr, coefficients: Sequence[float]) -> Expr:
    """c0 + c1·z + c2·z² + … by Horner's rule."""
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = z * total + c
    return total


def signed(f: Format, magnitude: Expr, source: Expr) -> Expr:
    """A non-negative magnitude with the sign of `source`."""
    return f.float(f.bits(magnitude) | (f.bits(source) & f.sign_mask))


def absolute(x: Expr) -> Expr:
    return unary("abs", x)
