"""What a program must be compiled for when a value decides structure: see docs/architecture.md, specialisation."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyruntime.errors import NeedsValue, PyRuntimeError
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Graph, TensorType, uses


@dataclass(slots=True)
class Needs:
    """inputs: graph inputs whose values are fixed; inner: other values, computed before compiling; dims: input
    dims that are fixed."""

    inputs: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    dims: set[Symbol] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.inner or self.dims)

    def add(self, graph: Graph, e: NeedsValue) -> None:
        """Remember a need. Errors: PyRuntimeError if it was remembered before, so that it cannot be met."""
        before = (len(self.inputs), len(self.inner), len(self.dims))
        names = {v.name for v in graph.inputs}
        if not e.name:
            self.dims |= e.symbols
        elif e.name in names:
            self.inputs.add(e.name)
        elif e.name not in self.inner:
            sources = small_sources(graph, e.name)
            if sources and not sources <= self.inputs:
                self.inputs |= sources
            else:
                self.inner.add(e.name)
        if before == (len(self.inputs), len(self.inner), len(self.dims)):
            raise PyRuntimeError(e.message, node=e.node, hint="this value must be a constant")


def small_sources(graph: Graph, name: str) -> set[str]:
    """The inputs that a value of the main graph follows from, if all are integers or bools of rank 0 or 1 (a sample
    rate, a flag): then it pays to fix those instead. Else nothing."""
    needed = {name}
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed |= uses(node)
    found = [v for v in graph.inputs if v.name in needed]
    small = all(
        isinstance(v.type, TensorType) and v.type.shape is not None and len(v.type.shape) <= 1
        and v.type.dtype is not None and v.type.dtype.kind in "iub"
        for v in found
    )  # fmt: skip
    return {v.name for v in found} if small else set()
