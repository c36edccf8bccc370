"""Compiles a graph to a Program, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyruntime.ops  # noqa: F401  fills the operator table
from pyruntime.compiler.collection import without_collection
from pyruntime.compiler.equal_layers import Layers, equal_layers
from pyruntime.compiler.layer_copies import LayerCopies, NotEqual
from pyruntime.compiler.pipeline import Work
from pyruntime.compiler.settings import Settings
from pyruntime.compiler.user_passes import is_extended
from pyruntime.emit.emitter import emit
from pyruntime.emit.explain_table import table
from pyruntime.emit.node_report import NodeReport, reasons, revealed
from pyruntime.errors import our_fault
from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.trace_graph import Spec, TensorSpec, made_outputs, trace_graph
from pyruntime.ir.kernel import Block, Host
from pyruntime.ir.shape import decided_by_feeds
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Graph, Value, Weight
from pyruntime.onnx.parse_tensors import remarks_on_sparse
from pyruntime.options import SessionOptions
from pyruntime.passes.cleanup.graph_pruning import prune
from pyruntime.placement.target import Target
from pyruntime.program.format import Program


@dataclass(slots=True)
class Compiled:
    """The result of a compilation.

    host_kernels: the kernels that Host steps of the Program refer to by position
    symbols: the Program's symbols by name
    init, main: the kernels that run once, and in each run
    outputs: the graph's outputs with inferred shapes
    remarks: warnings about declared shapes that contradict the inferred ones, and about sparse initializers
    timings: milliseconds of each phase
    """

    program: Program
    host_kernels: list[Host]
    symbols: dict[str, Symbol]
    init: Block
    main: Block
    outputs: tuple[Value, ...] = ()
    remarks: Sequence[str] = ()
    timings: dict[str, float] = field(default_factory=dict)


class Stopwatch:
    """Measures consecutive phases, in milliseconds."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.timings[phase] = 1000 * (now - self._last)
        self._last = now


Found = tuple[Work, dict[str, Any], Callable[[Block, Mapping[int, str]], list[Any]]]


class _Tracing:
    """Traces and optimises graphs. The results are the kernels, the graph's outputs as they were traced, and the method
    `after` of a `NodeReport`."""

    def __init__(
        self, specs: Mapping[str, Spec], elements: Callable[[Weight], list[Any]], target: Target, settings: Settings,
        constants: Mapping[str, TensorSpec],
    ) -> None:  # fmt: skip
        self.watch, self.budget = Stopwatch(), settings.budget()
        self.specs, self.constants = specs, constants
        self.elements = elements
        self.target, self.settings = target, settings

    @property
    def may_copy(self) -> bool:
        """Whether kernels may be copied: passes and providers of others, and GPUs, may treat them each in its way."""
        return not self.constants and len(self.target.providers) == 1 and not is_extended()

    def of(self, graph: Graph) -> Found:
        with our_fault("tracing the graph"):
            main = trace_graph(
                prune(graph), self.specs, self.elements, self.constants, self.budget, self.target.takes_node,
                self.target.products,
            )  # fmt: skip
        self.watch.lap("trace")
        report = NodeReport(graph, main)
        shown = dict(main.outputs)
        work = Work(
            main, self.target.routines, self.target.rows, cpu_only=not self.target.memories,
            scratch=self.target.scratch, products=self.target.products,
            keeps_subnormals=self.settings.options.keep_subnormals,
        )  # fmt: skip
        with our_fault("optimising the kernels"), decided_by_feeds():
            self.settings.pipeline.kernels(work, self.budget)
        self.watch.lap("passes")
        return work, shown, report.after

    def of_layers(self, layers: Layers) -> Found:
        """The result for the whole graph. Errors: NotEqual"""
        asked: dict[str, Weight] = {}
        elements = self.elements

        def noted(weight: Weight) -> list[Any]:
            asked[weight.name] = weight
            return elements(weight)

        self.elements = noted
        try:
            work, shown, report = self.of(layers.short)
        finally:
            self.elements = elements
        with decided_by_feeds():
            copies = LayerCopies(layers, work, self.specs, asked)
            copies.add()
        self.watch.lap("copies")
        return work, copies.outputs(shown), lambda init, within: copies.report(report(init, within))


@without_collection()
def compile_graph(
    graph: Graph,
    specs: Mapping[str, Spec],
    elements: Callable[[Weight], list[Any]],
    target: Target,
    settings: Settings | None = None,
    *,
    constants: Mapping[str, TensorSpec] | None = None,
    all_results: bool = False,
) -> Compiled:
    """Compile a graph that `settings.prepare` returned, for feeds of these specs.

    settings: None runs all passes, within the default limits
    constants: values inside the graph that are known, by name
    all_results: the outputs are the results of all kernels (see `revealed`)
    Errors: LimitExceeded beyond the limits."""
    settings = settings or Settings(SessionOptions())
    tracing = _Tracing(specs, elements, target, settings, constants or {})
    found = None
    layers = equal_layers(graph, specs) if tracing.may_copy and not all_results and prune(graph) is graph else None
    if layers is not None:
        with suppress(NotEqual):
            found = tracing.of_layers(layers)
    work, shown, report = found or tracing.of(graph)
    watch, main = tracing.watch, work.traced
    outputs, remarks = made_outputs(graph, shown)
    remarks += remarks_on_sparse(graph)
    if all_results:
        main.outputs = revealed(main.block)
    with our_fault("writing the program"), decided_by_feeds():
        target.place(work.init, main.block, [t for v in main.outputs.values() for t in tensors_of(v)])
        emitted = emit(graph.name, work.init, main, target, tracing.budget)
        program = emitted.program
        why = reasons(main.block, target.placement.reasons)
        owners = [k.provider for k in emitted.host_kernels]
        nodes = report(work.init, emitted.within)
        program.header["explain"] = table(program.header, nodes, why, work.loops, target.places, owners)
    watch.lap("emit")
    symbols = {name: s for s, name in emitted.symbols.items()}
    return Compiled(program, emitted.host_kernels, symbols, work.init, main.block, outputs, remarks, watch.timings)
