"""Which values and dims of feeds a Program must be compiled for (docs/adr/0003-specialisation.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyruntime.errors import NeedsValue, PyRuntimeError
from pyruntime.frontend.feed_checks import required_inputs
from pyruntime.frontend.trace_graph import SequenceSpec, Spec, TensorSpec, fix_dims
from pyruntime.ir.dtype import DType
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Graph, OptionalType, TensorType, Type, Value, uses

# (a graph of one output, known values inside of it) -> the output
Compute = Callable[[Graph, Mapping[str, TensorSpec]], TensorSpec]


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """The parts of a feed on which compilation may depend. values(): its elements in storage layout."""

    dtype: DType
    shape: tuple[int, ...]
    values: Callable[[], Sequence[Any]]


Given = GivenTensor | list[GivenTensor] | None  # a sequence, an empty optional


@dataclass(slots=True)
class Needs:
    """The values and dims that compilation needs.

    inputs: names of graph inputs whose values are fixed
    inner: names of other values, which are computed before compilation
    dims: dims of inputs that are fixed
    """

    inputs: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    dims: set[Symbol] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.inner or self.dims)

    def add(self, graph: Graph, e: NeedsValue) -> None:
        """Add a need. Errors: PyRuntimeError if it was added before, because then knowing the value did not help."""
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

    def specs(self, graph: Graph, feeds: Mapping[str, Given]) -> dict[str, Spec]:
        """Specs of these feeds, with the needed values and dims."""
        types = {v.name: v.type for v in graph.inputs}
        absent = {v.name: None for v in required_inputs(graph) if v.name not in feeds}
        return {name: self._spec(name, types[name], feed) for name, feed in feeds.items()} | absent

    def _spec(self, name: str, declared: Type | None, feed: Given) -> Spec:
        if feed is None:
            return None
        if isinstance(feed, list):
            return SequenceSpec(tuple(TensorSpec(item.dtype, (None,) * len(item.shape)) for item in feed))
        if name in self.inputs:
            return TensorSpec(feed.dtype, feed.shape, tuple(feed.values()))
        if isinstance(declared, OptionalType):
            declared = declared.elem
        dims = declared.shape if isinstance(declared, TensorType) else None
        spec = TensorSpec(feed.dtype, (None,) * len(feed.shape) if dims is None else dims)
        return fix_dims((name,), spec, feed.shape, self.dims)

    def inner_values(
        self, graph: Graph, compute: Compute, among: frozenset[str] | None = None
    ) -> dict[str, TensorSpec]:
        """The needed values inside the graph, each computed from the part of the graph before it. among: values that
        the graph has, or None if it is whole"""
        found: dict[str, TensorSpec] = {}
        for name in sorted(self.inner if among is None else self.inner & among):
            found[name] = compute(replace(graph, outputs=(Value(name, None),)), found)
        return found


def small_sources(graph: Graph, name: str) -> set[str]:
    """The inputs on which a value of the main graph depends, if all are integers or bools of rank 0 or 1 (a sample
    rate, a flag), because then fixing them is cheaper than computing the value; else nothing."""
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
