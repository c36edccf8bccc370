"""Optimisers that are functions of the traced vocabulary. What they compute element by element runs inside of the
update of the weight; the rest, such as sums over rows, in kernels before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32
from pyruntime.ir.expr import Expr, const, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import Shape
from pyruntime.runtime.step_numbers import NTH, RATE
from pyruntime.runtime.traced_vocabulary import ELEMENTWISE
from pyruntime.training.graph.optimizers import Rule
from pyruntime.training.graph.trace_replay import Node, Replay, element

OF_STEP = {"rate": RATE, "number": NTH}
DEEPEST = 16  # operations of an expression without variables


class FunctionRule:
    """Of one weight. settings: what the function reads as step.NAME, besides rate and number

    Errors: ShapeError if the new weight has another shape"""

    def __init__(self, t: Tracer, nodes: Sequence[Node], weight: Tensor, settings: Mapping[str, float]) -> None:
        self.t, self.nodes, self.weight, self.settings = t, nodes, weight, settings
        self.shapes, results = shapes_of(nodes, weight.shape)
        new = results[""]
        if new != tuple(weight.shape):
            raise t.shape_error(f'the optimizer returns shape {list(new)} for "{weight.name}" of {list(weight.shape)}')
        self.states = {name: shape for name, shape in results.items() if name}
        ends = [x for x, shape in zip(nodes[-1][1], results.values(), strict=True) if shape == new]
        self._inline, self.before = self._parts(ends)
        self.is_local = not self.before and all(shape == new for shape in self.states.values())

    def _is_inline(self, place: int) -> bool:
        """Whether the update computes this itself: from what has the weight's shape, or is one number."""
        name, operands, settings = self.nodes[place]
        if not operands:
            return name != "state" or self.states[settings["name"]] == tuple(self.weight.shape)
        shapes = [self.shapes[int(x)] if isinstance(x, str) else () for x in operands]
        whole = (*shapes, self.shapes[place])
        fits = all(s == tuple(self.weight.shape) or sh.size(s) == 1 for s in whole)
        return name in ELEMENTWISE and fits and not any(isinstance(x, list) for x in operands)

    def _parts(self, ends: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Places of what the update computes, and of what is computed before it and read there; ends: its results"""
        needed = {int(x) for x in ends if isinstance(x, str)}
        inline: list[int] = []
        before: list[int] = []
        for place in reversed(range(len(self.shapes))):  # operands come before what reads them
            if place in needed:
                is_inline = self._is_inline(place)
                (inline if is_inline else before).append(place)
                needed |= {int(x) for x in self.nodes[place][1] if is_inline and isinstance(x, str)}
        return inline[::-1], before[::-1]

    def rule(self, tensors: Sequence[Tensor]) -> Rule:
        """tensors: of the places `before`"""
        shape = tuple(self.weight.shape)
        own = [name for name, s in self.states.items() if s == shape]
        ends = [x for x, s in zip(self.nodes[-1][1], [shape, *self.states.values()], strict=True) if s == shape]
        count = 1 + len(own)

        def new(k: Builder, *of: Expr) -> Sequence[Expr]:
            g, *rest = of[count:]
            leaves = {("weight", ""): of[0], ("gradient", ""): g}
            leaves |= {("number", name): const(x, g.dtype) for name, x in self.settings.items()}
            leaves |= {("state", name): x for name, x in zip(own, of[1:count], strict=True)}
            leaves |= {("number", name): x for name, x in zip(OF_STEP, rest[len(tensors) :], strict=True)}
            return self._elements(k, ends, leaves, dict(zip(self.before, rest, strict=False)))

        return Rule(tuple(own), tuple(OF_STEP.values()), new, "gradient", tuple(tensors))

    def _elements(
        self, k: Builder, ends: Sequence[Any], leaves: Mapping[Any, Expr], known: dict[int, Expr]
    ) -> list[Expr]:  # fmt: skip
        """The expressions of these operands. What several read is a variable: without, keys of code would take time
        that is exponential in the length of a chain of such values. Chains are cut by variables, too, because
        expressions are walked by recursion."""
        zero, one = const(0.0, self.weight.dtype), const(1.0, self.weight.dtype)
        uses = Counter(x for _, operands, _ in self.nodes for x in operands if isinstance(x, str))
        depths = dict.fromkeys(known, 0)  # of expressions between variables

        def value(x: Any) -> Any:
            return known[int(x)] if isinstance(x, str) else x

        for place in self._inline:
            name, operands, settings = self.nodes[place]
            known[place] = leaves[name, settings["name"]] if not operands else element(
                name, [value(x) for x in operands], self.weight.dtype)  # fmt: skip
            depths[place] = 1 + max((depths[int(x)] for x in operands if isinstance(x, str)), default=-1)
            is_variable = uses[str(place)] > 1 or depths[place] > DEEPEST
            if operands and is_variable:
                made, depths[place] = known[place], 0
                known[place] = k.let(select(made, one, zero)) > 0.0 if made.dtype is BOOL else k.let(made)
        return [value(x) for x in ends]

    def replayed(self, leaves: Mapping[tuple[str, str], Tensor]) -> Replay:
        """All values as tensors. leaves: by kind and name, without settings"""

        def leaf(kind: str, name: str) -> Tensor:
            found = leaves.get((kind, name))
            return self.t.scalar(self.settings[name], self.weight.dtype) if found is None else found

        return Replay(self.t, self.nodes, leaf, self.weight.dtype)


def _zeros(t: Tracer, shape: Shape, states: Mapping[str, Shape], kind: str, name: str) -> Tensor:
    shapes = {"weight": shape, "gradient": shape, "state": states.get(name, ())}
    return t.fill(shapes.get(kind, ()), 0.0, F32)


def shapes_of(nodes: Sequence[Node], shape: Sequence[sh.AnyDim]) -> tuple[list[Shape], dict[str, Shape]]:
    """Of the values of a trace for a weight, and of its results by name. A state has the shape of its new value, to
    which the old one adds no axis: it begins as a single number. Errors: ShapeError if its shape changes in each step
    """
    states: dict[str, Shape] = {}
    for _ in range(len(nodes) + 1):
        replay = Replay(t := Tracer(list), nodes, partial(_zeros, t, tuple(shape), states), F32)
        found = dict(zip(nodes[-1][2]["names"], (tuple(x.shape) for x in replay.results), strict=True))
        if all(states.get(name, ()) == s for name, s in found.items() if name):
            return [tuple(x.shape) for x in replay.values], found
        states = found
    raise ShapeError("the states of the optimizer get another shape in each step")
