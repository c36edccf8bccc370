"""Reuses the code of kernels that differ only in tensors, capacities of inputs, and the node's name: equal layers are
lowered and printed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.codegen.loop_ir import Param, RangeNumber, Site
from pyruntime.codegen.provider import Invocation
from pyruntime.ir.form import Form
from pyruntime.ir.kernel import Kernel, Leaf
from pyruntime.ir.renaming import renamed
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.symbol import Symbol


class Repeats:
    """The calls that a code writer has written, by the kernels' structural key."""

    def __init__(self) -> None:
        self.written: dict[Any, tuple[Form, list[Invocation]]] = {}

    def calls(
        self, kernels: Sequence[Kernel], write: Callable[[], list[Invocation]], chosen: object = ()
    ) -> list[Invocation]:
        """The calls that run these kernels, all labelled with the last kernel's node. If kernels with the same key
        and tuning (`chosen`) were written before, reuses their calls with these tensors; else calls `write`."""
        form = Form(kernels)
        key = (form.key(), chosen)
        if key not in self.written:
            calls = write()
            self.written[key] = form, [replace(c) for c in calls]  # a copy, because callers change their calls
            return calls
        before, calls = self.written[key]
        other = _Other(before, form)
        return [other.call(c, kernels[-1].node) for c in calls]


class _Other:
    """Turns calls of one kernel into those of another. tensors: the new ones, by uid; sites: new names of nodes;
    symbols: those that change"""

    def __init__(self, before: Form, now: Form) -> None:
        self.tensors = {t.uid: own for t, own in zip(before.tensors, now.tensors, strict=True)}
        pairs = [*zip(before.names, now.names, strict=True)]
        self.sites = {a: b for a, b in pairs if isinstance(b, str)}
        self.symbols = {a: b for a, b in pairs if isinstance(a, Symbol) and isinstance(b, Symbol) and a != b}

    def call(self, c: Invocation, node: str) -> Invocation:
        for t in c.scratch:  # each call has its own
            if t.uid not in self.tensors:
                self.tensors[t.uid] = Leaf("scratch").making([self.dim(d) for d in t.shape], t.dtype).out
        own = self.tensors
        return replace(
            c, node=node, results=(), tensors=[own[t.uid] for t in c.tensors], scratch=[own[t.uid] for t in c.scratch],
            inplace=[(own[a.uid], own[b.uid]) for a, b in c.inplace], params=[self.param(p) for p in c.params],
            work=self.dim(c.work), split=self.dim(c.split), consecutive=self.dim(c.consecutive),
        )  # fmt: skip

    def param(self, p: Param) -> Param:
        if isinstance(p, Site):
            return Site(self.sites.get(p.node, p.node))
        return RangeNumber(self.dim(p.count)) if isinstance(p, RangeNumber) else self.dim(p)

    def dim(self, x: AnyDim) -> AnyDim:
        return renamed(x, self.symbols) if self.symbols else x
