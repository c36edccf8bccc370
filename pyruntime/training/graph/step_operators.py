"""The operators of a step of training: the gradients of a loss, and updates of weights in place.

`Step` updates weights by the gradients of one batch. If batches accumulate, it adds gradients to sums, and `Apply`
updates weights by these. `Apply` then comes first in the graph: what follows reads the new weights, and a run that asks
for its result alone runs nothing else."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, W, X, Y, Z, cast, const, maximum, minimum, select, sqrt
from pyruntime.ir.kernel import Builder, Leaf, Tensor
from pyruntime.ir.shape import AnyDim, Shape
from pyruntime.runtime.step_numbers import COUNT, FIRST, KEEP, LOSS_SCALE, NTH, NUMBER, OWN, RATE, SCALE
from pyruntime.runtime.trained_weights import AVERAGE, IDLE, START
from pyruntime.training.derive.gradients import gradients
from pyruntime.training.derive.row_gradients import RowGradient, row_gradient
from pyruntime.training.graph import optimizers
from pyruntime.training.graph.function_rule import FunctionRule
from pyruntime.training.graph.graph_names import DOMAIN
from pyruntime.training.graph.learned_scales import positive
from pyruntime.training.graph.recipe import Recipe
from pyruntime.training.graph.state_updates import New, Updates

# places in the numbers of updates: whether the step is good, what gradients are multiplied by, the numbers of the step
FACTOR, OF_STEP = 1, 2
ROW = 4096  # elements that are summed at once
LARGEST = 3.4028234663852886e38  # of float32


@op("Step", since=1, domain=DOMAIN)
def step(t: Tracer, loss: Tensor, numbers: Tensor, *tensors: Tensor, recipe: str, weights: str) -> tuple[Tensor, ...]:
    """tensors: the weights to train; if batches accumulate, their sums; the running statistics, then their new values.
    weights: their names, as JSON. Output: see names.RESULT"""
    names = json.loads(weights)
    made = _Step(t, Recipe.from_json(recipe), numbers, names)
    if made.recipe.memory:
        t.memory = made.recipe.memory
        t.settle(tuple(d for x in _leaves(loss) for d in x.shape))
    count = len(names)
    sums = tensors[count : 2 * count] if made.recipe.accumulates else ()
    rest = tensors[count + len(sums) :]
    half = len(rest) // 2
    statistics = list(zip(rest[:half], rest[half:], strict=True))
    return made.result(loss, dict(zip(names, tensors, strict=False)), sums, statistics)


@op("Detach", since=1, domain=DOMAIN)
def detach(t: Tracer, x: Tensor) -> Tensor:
    """x, through which no gradient flows."""
    return t.still(t.map(X, x))


@op("Apply", since=1, domain=DOMAIN)
def apply(
    t: Tracer, numbers: Tensor, wanted: Tensor, *tensors: Tensor, recipe: str, weights: str
) -> tuple[Tensor, ...]:  # fmt: skip
    """wanted: of one element if weights are to be updated, else of none; tensors: the weights. Outputs: see
    names.APPLIED, then the sums of the gradients"""
    names = json.loads(weights)
    sums = [t.leaf("state", w.shape, w.dtype, None, f"gradient/{n}") for n, w in zip(names, tensors, strict=True)]
    made = _Step(t, Recipe.from_json(recipe), numbers, names)
    result = made.applied(dict(zip(names, zip(tensors, sums, strict=True), strict=True)), wanted.shape[0])
    return result, *sums


def _leaves(x: Tensor) -> list[Tensor]:
    """The feeds and weights from which a tensor is computed."""
    found, todo = {x.uid: x}, [x]
    while todo:
        new = {y.uid: y for y in todo.pop().kernel.inputs if y.uid not in found}
        found |= new
        todo += new.values()
    return [y for y in found.values() if isinstance(y.kernel, Leaf)]


def _not_trained(names: Sequence[str], stopped: Mapping[int, str]) -> str:
    """Which weights get no gradient, by the reason, for one warning."""
    groups: dict[str, list[str]] = {}
    for n, node in stopped.items():
        groups.setdefault(node, []).append(f'"{names[n]}"')
    found = []
    for node, of in groups.items():
        some = ", ".join(of[:5]) + (f" and {len(of) - 5} more" if len(of) > 5 else "")
        verb = "is" if len(of) == 1 else "are"
        why = (
            f"{node} is piecewise constant"
            if node
            else f"the loss does not depend on {'it' if verb == 'is' else 'them'}"
        )
        found.append(f"{some} {verb} not trained: {why}")
    return "; ".join(found)


class _Step:
    def __init__(self, t: Tracer, recipe: Recipe, numbers: Tensor, names: Sequence[str]) -> None:
        self.t = t
        self.recipe = recipe
        self.numbers = numbers
        self.places = {name: OWN * n for n, name in enumerate(names)}
        self.is_scaled = recipe.loss_scale != 1.0
        self.functions: dict[str, FunctionRule] = {}  # what an optimiser that is a function does, by name of the weight

    def result(
        self, loss: Tensor, weights: dict[str, Tensor], sums: Sequence[Tensor], statistics: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, ...]:
        """Update the weights, or the sums if there are any, and the running statistics."""
        self._find_functions(weights)
        flows = self._flows(loss, weights)
        squares = self._squares({n: g.values if isinstance(g, RowGradient) else g for n, g in flows.items()}, 1)
        good = self._good(loss, squares)
        up = self._updates(good, squares, 1)
        if sums:
            for name, total in zip(weights, sums, strict=True):
                if isinstance(g := flows.get(name), Tensor):
                    up.write([total], [g], [OF_STEP + KEEP],
                             lambda _, old, g, keep: [select(keep > 0.0, old, 0.0) + g])  # fmt: skip
        else:
            self._apply(up, {n: (weights[n], g) for n, g in flows.items()})
        for state, new in statistics:
            up.write([state], [new], [], lambda *of: of[2:])
        return (self._result(loss, good, squares, up),)

    def applied(self, weights: dict[str, tuple[Tensor, Tensor]], times: AnyDim) -> Tensor:
        """Update weights by the sums of earlier runs, if times is 1."""
        self._find_functions({name: w for name, (w, _) in weights.items()})
        squares = self._squares({n: g for n, (_, g) in weights.items()}, times)
        good = self._good(None, squares)
        up = self._updates(good, squares, times)
        self._apply(up, weights)
        return self._result(None, good, squares, up)

    def number(self, n: int) -> Expr:
        return self.numbers.at(n)

    def place(self, n: int, name: str) -> int:
        """Of a number of a step, which a weight may have of its own."""
        return n if n < COUNT else n + self.places[name]

    def _flows(self, loss: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor | RowGradient]:
        """The gradients of the weights that the loss depends on."""
        t = self.t
        scale = self.number(LOSS_SCALE)
        seed = t.compute((), lambda: cast(scale, loss.dtype)) if self.is_scaled else t.fill((), 1.0, loss.dtype)
        found = gradients(t, {loss: seed}, list(weights.values()))
        flows = {name: self._compact(name, g) for name, g in zip(weights, found.of, strict=True) if g is not None}
        if len(flows) < len(weights):
            text = _not_trained(list(weights), found.stopped)
            if not flows:
                raise NotDifferentiable(f"no weight gets a gradient: {text}")
            warnings.warn(text, stacklevel=2)
        if not self.is_scaled:
            return flows
        inverse = {d: t.compute((), lambda d=d: cast(1.0 / scale, d)) for d in {w.dtype for w in weights.values()}}

        def unscaled(g: Tensor) -> Tensor:
            return t.map(X * Y, g, inverse[g.dtype])

        return {
            name: replace(g, values=unscaled(g.values)) if isinstance(g, RowGradient) else unscaled(g)
            for name, g in flows.items()
        }

    def _compact(self, name: str, g: Tensor) -> Tensor | RowGradient:
        """The gradient as a RowGradient, if it is a sum of rows and nothing but the optimiser reads it, row by row."""
        is_whole = name in self.functions and not self.functions[name].is_local
        rows = None if self.recipe.accumulates or self.recipe.proximal or is_whole else row_gradient(self.t, g)
        return rows or g

    # ── scalars ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _squares(self, flows: Mapping[str, Tensor], times: AnyDim) -> Tensor:
        """The sum of the squares of the gradients of weights that are not frozen; 0 if times is 0."""
        t = self.t
        parts = [(self.place(FIRST, name), part) for name, g in flows.items() for part in self._square(g, times)]
        joined = t.concat([t.reshape(part, (1,)) for _, part in parts], 0)
        places = t.constant([place for place, _ in parts], I32)

        def square(i: Expr) -> Expr:
            return select(self.numbers.at(places.at(i)) > 0.0, joined.at(i), 0.0)

        return t.reduce_compute("sum", (), (len(parts),), square)

    def _square(self, g: Tensor, times: AnyDim) -> list[Tensor]:
        """Tensors whose sum is the square of a gradient: that of large ones in rows, which threads share."""
        t, size = self.t, sh.size(g.shape)
        flat = t.reshape(g, (size,))
        rows = size // ROW if isinstance(size, int) and size >= 16 * ROW else 0

        def square(i: Expr) -> Expr:
            return cast(flat.at(i), F32) * cast(flat.at(i), F32)

        parts = []
        if rows:
            sums = t.reduce_compute("sum", (rows * times,), (ROW,), lambda i, j: square(i * ROW + j))
            parts.append(t.reduce("sum", sums, [0], keepdims=False))
        if size != rows * ROW:
            rest = (size - rows * ROW) * times
            parts.append(t.reduce_compute("sum", (), (rest,), lambda i: square(i + rows * ROW)))
        return parts

    def _good(self, loss: Tensor | None, squares: Tensor | None) -> Tensor:
        """1 if the loss and all gradients are finite, else 0."""
        t = self.t
        parts = [t.cast(x, F32) for x in (loss, squares) if x is not None]
        if self.recipe.goes_on_after_nan and not self.is_scaled:
            return t.fill((), 1.0, F32)
        finite = [select(abs(x.at()) <= LARGEST, const(1.0, F32), 0.0) for x in parts]
        return t.compute((), lambda: finite[0] if len(finite) == 1 else finite[0] * finite[1])

    def _factor(self, squares: Tensor) -> Tensor:
        """Of gradients: their scale, and what limits their norm."""
        limit, scale = self.recipe.norm_limit, self.number(SCALE)
        if limit <= 0:
            return self.t.compute((), lambda: scale)
        norm = sqrt(squares.at()) * abs(scale)
        return self.t.compute((), lambda: scale * minimum(limit / (norm + 1e-6), const(1.0, F32)))

    def _result(self, loss: Tensor | None, good: Tensor, squares: Tensor, up: Updates) -> Tensor:
        t = self.t
        norm = t.map(sqrt(X) * abs(Y), squares, t.compute((), lambda: self.number(SCALE)))
        parts = [t.fill((), 0.0, F32) if loss is None else t.cast(loss, F32), good, norm]
        result = t.concat([t.reshape(x, (1,)) for x in parts], 0)
        t.updates[result.uid] = up.made
        return result

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _updates(self, good: Tensor, squares: Tensor, times: AnyDim) -> Updates:
        """Updates with the numbers that they need."""
        first = [self.t.reshape(x, (1,)) for x in (good, self._factor(squares))]
        return Updates(self.t, self.t.concat([*first, self.numbers], 0), times, [])

    def _apply(self, up: Updates, weights: Mapping[str, tuple[Tensor, Tensor | RowGradient]]) -> None:
        for name, (weight, gradient) in weights.items():
            settings = self.recipe.settings_of(name, weight.shape)
            pulled = gradient if isinstance(gradient, RowGradient) else self._pulled(name, weight, gradient)
            rule, moments, others = self._rule(up, name, weight, pulled, settings)
            states = [weight, *[moments[m] for m in rule.moments]]
            states += [self._state(AVERAGE + name, weight.shape, weight)] if self.recipe.ema else []
            new = self._new(rule, settings["rate"], name, len(weight.shape))
            active, averages = OF_STEP + self.place(FIRST, name), 1 if self.recipe.ema else 0
            scalars = [FACTOR, *[OF_STEP + self.place(n, name) for n in (*rule.numbers, NUMBER)], active]
            if isinstance(pulled, RowGradient):
                rests = rule.decay != "gradient" and not self.recipe.ema
                idle = self._state(IDLE + name, weight.shape[:1], weight) if rests else None
                up.write_rows(states, pulled, scalars, new, idle, rule.decay == "weight", active, averages)
            else:
                up.write(states, [pulled, *rule.tensors], scalars, new, active, averages)
            for state, value in others:  # now that nothing reads the old value
                up.write([state], [value], [], lambda *of: of[2:], active)

    def _find_functions(self, weights: Mapping[str, Tensor]) -> None:
        for name, w in weights.items() if self.recipe.update else ():
            settings = self.recipe.settings_of(name, w.shape)
            self.functions[name] = FunctionRule(self.t, self.recipe.update[w.rank], w, settings)

    def _rule(
        self, up: Updates, name: str, weight: Tensor, gradient: Tensor | RowGradient, settings: Mapping[str, float]
    ) -> tuple[optimizers.Rule, dict[str, Tensor], list[tuple[Tensor, Tensor]]]:  # fmt: skip
        """The rule, the states of the optimiser, and those of other shapes than the weight's with their new values."""
        function = self.functions.get(name)
        known = optimizers.KINDS[self.recipe.optimizer](settings) if function is None else function.rule(())
        shapes = dict.fromkeys(known.moments, weight.shape) if function is None else function.states
        moments = {m: self._state(f"optimizer/{m}/{name}", s, weight) for m, s in shapes.items()}
        if function is None or function.is_local or isinstance(gradient, RowGradient):
            return known, moments, []
        t = self.t

        def number(n: int, times: float = 1.0) -> Tensor:
            return t.compute((), lambda: cast(up.numbers.at(n), weight.dtype) * times)

        found = function.replayed({
            ("weight", ""): weight, ("gradient", ""): t.map(self._limited(X * Y), gradient, number(FACTOR)),
            ("number", "rate"): number(OF_STEP + RATE, settings["rate"] / (self.recipe.settings["rate"] or 1.0)),
            ("number", "number"): number(OF_STEP + self.place(NTH, name)),
            **{("state", m): x for m, x in moments.items()},
        })  # fmt: skip
        new = zip(moments.values(), found.results[1:], strict=True)
        others = [(x, value) for x, value in new if x.shape != weight.shape]
        return function.rule([found.values[n] for n in function.before]), moments, others

    def _limited(self, g: Expr) -> Expr:
        limit = self.recipe.value_limit
        return g if limit <= 0 else minimum(maximum(g, -limit), limit)

    def _new(self, rule: optimizers.Rule, rate: float, name: str, rank: int) -> New:
        """What `Updates` calls for a weight with this rate of learning."""
        is_scale, keeps_zeros = name in self.recipe.positive, self.recipe.zeros == "keep" and rank > 1
        usual, ema, is_relative = self.recipe.settings["rate"], self.recipe.ema, self.recipe.optimizer != "sgd"
        count, more = 1 + len(rule.moments), len(rule.tensors)
        first = count + 1 if ema else count  # of the operands that are no states

        def new(k: Builder, *of: Expr) -> Sequence[Expr]:
            formula = partial(rule.new, k) if name in self.functions else rule.new
            states, average, (g, *rest) = of[:count], of[count:first], of[first:]
            tensors, (factor, *numbers, step, active) = rest[:more], rest[more:]
            if rate != usual:
                numbers[0] = numbers[0] * (rate / usual)
            made = [*formula(*states, self._limited(g * factor), *tensors, *numbers)]
            if keeps_zeros:
                made[0] = select(states[0] == 0.0, states[0], made[0])
            elif is_scale:
                made[0] = positive(states[0], made[0], is_relative)
            keep = select(step > 1.5, const(ema, made[0].dtype), 0.0)
            weight = select(active > 0.0, made[0], states[0]) if ema else made[0]
            return [*made, *[a * keep + weight * (1.0 - keep) for a in average]]

        return new

    def _state(self, name: str, shape: Shape, like: Tensor) -> Tensor:
        return self.t.leaf("state", shape, like.dtype, None, name)

    def _pulled(self, name: str, weight: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with that of the proximal term, μ/2·|w - w₀|², divided by the scale that it gets later."""
        mu, leaf = self.recipe.proximal, weight.kernel
        if not mu:
            return gradient
        assert isinstance(leaf, Leaf)
        start = self.t.leaf("state", weight.shape, weight.dtype, leaf.value, START + name)
        scale = self.t.compute((), lambda: cast(self.number(SCALE), weight.dtype))
        return self.t.map(X + (Y - Z) * mu / W, gradient, weight, start, scale)
