"""The gradients that operators state themselves, by the names that they pass to `Tracer.own_gradient`.

A rule gets what flows into the value and the arguments that the operator passed, and returns the operands with what
flows into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.ir.expr import Expr, W, X, Y, Z, cast, exp, index
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.standard.norm import mean_of
from pyruntime.training.derive.backward_walk import Given, Walk
from pyruntime.training.derive.derivative import contributions


def softmax(walk: Walk, g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Given:
    """y · (g - Σ g·y)."""
    t = walk.t
    total = t.reduce("sum", t.map(X * Y, g, y), axes)
    return [(x, t.map((X - Z) * Y, g, y, total))]


def log_softmax(walk: Walk, g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Given:
    """g - e^y · Σ g."""
    t = walk.t
    return [(x, t.map(X - exp(Y) * Z, g, y, t.reduce("sum", g, axes)))]


def centre(walk: Walk, g: Tensor, y: Tensor, x: Tensor, inverse: Tensor, axes: Sequence[int]) -> Given:
    """Of y = (x - mean) · inverse: inverse · (g - mean of g - y · mean of g·y)."""
    t = walk.t
    first, second = mean_of(t, g, axes), mean_of(t, t.map(X * Y, g, y), axes)
    scale = t.aligned(inverse, g.shape)
    return [(x, t.map((X - Y - Z * W) * scale, g, first, y, second))]


def pointwise(walk: Walk, g: Tensor, x: Tensor, derivative: Expr) -> Given:
    """derivative: of an element, Y"""
    return [(x, walk.t.map(X * derivative, g, x))]


def rounded(walk: Walk, g: Tensor, value: Expr) -> Given:
    """Of codes: what flows into the value that was rounded."""
    flow = cast(g.at(*[index(n) for n in range(g.rank)]), value.dtype)
    return walk.into_loads(contributions(value, flow, walk.is_active), g.shape)


RULES: dict[str, Callable[..., Given]] = {
    "softmax": softmax, "log_softmax": log_softmax, "centre": centre, "pointwise": pointwise,
    "rounded": rounded,
}  # fmt: skip
