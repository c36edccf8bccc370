"""Losses of vectors, which are the last axis: cosine embedding, triplets."""

from __future__ import annotations

from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import X, Y, Z, const, maximum, minimum, select, sqrt
from pyruntime.ir.kernel import Tensor

EPSILON = 1e-6  # PyTorch's, in distances; its square in cosines


def cosines(t: Tracer, a: Tensor, b: Tensor) -> Tensor:
    """a·b / √((a·a + ε)·(b·b + ε)) of the last axis."""
    products = [t.reduce("sum", t.map(X * Y, x, y), [-1], keepdims=False) for x, y in ((a, b), (a, a), (b, b))]
    return t.map(X / sqrt((Y + EPSILON * EPSILON) * (Z + EPSILON * EPSILON)), *products)


def pairs(t: Tracer, a: Tensor, b: Tensor, sides: Tensor | None, margin: float) -> Tensor:
    """1 - cosine for pairs of side 1 (None: all), max(0, cosine - margin) for those of side -1, else 0."""
    found = cosines(t, a, b)
    if sides is None:
        return t.map(1.0 - X, found)
    zero = const(0.0, found.dtype)
    unlike = select(Y == -1.0, maximum(X - margin, zero), zero)
    return t.map(select(Y == 1.0, 1.0 - X, unlike), found, sides)


def triplet(
    t: Tracer, a: Tensor, near: Tensor, far: Tensor, work: DType, settings: dict[str, Any]
) -> Tensor:  # fmt: skip
    """max(0, |a - near| - |a - far| + margin); swap: |near - far| in place of |a - far| if it is smaller."""

    def distance(x: Tensor, y: Tensor) -> Tensor:
        squares = t.map((X - Y + EPSILON) * (X - Y + EPSILON), x, t.cast(y, work))
        return t.map(sqrt(X), t.reduce("sum", squares, [-1], keepdims=False))

    near, far = t.cast(near, work), t.cast(far, work)
    close, wide, other = distance(a, near), distance(a, far), distance(near, far)
    wide = t.map(minimum(X, Y), wide, other) if settings["swap"] else wide
    margin = float(settings["margin"])
    return t.map(maximum(X - Y + margin, const(0.0, work)), close, wide)
