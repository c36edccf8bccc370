"""Segments: consecutive kernels of one provider, which its code writer turns into calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.codegen.loop_ir import Param, RangeNumber, Site
from pyruntime.codegen.provider import Invocation, Memory
from pyruntime.emit.buffers import Buffers
from pyruntime.emit.lifetimes import Call, Step
from pyruntime.emit.residency import Residency
from pyruntime.frontend.budget import Budget
from pyruntime.ir.blocks import unreshaped
from pyruntime.ir.kernel import Kernel, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.placement.target import Target


class Segments:
    """checked: numbers, from 1, of nodes whose indices are checked; within: for kernels that run as part of another
    kernel, by id, the other kernel's node."""

    def __init__(self, target: Target, residency: Residency, buffers: Buffers, budget: Budget) -> None:
        self.target = target
        self.budget = budget
        self.residency = residency
        self.buffers = buffers
        self.checked: dict[str, int] = {}
        self.within: dict[int, str] = {}

    def step(self, name: str, kernels: Sequence[Kernel], private: set[int]) -> Step:
        """The step of a segment with these kernels of one provider. private: see `CodeWriter.segment`."""
        by = self.target.provider(kernels[0])
        invocations = self.target.writers[by.name].segment(name, kernels, private, self._check)
        self._note_within(kernels, private - {t.uid for c in invocations for t in c.tensors})
        for c in invocations:
            self.residency.mark_made(c.scratch, by.memory)
            c.tensors = [self.residency.at(t, by.memory) for t in c.tensors]
            c.inplace = [(out, self.residency.at(t, by.memory)) for out, t in c.inplace]
        calls = [Call(self._call(c), c.tensors, writes=self._written(c, by.memory)) for c in invocations]
        json: dict[str, Any] = {"op": by.op, "fn": name, "calls": [call.json for call in calls]}
        forks = dict.fromkeys([c.split for c in invocations if c.split != 0])  # in an order: Programs must be equal
        if forks:
            json["fork"] = 1 if 1 in forks else self.buffers.symbols.dim(sum(forks))
        made = [t for k in kernels for t in k.outputs] + [t for c in invocations for t in c.scratch]
        return Step(json, [], made, calls)

    def _written(self, c: Invocation, where: Memory) -> list[Tensor]:
        return [self.residency.at(t, where) for t in (*c.results, *c.scratch)]

    def _check(self, node: str) -> None:
        """Check the budget after a node's kernel is written."""
        self.budget.check("writing its code", node, sum(w.size for w in self.target.writers.values()))

    def _call(self, c: Invocation) -> dict[str, Any]:
        number, dim = self.buffers.number, self.buffers.symbols.dim
        return {
            "node": c.node,
            "kernel": c.function,
            "buffers": [number(t) for t in c.tensors],
            "params": [dim(self._param(p)) for p in c.params],
            "work": dim(c.work),
            "inplace": [[number(a), number(b)] for a, b in c.inplace],
        }

    def _param(self, p: Param) -> AnyDim:
        """A parameter as a dim: a `Site` becomes the number of its node, a `RangeNumber` the number of ranges."""
        if isinstance(p, RangeNumber):
            return p.count
        return self.checked.setdefault(p.node, len(self.checked) + 1) if isinstance(p, Site) else p

    def _note_within(self, kernels: Sequence[Kernel], absent: set[int]) -> None:
        """absent: uids of tensors that no call reads or writes, because their makers run as part of their readers."""
        readers = {made.uid: k for k in kernels for t in k.inputs if (made := unreshaped(t)).uid in absent}
        for kernel in reversed(kernels):
            reader = readers.get(kernel.outputs[0].uid)
            if reader is not None:
                self.within[id(kernel)] = self.within.get(id(reader), reader.node)
