"""The operator that is a step of training: the gradients of a loss, and updates of weights in place."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import partial

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, minimum, select, sqrt
from pyruntime.ir.kernel import Leaf, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.learning import optimizers
from pyruntime.learning.names import DOMAIN
from pyruntime.learning.recipe import Recipe
from pyruntime.learning.reverse import gradients
from pyruntime.learning.updates import Updates
from pyruntime.runtime.training import KEEP, SCALE

LARGEST = 3.4028234663852886e38  # of float32


@op("Step", since=1, domain=DOMAIN)
def step(t: Tracer, loss: Tensor, numbers: Tensor, *tensors: Tensor, recipe: str, weights: str) -> tuple[Tensor, ...]:
    """tensors: the weights to train; the running statistics, then their new values; with accumulation, last, the feed
    that tells whether to apply. weights: their names, as JSON. Outputs: see names.RESULT, and names.APPLIED"""
    made = _Step(t, Recipe.from_json(recipe), numbers)
    names = json.loads(weights)
    count = len(names)
    apply = tensors[-1] if made.recipe.accumulates else None
    rest = tensors[count : len(tensors) - (apply is not None)]
    half = len(rest) // 2
    statistics = list(zip(rest[:half], rest[half:], strict=True))
    return made.outputs(loss, dict(zip(names, tensors, strict=False)), statistics, apply)


class _Step:
    def __init__(self, t: Tracer, recipe: Recipe, numbers: Tensor) -> None:
        self.t = t
        self.recipe = recipe
        self.numbers = numbers

    def outputs(
        self, loss: Tensor, weights: dict[str, Tensor], statistics: list[tuple[Tensor, Tensor]], apply: Tensor | None
    ) -> tuple[Tensor, ...]:
        t, recipe = self.t, self.recipe
        flows = self._flows(loss, weights)
        if apply is None:
            squares = self._squares([g for g in flows.values()], 1)
            good = self._good(loss, squares)
            up = Updates(t, good, 1, [])
            self._apply(up, {n: (weights[n], g) for n, g in flows.items()}, self._factor(squares, self.number(SCALE)))
            self._statistics(up, statistics)
            return (self._result(loss, good, squares, up),)
        sums = {n: t.leaf("state", g.shape, g.dtype, None, f"g:{n}") for n, g in flows.items()}
        applied = self._applied({n: (weights[n], g) for n, g in sums.items()}, apply.shape[0])
        good = self._good(loss, None)
        up = Updates(t, good, 1, [])
        for name, g in flows.items():
            up.write(sums[name], [g], [self.number(KEEP)], lambda old, g, keep: select(keep > 0.0, old, 0.0) + g)
        self._statistics(up, statistics)
        return self._result(loss, good, None, up), applied

    def number(self, n: int) -> Expr:
        return self.numbers.at(n)

    def _flows(self, loss: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The gradients of the weights that the loss depends on."""
        t = self.t
        found = gradients(t, {loss: t.fill((), 1.0, loss.dtype)}, list(weights.values()))
        t.node = self.node
        for n, (name, flow) in enumerate(zip(weights, found.of, strict=True)):
            if flow is None:
                node = found.stopped.get(n, "")
                why = f"{node} lets no gradient through" if node else "the loss does not depend on it"
                warnings.warn(f'"{name}" is not trained: {why}', stacklevel=2)
        return {name: flow for name, flow in zip(weights, found.of, strict=True) if flow is not None}

    # ── scalars ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _squares(self, flows: Sequence[Tensor], times: AnyDim) -> Tensor:
        """The sum of the squares of all gradients; 0 if times is 0."""
        t = self.t
        each = []
        for g in flows:
            size = sh.size(g.shape)
            flat = t.reshape(g, (size,))
            square = lambda i, flat=flat: cast(flat.at(i), F32) * cast(flat.at(i), F32)  # noqa: E731
            each.append(t.reshape(t.reduce_compute("sum", (), (size * times,), square), (1,)))
        joined = t.concat(each, 0) if each else t.constant([0.0], F32)
        return t.reduce("sum", joined, [0], keepdims=False)

    def _good(self, loss: Tensor | None, squares: Tensor | None) -> Tensor:
        """1 if the loss and all gradients are finite, else 0."""
        t = self.t
        parts = [t.cast(x, F32) for x in (loss, squares) if x is not None]
        if self.recipe.goes_on_after_nan:
            return t.fill((), 1.0, F32)
        finite = [select(abs(x.at()) <= LARGEST, const(1.0, F32), 0.0) for x in parts]
        return t.compute((), lambda: finite[0] if len(finite) == 1 else finite[0] * finite[1])

    def _factor(self, squares: Tensor, scale: Expr) -> Tensor:
        """Of gradients: their scale, and what limits their norm."""
        limit = self.recipe.norm_limit
        if limit <= 0:
            return self.t.compute((), lambda: scale)
        norm = sqrt(squares.at()) * abs(scale)
        return self.t.compute((), lambda: scale * minimum(limit / (norm + 1e-6), const(1.0, F32)))

    def _result(self, loss: Tensor | None, good: Tensor, squares: Tensor | None, up: Updates) -> Tensor:
        t = self.t
        zero = t.fill((), 0.0, F32)
        norm = zero if squares is None else t.map(sqrt(X) * abs(Y), squares, t.compute((), lambda: self.number(SCALE)))
        parts = [zero if loss is None else t.cast(loss, F32), good, norm]
        result = t.concat([t.reshape(x, (1,)) for x in parts], 0)
        t.updates[result.uid] = up.made
        return result

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, up: Updates, weights: dict[str, tuple[Tensor, Tensor]], factor: Tensor) -> None:
        optimize = optimizers.KINDS[self.recipe.optimizer]
        for name, (weight, gradient) in weights.items():
            pulled = self._pulled(name, weight, gradient, factor)
            moment = optimizers.moments(self.t, name, weight)
            w = optimizers.Weight(weight, pulled, moment, self.number, factor.at(), self.recipe.value_limit)
            optimize(up, w, self.recipe.settings)

    def _pulled(self, name: str, weight: Tensor, gradient: Tensor, factor: Tensor) -> Tensor:
        """The gradient with that of the proximal term, μ/2·|w - w₀|². It is divided by the factor that it gets later."""
        mu, leaf = self.recipe.proximal, weight.kernel
        if not mu:
            return gradient
        assert isinstance(leaf, Leaf)
        start = self.t.leaf("state", weight.shape, weight.dtype, leaf.value, f"start:{name}")
        add = lambda *i: gradient.at(*i) + (weight.at(*i) - start.at(*i)) * mu / cast(  # noqa: E731
            self.number(SCALE), weight.dtype
        )
        return self.t.compute(weight.shape, add)

    def _applied(self, weights: dict[str, tuple[Tensor, Tensor]], times: AnyDim) -> Tensor:
        """Update weights by the sums of earlier runs. These kernels come first: the others read the new weights, and a
        run without them leaves the sums to a later run."""
        t = self.t
        before, t.block.kernels = t.block.kernels, []
        squares = self._squares([g for _, g in weights.values()], times)
        good = self._good(None, squares)
        up = Updates(t, good, times, [])
        self._apply(up, weights, self._factor(squares, self.number(SCALE)))
        result = self._result(None, good, squares, up)
        t.block.kernels += before
        return result

    def _statistics(self, up: Updates, statistics: list[tuple[Tensor, Tensor]]) -> None:
        """Running statistics of BatchNormalization."""
        for state, new in statistics:
            up.write(state, [new], [], lambda _, new: new)

    @property
    def node(self) -> str:
        return "optimizer"
