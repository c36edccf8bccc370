"""Graph → Program: the way of a model, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyruntime.ops  # noqa: F401  fills the operator table
from pyruntime.codegen.provider import Builder, Routine
from pyruntime.errors import InvalidInput, our_fault
from pyruntime.frontend.trace_graph import Spec, TensorSpec, Translation, translate
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Block, Host
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.passes.constant_hoisting import hoist_constants
from pyruntime.passes.dead_code import remove_dead
from pyruntime.passes.epilogues import absorb
from pyruntime.passes.graph_pruning import prune
from pyruntime.passes.legalise import settle
from pyruntime.passes.map_fusion import fuse
from pyruntime.passes.operand_packing import pack
from pyruntime.passes.row_fusion import fuse_rows
from pyruntime.passes.strided_operands import read_through
from pyruntime.passes.string_kernels import lower_strings
from pyruntime.passes.unit_axes import absorb_units
from pyruntime.passes.used_symbols import mentioned
from pyruntime.program.emit import Emitter, tensors_of
from pyruntime.program.format import Program
from pyruntime.program.node_report import Fates, reasons, revealed

LEVELS = ("disabled", "basic", "extended", "layout", "all")


@dataclass(slots=True)
class Compiled:
    """The program, the kernels that its Host steps name by position, its symbols by the names it has for them, and the
    milliseconds that each phase took."""

    program: Program
    host_kernels: list[Host]
    symbols: dict[str, Symbol]
    timings: dict[str, float] = field(default_factory=dict)


class Stopwatch:
    """Milliseconds of one phase after the other."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.timings[phase] = 1000 * (now - self._last)
        self._last = now


def compile_graph(
    graph: Graph,
    specs: Mapping[str, Spec],
    elements: Callable[[Weight], list[Any]],
    builder: Builder,
    *,
    level: str = "all",
    constants: Mapping[str, TensorSpec] | None = None,
    reveal: bool = False,
) -> Compiled:
    """Compile for feeds of these specs. `level` as in onnxruntime: disabled, basic, extended, layout or all.
    `reveal`: the outputs are what each kernel makes (see `revealed`)."""
    watch = Stopwatch()
    with our_fault("translating the graph"):
        main = translate(prune(graph), specs, elements, constants or {})
    watch.lap("translate")
    fates = Fates(graph, main)
    if level not in LEVELS:
        raise InvalidInput(f"optimisation level {level!r}", hint=f"one of {', '.join(LEVELS)}")
    with our_fault("optimising the kernels"):
        init = optimise(main, LEVELS.index(level), builder.routines, getattr(builder, "fuses_rows", False))
    watch.lap("passes")
    if reveal:
        main.outputs = revealed(main.block)
    emitter = Emitter(builder)
    with our_fault("writing the program"):
        program = emitter.program(graph.name, init, main)
        program.header["nodes"] = fates.after(init, emitter.within)
        if emitter.placed is not None:
            program.header["why"] = reasons(main.block, emitter.placed.partition.reasons)
    watch.lap("emit")
    symbols = {name: s for s, name in emitter.symbols.items()}
    return Compiled(program, emitter.host_kernels, symbols, watch.timings)


def optimise(main: Translation, level: int, routines: Mapping[str, Routine], rows: bool = False) -> Block:
    """Run the kernel passes; gives the init block. rows: whether row fusion pays where this will run."""
    outputs = [t for v in main.outputs.values() for t in tensors_of(v)]
    block, init = main.block, Block()
    extended = level >= LEVELS.index("extended")
    remove_dead(block, outputs)
    lower_strings(block)
    settle(block, routines)
    if extended:
        read_through(block, routines)
    if level >= LEVELS.index("basic"):
        init = hoist_constants(block)
    if extended:
        remove_dead(block, outputs)
        absorb_units(block, outputs)
        absorb(block, routines, outputs)
        fuse(init, [t for k in init.kernels for t in k.outputs])
        fuse(block, outputs, routines)
        remove_dead(block, outputs)
        absorb_units(block, outputs)
        absorb(block, routines, outputs)
        if rows:
            fuse_rows(block, outputs)
        pack(block, init, routines)
    _sweep(main, init, outputs)
    return init


def _sweep(main: Translation, init: Block, outputs: list[Any]) -> None:
    """Dead code in both blocks, and reads of values that nobody asks for."""
    while True:
        before = len(main.block.kernels)
        names = mentioned(main.block)
        for t in outputs:
            names |= {s for d in t.shape for s in sh.symbols(d)}
        for guard, *_ in main.guards:
            names |= sh.symbols(guard)
        remove_dead(main.block, outputs, names)
        if len(main.block.kernels) == before:
            break
    used = [t for k in main.block.kernels for t in k.inputs]
    remove_dead(init, [*used, *outputs])
