"""Optimisers: how a step changes a weight by its gradient. Weights, gradients and moments are float32 or float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, const, maximum, minimum, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.learning.updates import Updates
from pyruntime.runtime.training import FIRST, RATE, SECOND


@dataclass(slots=True)
class Weight:
    """A weight that a step changes. gradient: before clipping; moment(name): a state of the optimiser for it;
    number(n): of the step (pyruntime/runtime/training.py); factor: of the gradient; limit: of its values, 0 for
    none"""

    tensor: Tensor
    gradient: Tensor
    moment: Callable[[str], Tensor]
    number: Callable[[int], Expr]
    factor: Expr
    limit: float

    def clipped(self, g: Expr, factor: Expr) -> Expr:
        g = g * factor
        return g if self.limit <= 0 else minimum(maximum(g, -self.limit), self.limit)


def sgd(up: Updates, w: Weight, s: Mapping[str, float]) -> None:
    """v = momentum·v + g, w = w - rate·v; nesterov: w = w - rate·(g + momentum·v)"""
    keep, decay = float(s["momentum"]), float(s["decay"])
    if not keep:
        up.write(w.tensor, [w.gradient], [w.factor, w.number(RATE)],
                 lambda x, g, f, rate: x - (w.clipped(g, f) + x * decay) * rate)  # fmt: skip
        return
    v = up.write(w.moment("v"), [w.gradient, w.tensor], [w.factor],
                 lambda v, g, x, f: v * keep + (w.clipped(g, f) + x * decay))  # fmt: skip
    if s["nesterov"]:
        up.write(w.tensor, [w.gradient, v], [w.factor, w.number(RATE)],
                 lambda x, g, v, f, rate: x - (w.clipped(g, f) + x * decay + v * keep) * rate)  # fmt: skip
    else:
        up.write(w.tensor, [v], [w.number(RATE)], lambda x, v, rate: x - v * rate)


def adam(up: Updates, w: Weight, s: Mapping[str, float], decoupled: bool = False) -> None:
    """Adam, whose decay adds to the gradient; AdamW, whose decay shrinks the weight (decoupled). transformers: as
    Hugging Face's AdamW and onnxruntime's by default: epsilon comes before the correction, decay after the update"""
    b1, b2, eps = (float(s[k]) for k in ("beta1", "beta2", "epsilon"))
    added, shrinks = (0.0, float(s["decay"])) if decoupled else (float(s["decay"]), 0.0)

    def full(g: Expr, x: Expr, f: Expr) -> Expr:
        return w.clipped(g, f) + x * added if added else w.clipped(g, f)

    of = [w.gradient, w.tensor]
    m = up.write(w.moment("m"), of, [w.factor], lambda m, g, x, f: m * b1 + full(g, x, f) * (1 - b1))
    v = up.write(w.moment("v"), of, [w.factor], lambda v, g, x, f: v * b2 + full(g, x, f) * full(g, x, f) * (1 - b2))
    numbers = [w.number(n) for n in (RATE, FIRST, SECOND)]
    if s.get("transformers"):
        up.write(w.tensor, [m, v], numbers,
                 lambda x, m, v, rate, c1, c2: (
                     (x - m * c1 / ((sqrt(v) + eps) * c2) * rate) * (1.0 - rate * shrinks)))  # fmt: skip
        return
    up.write(w.tensor, [m, v], numbers,
             lambda x, m, v, rate, c1, c2: x - x * shrinks * rate - m * c1 / (sqrt(v) * c2 + eps) * rate)  # fmt: skip


def adagrad(up: Updates, w: Weight, s: Mapping[str, float]) -> None:
    """h = h + g², w = w - rate·g / (√h + ε)"""
    eps, decay = float(s["epsilon"]), float(s["decay"])

    def full(g: Expr, x: Expr, f: Expr) -> Expr:
        return w.clipped(g, f) + x * decay

    of = [w.gradient, w.tensor]
    h = up.write(w.moment("h"), of, [w.factor], lambda h, g, x, f: h + full(g, x, f) * full(g, x, f))
    up.write(w.tensor, [w.gradient, h], [w.factor, w.number(RATE)],
             lambda x, g, h, f, rate: x - full(g, x, f) / (sqrt(h) + eps) * rate)  # fmt: skip


def lion(up: Updates, w: Weight, s: Mapping[str, float]) -> None:
    """w = w - rate·(sign(β₁·m + (1-β₁)·g) + decay·w), then m = β₂·m + (1-β₂)·g"""
    b1, b2, decay = (float(s[k]) for k in ("beta1", "beta2", "decay"))

    def sign(x: Expr) -> Expr:
        one = const(1.0, w.tensor.dtype)
        return select(x > 0.0, one, select(x < 0.0, -one, const(0.0, w.tensor.dtype)))

    m = w.moment("m")
    up.write(w.tensor, [w.gradient, m], [w.factor, w.number(RATE)],
             lambda x, g, m, f, rate: x - (sign(m * b1 + w.clipped(g, f) * (1 - b1)) + x * decay) * rate)  # fmt: skip
    up.write(m, [w.gradient], [w.factor], lambda m, g, f: m * b2 + w.clipped(g, f) * (1 - b2))


KINDS: dict[str, Callable[[Updates, Weight, Mapping[str, float]], None]] = {
    "sgd": sgd,
    "adam": adam,
    "adamw": partial(adam, decoupled=True),
    "adagrad": adagrad,
    "lion": lion,
}


def moments(t: Tracer, name: str, like: Tensor) -> Callable[[str], Tensor]:
    """Makes the states of an optimiser for the weight of this name."""
    return lambda kind: t.leaf("state", like.shape, like.dtype, None, f"optimizer/{kind}/{name}")
