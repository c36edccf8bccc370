"""Arithmetic of intervals: bounds of dims that hold for all values of their symbols. Infinity: unbounded."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

Interval = tuple[float, float]


def product(a: Interval, b: Interval) -> Interval:
    if a == (1, 1):
        return b
    if a[0] < 0 or b[0] < 0:
        return -inf, inf
    return a[0] * b[0], inf if inf in (a[1], b[1]) else a[1] * b[1]


def of_operation(op: str, args: Sequence[Interval]) -> Interval:
    """The interval of an operation on dims with these intervals."""
    if op in ("lt", "le", "eq"):
        return 0, 1
    (a, b), (c, d) = args[-2:]
    if op == "select":
        return min(a, c), max(b, d)
    if op == "max":
        return max(a, c), max(b, d)
    if op == "min":
        return min(a, c), min(b, d)
    if op == "+":
        return a + c, b + d
    if op == "*":
        return product((a, b), (c, d))
    if op == "floordiv" and c > 0 and a > -inf:
        return (0 if a >= 0 else a), (inf if b == inf else max(b, 0) // c)
    return -inf, inf
