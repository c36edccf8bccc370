"""Runs a traced block with the reference evaluator, without any provider. Slow; for tests, debugging and
specialisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime import host
from pyruntime.errors import ShapeError
from pyruntime.frontend.requirements import Guard
from pyruntime.frontend.trace_graph import Path
from pyruntime.frontend.tracer import decoded
from pyruntime.ir import reference
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Block, Host, If, Kernel, Leaf, Loop, Read, Tensor
from pyruntime.ir.reference import Array
from pyruntime.ir.symbol import Symbol

Symbols = dict[Symbol, int]


class Interpreter:
    """weights(leaf): the elements of a weight; guards: the tracer's guards. Symbols get their values during the run.
    Errors: ShapeError of a guard, as soon as its symbols have values."""

    def __init__(self, weights: Any, guards: Sequence[Guard]) -> None:
        self.weights = weights
        self.guards = guards
        self.symbols: Symbols = {}
        self.arrays: dict[int, Array] = {}

    def shape(self, t: Tensor) -> tuple[int, ...]:
        return tuple(sh.evaluate(d, self.symbols) for d in t.shape)

    def feed(self, t: Tensor, array: Array) -> None:
        """Set a feed, and the symbols of its dims."""
        for d, n in zip(t.shape, array[0], strict=True):
            self.bind(d, n)
        self.arrays[t.uid] = array

    def bind(self, d: sh.AnyDim, n: int) -> None:
        for symbol in sh.symbols(d):
            self.symbols.setdefault(symbol, n)

    def array(self, t: Tensor) -> Array:
        if t.uid not in self.arrays and isinstance(t.kernel, Leaf):
            kind, value = t.kernel.kind, t.kernel.value
            values = decoded(self.weights(value), t.dtype) if kind == "weight" else value
            self.arrays[t.uid] = (
                self.shape(t),
                [sh.evaluate(v, self.symbols) if isinstance(v, sh.Dim) else v for v in values],
            )
        return self.arrays[t.uid]

    def check(self) -> None:
        for condition, message, node, *_ in self.guards:
            if sh.symbols(condition) <= self.symbols.keys() and not sh.evaluate(condition, self.symbols):
                raise ShapeError(message, node=node)

    def run(self, block: Block) -> None:
        for kernel in block.kernels:
            self._kernel(kernel)

    def _kernel(self, kernel: Kernel) -> None:
        inputs = {t.uid: self.array(t) for t in kernel.inputs if not (isinstance(kernel, (If, Loop)))}
        if isinstance(kernel, Read):
            self.symbols.update(zip(kernel.symbols, map(int, inputs[kernel.source.uid][1]), strict=True))
            self.check()
        elif isinstance(kernel, Host):
            args = [None if a is None else self.array(a) for a in kernel.args]
            attrs = kernel.attrs
            if kernel.fn == "reference":
                attrs = {**attrs, "shapes": [self.shape(t) for t in kernel.outputs], "symbols": self.symbols}
            self._bound(kernel, host.FUNCTIONS[kernel.fn](args, attrs))
        elif isinstance(kernel, If):
            block = kernel.then if self.array(kernel.condition)[1][0] else kernel.orelse
            self.run(block)
            self._bound(kernel, [self.array(t) for t in block.outputs])
        elif isinstance(kernel, Loop):
            self._bound(kernel, self._loop(kernel))
        else:
            shapes = [self.shape(t) for t in kernel.outputs]
            for t, a in zip(kernel.outputs, reference.evaluate(kernel, inputs, shapes, self.symbols), strict=True):
                self.arrays[t.uid] = a

    def _bound(self, kernel: Any, results: list[Array]) -> None:
        for output, axis, name in kernel.binds:
            self.symbols[name] = results[output][0][axis]
        self.check()
        for t, a in zip(kernel.outputs, results, strict=True):
            self.arrays[t.uid] = a

    def _loop(self, kernel: Loop) -> list[Array]:
        trips = self.array(kernel.trip)[1][0] if kernel.trip is not None else math.inf
        going = bool(self.array(kernel.condition)[1][0]) if kernel.condition is not None else True
        carried = [self.array(t) for t in kernel.carried]
        stacks: list[list[Array]] = [[] for _ in kernel.outputs[len(carried) :]]
        n = 0
        while n < trips and going:
            for position, axis, name in kernel.enters:
                self.symbols[name] = carried[position - 2][0][axis]
            counters: list[Array] = [((), [n]), ((), [going])]
            for t, a in zip(kernel.body.inputs, [*counters, *carried], strict=True):
                self.arrays[t.uid] = a
            self.run(kernel.body)
            results = [self.array(t) for t in kernel.body.outputs]
            going = bool(results[0][1][0])
            carried = results[1 : 1 + len(carried)]
            for stack, a in zip(stacks, results[1 + len(carried) :], strict=True):
                stack.append(a)
            n += 1
        return carried + [self._stack(s, t) for s, t in zip(stacks, kernel.outputs[len(carried) :], strict=True)]

    def _stack(self, items: list[Array], out: Tensor) -> Array:
        if not items:
            bound = {n for _, _, n in out.kernel.binds}  # type: ignore[attr-defined]
            dims = [0 if sh.symbols(d) & bound else sh.evaluate(d, self.symbols) for d in out.shape[1:]]
            return (0, *dims), []
        return (len(items), *items[0][0]), [v for _, values in items for v in values]


def run(traced: Any, weights: Any, feeds: Mapping[Path, Array]) -> dict[str, Any]:
    """The outputs (arrays, lists of arrays, or None) of a traced graph for feeds by path."""
    it = Interpreter(weights, traced.guards)
    for f in traced.feeds:
        it.feed(f.tensor, feeds[f.path])
    it.check()
    it.run(traced.block)

    def fetch(value: Any) -> Any:
        if isinstance(value, Tensor):
            return it.array(value)
        return [fetch(v) for v in value.items] if hasattr(value, "items") else None

    return {name: fetch(v) for name, v in traced.outputs.items()}
