"""Optimisers: how a step changes a weight by its gradient. Weights, gradients and moments are float32 or float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyruntime.ir.expr import Expr, const, maximum, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.runtime.step_numbers import FIRST, RATE, SECOND

Settings = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """moments: names of the states that a weight has; numbers: of the step, which it needs, the rate first
    (pyruntime/runtime/step_numbers.py); new: (weight, *moments, gradient, *tensors, *numbers) -> new values;
    decay: "gradient" if it adds to gradients, so that moments change where the gradient is 0; "weight" if it shrinks
    weights, "" without decay; tensors: further operands, of the weight's shape or of one number"""

    moments: tuple[str, ...]
    numbers: tuple[int, ...]
    new: Callable[..., Sequence[Expr]]
    decay: str
    tensors: tuple[Tensor, ...] = ()


def sgd(s: Settings) -> Rule:
    """v = momentum·v + g, w = w - rate·v; nesterov: w = w - rate·(g + momentum·v)"""
    keep, decay = float(s["momentum"]), float(s["decay"])
    if not keep:
        return Rule((), (RATE,), lambda x, g, rate: (x - (g + x * decay) * rate,), "weight" if decay else "")

    def new(x: Expr, v: Expr, g: Expr, rate: Expr) -> Sequence[Expr]:
        full = g + x * decay
        v = v * keep + full
        return x - (full + v * keep if s["nesterov"] else v) * rate, v

    return Rule(("v",), (RATE,), new, "gradient" if decay else "")


def adam(s: Settings, decoupled: bool = False) -> Rule:
    """Adam, whose decay adds to the gradient; AdamW, whose decay shrinks the weight (decoupled). transformers: as
    Hugging Face's AdamW and onnxruntime's by default: epsilon comes before the correction, decay after the update.
    amsgrad: the largest v so far takes the place of v"""
    b1, b2, eps, decay = (float(s[k]) for k in ("beta1", "beta2", "epsilon", "decay"))
    added, shrinks = (0.0, decay) if decoupled else (decay, 0.0)

    def new(x: Expr, m: Expr, v: Expr, *rest: Expr) -> Sequence[Expr]:
        *most, g, rate, c1, c2 = rest
        g = g + x * added if added else g
        m, v = m * b1 + g * (1 - b1), v * b2 + g * g * (1 - b2)
        most = [maximum(old, v) for old in most]
        largest = most[0] if most else v
        if s.get("transformers"):
            return (x - m * c1 / ((sqrt(largest) + eps) * c2) * rate) * (1.0 - rate * shrinks), m, v, *most
        shrunk = x - x * shrinks * rate if shrinks else x
        return shrunk - m * c1 / (sqrt(largest) * c2 + eps) * rate, m, v, *most

    moments = ("m", "v", "most") if s.get("amsgrad") else ("m", "v")
    return Rule(moments, (RATE, FIRST, SECOND), new, ("weight" if decoupled else "gradient") if decay else "")


def adagrad(s: Settings) -> Rule:
    """h = h + g², w = w - rate·g / (√h + ε)"""
    eps, decay = float(s["epsilon"]), float(s["decay"])

    def new(x: Expr, h: Expr, g: Expr, rate: Expr) -> Sequence[Expr]:
        full = g + x * decay
        h = h + full * full
        return x - full / (sqrt(h) + eps) * rate, h

    return Rule(("h",), (RATE,), new, "gradient" if decay else "")


def lion(s: Settings) -> Rule:
    """w = w - rate·(sign(β₁·m + (1-β₁)·g) + decay·w), then m = β₂·m + (1-β₂)·g"""
    b1, b2, decay = (float(s[k]) for k in ("beta1", "beta2", "decay"))

    def sign(x: Expr) -> Expr:
        one = const(1.0, x.dtype)
        return select(x > 0.0, one, select(x < 0.0, -one, const(0.0, x.dtype)))

    def new(x: Expr, m: Expr, g: Expr, rate: Expr) -> Sequence[Expr]:
        return x - (sign(m * b1 + g * (1 - b1)) + x * decay) * rate, m * b2 + g * (1 - b2)

    return Rule(("m",), (RATE,), new, "weight" if decay else "")


def rmsprop(s: Settings) -> Rule:
    """v = α·v + (1-α)·g², u = g / (√v + ε), w = w - rate·u; centered: v less the square of the mean gradient m, which
    is m = α·m + (1-α)·g; momentum: u = momentum·u + g / (√v + ε)"""
    alpha, eps, keep, decay = (float(s[k]) for k in ("alpha", "epsilon", "momentum", "decay"))
    moments = ("v", *(("m",) if s["centered"] else ()), *(("u",) if keep else ()))

    def new(x: Expr, v: Expr, *rest: Expr) -> Sequence[Expr]:
        *more, g, rate = rest
        g = g + x * decay
        v = v * alpha + g * g * (1 - alpha)
        means = [m * alpha + g * (1 - alpha) for m in more[:1] if s["centered"]]
        spread = maximum(v - means[0] * means[0], const(0.0, v.dtype)) if means else v
        u = g / (sqrt(spread) + eps)
        u = more[-1] * keep + u if keep else u
        return x - u * rate, v, *means, *([u] if keep else [])

    return Rule(moments, (RATE,), new, "gradient" if decay else "")


KINDS: dict[str, Callable[[Settings], Rule]] = {
    "sgd": sgd,
    "adam": adam,
    "adamw": partial(adam, decoupled=True),
    "adagrad": adagrad,
    "lion": lion,
    "rmsprop": rmsprop,
}
