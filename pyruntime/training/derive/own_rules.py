"""Rules that operators state themselves: softmax, normalisation, smooth formulas, rounding."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.own_gradients import ROUNDED, Cotangents
from pyruntime.ir.expr import Expr, W, X, Y, Z, cast, exp, index
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib import formula
from pyruntime.ops.standard import norm, reduce
from pyruntime.training.derive.backward_walk import Walk
from pyruntime.training.derive.derivative import contributions


@reduce.SOFTMAX.function
def softmax(walk: Walk, g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Cotangents:
    """y · (g - Σ g·y)."""
    t = walk.t
    total = t.reduce("sum", t.map(X * Y, g, y), axes)
    return [(x, t.map((X - Z) * Y, g, y, total))]


@reduce.LOG_SOFTMAX.function
def log_softmax(walk: Walk, g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Cotangents:
    """g - e^y · Σ g."""
    t = walk.t
    return [(x, t.map(X - exp(Y) * Z, g, y, t.reduce("sum", g, axes)))]


@norm.CENTRE.function
def centre(walk: Walk, g: Tensor, y: Tensor, x: Tensor, inverse: Tensor, axes: Sequence[int]) -> Cotangents:
    """Of y = (x - mean) · inverse: inverse · (g - mean of g - y · mean of g·y)."""
    t = walk.t
    first, second = norm.mean_of(t, g, axes), norm.mean_of(t, t.map(X * Y, g, y), axes)
    scale = t.aligned(inverse, g.shape)
    return [(x, t.map((X - Y - Z * W) * scale, g, first, y, second))]


@formula.POINTWISE.function
def pointwise(walk: Walk, g: Tensor, x: Tensor, derivative: Expr) -> Cotangents:
    """derivative: of an element, Y"""
    return [(x, walk.t.map(X * derivative, g, x))]


@ROUNDED.function
def rounded(walk: Walk, g: Tensor, value: Expr) -> Cotangents:
    """Of codes: as if `value` were not rounded."""
    g_value = cast(g.at(*[index(n) for n in range(g.rank)]), value.dtype)
    return walk.into_loads(contributions(value, g_value, walk.is_active), g.shape)
