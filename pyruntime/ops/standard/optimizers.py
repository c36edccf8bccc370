"""Optimiser steps of ai.onnx.preview.training. Inputs are the rate R, the number T of steps so far, then all values,
all gradients and all states, in groups; outputs are the new values and states, in groups.

Spec: https://onnx.ai/onnx/operators/#ai-onnx-preview-training"""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import W, X, Y, Z, cast, const, power, select, sqrt
from pyruntime.ir.kernel import Tensor

DOMAIN = "ai.onnx.preview.training"


def _groups(t: Tracer, tensors: Sequence[Tensor], kinds: int) -> list[tuple[Tensor, ...]]:
    """(value, gradient, states…) for each value."""
    count, rest = divmod(len(tensors), kinds)
    if rest:
        raise t.shape_error(f"{len(tensors)} tensors are not {kinds} groups of equal size")
    groups = [tuple(tensors[n::count]) for n in range(count)]
    for group in groups:
        types = list(dict.fromkeys(str(x.dtype) for x in group))
        if len(types) > 1:
            raise t.unsupported(f"a value, its gradient and its states have different types: {', '.join(types)}")
    return groups


@op("Adagrad", since=1, domain=DOMAIN)
def adagrad(
    t: Tracer, r: Tensor, steps: Tensor, *tensors: Tensor, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> list[Tensor]:  # fmt: skip
    """h' = h + g², x' = x - rate·g / (√h' + ε) with g = gradient + norm·x and rate = R / (1 + decay·T)."""
    results: list[tuple[Tensor, Tensor]] = []
    rate = t.map(X / (cast(Y, r.dtype) * decay_factor + 1.0), r, steps)
    for x, gradient, h in _groups(t, tensors, 3):
        g = t.map(X * norm_coefficient + Y, x, gradient)
        new_h = t.map(X + Y * Y, h, g)
        results.append((t.map(X - Y * Z / (sqrt(W) + epsilon), x, _as(t, rate, x), g, new_h), new_h))
    return [x for column in zip(*results, strict=True) for x in column]


@op("Adam", since=1, domain=DOMAIN)
def adam(
    t: Tracer, r: Tensor, steps: Tensor, *tensors: Tensor, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> list[Tensor]:  # fmt: skip
    """v' = α·v + (1-α)·g, h' = β·h + (1-β)·g², x' = (1-post)·(x - rate·v' / (√h' + ε)); rate = R·√(1-βᵀ) / (1-αᵀ), but
    R if T is 0."""
    results: list[tuple[Tensor, Tensor, Tensor]] = []
    count = cast(Y, r.dtype)
    corrected = X * sqrt(1.0 - power(const(beta, r.dtype), count)) / (1.0 - power(const(alpha, r.dtype), count))
    rate = t.map(select(Y > 0, corrected, X), r, steps)
    for x, gradient, v, h in _groups(t, tensors, 4):
        g = t.map(X * norm_coefficient + Y, x, gradient)
        new_v = t.map(X * alpha + Y * (1.0 - alpha), v, g)
        new_h = t.map(X * beta + Y * Y * (1.0 - beta), h, g)
        new_x = t.map(X - Y * Z / (sqrt(W) + epsilon), x, _as(t, rate, x), new_v, new_h)
        results.append((t.map(X * (1.0 - norm_coefficient_post), new_x), new_v, new_h))
    return [x for column in zip(*results, strict=True) for x in column]


@op("Momentum", since=1, domain=DOMAIN)
def momentum(
    t: Tracer, r: Tensor, steps: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> list[Tensor]:  # fmt: skip
    """v' = α·v + β·g (β is 1 in the first step), x' = x - R·v'; nesterov: x' = x - R·(g + α·v')."""
    if mode not in ("standard", "nesterov"):
        raise t.unsupported(f"mode {mode!r} is not known")
    results: list[tuple[Tensor, Tensor]] = []
    scale = t.map(select(X > 0, const(beta, r.dtype), const(1.0, r.dtype)), steps)
    for x, gradient, v in _groups(t, tensors, 3):
        g = t.map(X * norm_coefficient + Y, x, gradient)
        new_v = t.map(X * alpha + Y * Z, v, _as(t, scale, x), g)
        step = t.map(X + Y * alpha, g, new_v) if mode == "nesterov" else new_v
        results.append((t.map(X - Y * Z, x, _as(t, r, x), step), new_v))
    return [x for column in zip(*results, strict=True) for x in column]


def _as(t: Tracer, scalar: Tensor, x: Tensor) -> Tensor:
    """scalar in x's type; R may have another type than the values."""
    return t.cast(scalar, x.dtype)
