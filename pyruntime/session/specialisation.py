"""Programs of one model, compiled on demand (docs/adr/0003-specialisation.md). Twin of web/session/specialiser.js.

One Program runs all feeds if the input types say enough. Otherwise compilation needs some values or dims of the feeds
(it raises NeedsValue), and there is a Program for each set of them.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pyruntime.errors import NeedsValue, SessionFailed
from pyruntime.frontend import interpreter
from pyruntime.frontend.feed_checks import differing_dims, required_inputs, shared_dims
from pyruntime.frontend.trace_graph import (
    Path,
    SequenceSpec,
    Spec,
    TensorSpec,
    declared_specs,
    symbolic_dims,
    trace_graph,
)  # fmt: skip
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Graph
from pyruntime.onnx.weight_values import elements
from pyruntime.passes.cleanup.graph_pruning import inputs_of_outputs, prune, with_outputs
from pyruntime.runtime.output_paths import OutputPaths
from pyruntime.runtime.session_rules import MAX_PROGRAMS
from pyruntime.session.needs import Given, Needs

P = TypeVar("P")

FOR_ALL = ()  # key of the Program that runs all feeds
MAX_PARTS = 4  # sets of outputs with Programs of their own


class Requirements(NamedTuple):
    """The feeds for which a Program is compiled. constants: values inside the graph by name, None in the Program for
    all feeds; key: equal for feeds that one Program runs."""

    specs: Mapping[str, Spec]
    constants: Mapping[str, TensorSpec] | None
    key: Hashable


class ProgramTable(dict[Hashable, P]):
    """At most MAX_PROGRAMS Programs, by key."""

    def find(self, key: Hashable, compile_program: Callable[[], P], drop: Callable[[P], object] | None = None) -> P:
        """The Program of this key. If it has to be compiled and the table is full, the oldest Program, except the one
        for all feeds, is removed first and passed to `drop`."""
        if key not in self:
            if len(self) >= MAX_PROGRAMS:
                oldest = self.pop(next(k for k in self if k != FOR_ALL))
                if drop is not None:
                    drop(oldest)
            self[key] = compile_program()
        return self[key]


class Specialiser(ABC, Generic[P]):
    """The Programs of a graph. A subclass defines how to compile one, and the form of its feeds.

    outputs: the graph's outputs, with inferred shapes; needs: the values and dims of feeds that compilation needs
    """

    def __init__(self, graph: Graph, warn: Callable[[str], object] = warnings.warn) -> None:
        self.graph = graph
        self.warn = warn
        self.outputs = graph.outputs
        self.needs = Needs()
        self.table: ProgramTable[P] = ProgramTable()
        self.parts: dict[tuple[str, ...], Specialiser[P]] = {}  # of some outputs, by their names
        self.is_prepared = False
        self._types = {v.name: v.type for v in graph.inputs}
        self._shared_dims = shared_dims(self._types)
        self._made: frozenset[str] | None = None  # values that the graph makes, if it is a part of the model's graph

    def share_needs(self, part: Specialiser[P]) -> Specialiser[P]:
        """Make these needs those of Programs of a part of the graph, which has no others."""
        part.needs = self.needs
        part._made = frozenset(name for node in part.graph.nodes for name in node.outputs)
        return part

    @abstractmethod
    def compile(self, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None) -> P:
        """Compile a Program for feeds of these specs. Without `constants` it is for all feeds, and `outputs` is set."""

    @abstractmethod
    def describe(self, feeds: Mapping[str, Any]) -> Mapping[str, Given]:
        """Convert feeds for `Needs`."""

    def uses(self) -> Mapping[str, Sequence[str]]:
        """For each output the inputs that it needs."""
        return inputs_of_outputs(self.graph)

    def graph_for(self, names: Sequence[str]) -> Graph:
        """The part of the graph that makes these outputs."""
        return with_outputs(self.graph, names)

    def part(self, names: Sequence[str]) -> Specialiser[P]:
        """New Programs of these outputs alone, with the same needs."""
        raise NotImplementedError

    def can_run(self, program: P, names: Sequence[str], feeds: Collection[str]) -> bool:
        """Whether the Program for all feeds makes these outputs from these feeds alone."""
        return False

    def evaluate(
        self, part: Graph, specs: Mapping[str, Spec], key: Hashable, constants: Mapping[str, TensorSpec],
        feeds: Mapping[str, Any],
    ) -> TensorSpec:  # fmt: skip
        """The one output of a part of the graph, for these feeds. key: equal for equal specs. The interpreter computes
        it: such values are rare and small."""
        traced = trace_graph(prune(part), specs, elements, constants)
        (name, tensor), *_ = traced.outputs.items()
        assert isinstance(tensor, Tensor)
        shape, values = interpreter.run(traced, elements, _arrays(self.describe(feeds)))[name]
        return TensorSpec(tensor.dtype, shape, tuple(values))

    def drop(self, program: P) -> None:
        """Called with a Program that leaves the table."""

    def prepare(self) -> None:
        """Compile the Program for all feeds, if there can be one; otherwise the first run compiles a Program."""
        specs = declared_specs(required_inputs(self.graph))
        try:
            if specs is not None:
                self.table[FOR_ALL] = self.compile(specs, None)
        except NeedsValue as e:
            if not self.needs:  # an earlier preparation may have found it
                self.needs.add(self.graph, e)
        self.is_prepared = True

    def program(self, feeds: Mapping[str, Any]) -> P:
        """The Program for these feeds, compiled if there is none yet."""
        if differing := differing_dims(self._shared_dims, feeds):
            self.split_differing_dims(differing)
        if not self.is_prepared:
            self.prepare()
        if FOR_ALL in self.table and feeds.keys().isdisjoint(self.graph.weights):
            return self.table[FOR_ALL]
        while True:
            try:
                specs, constants, key = self.requirements(feeds)
                program = self.table.get(key)
                if program is None:
                    program = self.table.find(key, partial(self.compile, specs, constants), self.drop)
                return program
            except NeedsValue as e:
                self.needs.add(self.graph, e)

    def program_for(self, feeds: Mapping[str, Any], names: Sequence[str]) -> P:
        """The Program for feeds that suffice for some outputs alone. The Program for all feeds runs the steps that
        these outputs need, so few models have a Program for them: those that are compiled for values of feeds."""
        if not self.is_prepared:
            self.prepare()
        if FOR_ALL in self.table and feeds.keys().isdisjoint(self.graph.weights):
            if self.can_run(self.table[FOR_ALL], names, feeds):
                return self.program(feeds)
        key = tuple(sorted(set(names)))
        if key not in self.parts:
            if len(self.parts) >= MAX_PARTS:
                self.parts.pop(next(iter(self.parts))).forget()
            self.parts[key] = self.part(key)
        part = self.parts[key]
        return part.program({name: x for name, x in feeds.items() if name in part._types})

    def requirements(self, feeds: Mapping[str, Any]) -> Requirements:
        """Return the requirements of the Program for these feeds, as far as `needs` is known. Errors: NeedsValue"""
        if FOR_ALL in self.table and feeds.keys().isdisjoint(self.graph.weights):
            return self.requirements_for_all()
        return self._requirements(self.needs, feeds)

    def _requirements(self, needs: Needs, feeds: Mapping[str, Any]) -> Requirements:
        specs = needs.specs(self.graph, self.describe(feeds))
        key = tuple((name, _spec_key(spec)) for name, spec in specs.items())
        constants: dict[str, TensorSpec] = {}
        if needs.inner:
            compute = lambda part, known: self.evaluate(part, specs, key, known, feeds)  # noqa: E731
            constants = needs.inner_values(self.graph, compute, self._made)
        return Requirements(specs, constants, (key, tuple(constants.items())))

    def requirements_for_all(self) -> Requirements:
        """Return the requirements of the Program for all feeds. Errors: SessionFailed if no Program is for all
        feeds."""
        specs = declared_specs(required_inputs(self.graph)) if FOR_ALL in self.table else None
        if specs is None:
            raise SessionFailed("this model is compiled when it first runs", hint="give the feeds of a run")
        return Requirements(specs, None, FOR_ALL)

    def program_for_sizes(self, feeds: Mapping[str, Any]) -> P | None:
        """The Program for the dims of these feeds alone, which the others refused (UnsupportedSizes); None if it is one
        of these, because no dim is free."""
        while True:
            try:
                found = self.requirements_of_sizes(feeds)
                return found and self.table.find(found.key, partial(self.compile, *found[:2]), self.drop)
            except NeedsValue as e:
                self.needs.add(self.graph, e)

    def requirements_of_sizes(self, feeds: Mapping[str, Any]) -> Requirements | None:
        """The requirements of `program_for_sizes`. Errors: NeedsValue"""
        specs = self.needs.specs(self.graph, self.describe(feeds))
        dims = {d for name, spec in specs.items() if isinstance(spec, TensorSpec) for d in symbolic_dims((name,), spec)}
        free = frozenset(d for d in dims if isinstance(d, Symbol))
        return self._requirements(replace(self.needs, dims=self.needs.dims | free), feeds) if free else None

    def split_differing_dims(self, differing: Mapping[str, Sequence[str]]) -> None:
        """Call `split_dims` and warn. differing: by the name of a dim, the inputs in which its size differs"""
        for dim, inputs in differing.items():
            self.warn(f"{text_of_differing_dims(dim, inputs)}; from now on they are taken as different dims")
        self.split_dims(differing)

    def split_dims(self, dims: Iterable[str]) -> None:
        """From now on, dims of one of these names may have different sizes. Forgets all Programs."""
        self.graph = self.graph.with_dims_apart(dims)
        self._types = {v.name: v.type for v in self.graph.inputs}
        self._shared_dims = shared_dims(self._types)
        self.needs = Needs()
        self.forget()

    def forget(self) -> None:
        """Drop all Programs. They are compiled again when they are needed."""
        for program in self.table.values():
            self.drop(program)
        self.table.clear()
        for part in self.parts.values():
            part.forget()
        self.parts.clear()
        self.is_prepared = False


def output_paths(header: Mapping[str, Any]) -> OutputPaths:
    """Of a Program's header."""
    return OutputPaths(cast("Any", header))


def text_of_differing_dims(dim: str, inputs: Sequence[str]) -> str:
    return f'dims named "{dim}" have different sizes in the inputs {", ".join(map(repr, inputs))}'


def _spec_key(spec: Spec) -> Hashable:
    if isinstance(spec, SequenceSpec):
        return tuple(_spec_key(s) for s in spec.items)
    return None if spec is None else (spec.dtype.name, spec.dims, spec.value)


def _arrays(feeds: Mapping[str, Given]) -> dict[Path, Any]:
    """Feeds by path, as (shape, elements) for the interpreter."""
    arrays: dict[Path, Any] = {}
    for name, feed in feeds.items():
        items = [((name, n), f) for n, f in enumerate(feed)] if isinstance(feed, list) else [((name,), feed)]
        arrays |= {path: (f.shape, f.values()) for path, f in items if f is not None}
    return arrays
