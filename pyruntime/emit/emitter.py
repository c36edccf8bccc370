"""Writes the header and the blob of a Program from blocks of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.linear_memory import LOOP_BYTES
from pyruntime.codegen.provider import LINEAR, ConditionalProvider, Memory, StepLoopWriter
from pyruntime.emit.block_steps import BlockSteps
from pyruntime.emit.buffers import Buffers
from pyruntime.emit.control_steps import ControlSteps
from pyruntime.emit.further_memories import place_weights
from pyruntime.emit.lifetimes import Step, write_lifetimes
from pyruntime.emit.residency import Residency
from pyruntime.emit.segments import Segments
from pyruntime.emit.start_order import portions
from pyruntime.emit.symbol_names import SymbolNames
from pyruntime.frontend.budget import Budget
from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.trace_graph import Feed, TracedGraph
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import compute_kernels, readers_of
from pyruntime.ir.kernel import Block, Host, Leaf, Loop, Tensor, root
from pyruntime.ir.room import Room
from pyruntime.ir.symbol import Symbol
from pyruntime.placement.target import Target
from pyruntime.program.format import Program

INIT, MAIN = 0, 1  # numbers of the blocks that every Program has


@dataclass(slots=True)
class Emitted:
    """host_kernels: the kernels to which the Program's Host steps refer by number
    symbols: the Program's names of its symbols
    within: for kernels that run as part of another kernel, by id, the other kernel's node
    """

    program: Program
    host_kernels: list[Host]
    symbols: Mapping[Symbol, str]
    within: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Tensors that a block receives when it starts, and the memories in which tensors must be when it ends.

    received: uids of tensors that the block frees after their last use, besides those that it makes
    in_linear_memory: tensors that must be in linear memory at the end, besides the block's outputs
    on_device: tensors that must be in another memory at the end, and that memory
    """

    received: set[int]
    in_linear_memory: Sequence[Tensor] = ()
    on_device: Sequence[tuple[Tensor, Memory]] = ()


def emit(name: str, init: Block, main: TracedGraph, target: Target, budget: Budget) -> Emitted:
    """The Program of a model. `init` runs once, the block of `main` in each run."""
    emitter = _Emitter(target, budget)
    program = emitter.program(name, init, main)
    return Emitted(program, emitter.control.host_kernels, emitter.symbols.names, emitter.segments.within)


class _Emitter:
    """persistent: uids of constants and results of init that main uses, which no block frees."""

    def __init__(self, target: Target, budget: Budget) -> None:
        self.target = target
        self.residency = Residency(target.memory, target.memories)
        self.symbols = SymbolNames()
        self.buffers = Buffers(self.residency, self.symbols)
        self.segments = Segments(target, self.residency, self.buffers, budget)
        self.control = ControlSteps(self.buffers, self._inner, self._repeat)
        self.blocks: list[dict[str, Any]] = [{}, {}]
        self.persistent: set[int] = set()

    def program(self, name: str, init: Block, main: TracedGraph) -> Program:
        self._blocks(init, main)
        header = {
            "name": name,
            "inputs": [self._input(f) for f in main.feeds],
            "outputs": [{"name": n, **self._output(v, main)} for n, v in main.outputs.items()],
            "buffers": self.buffers.buffers,
            "constants": self.buffers.constants,
            "checked": list(self.segments.checked),
            "guards": self._guards(main),
            "blocks": self.blocks,
            "modules": {name: self.buffers.append(w.finish()) for name, w in self.target.writers.items()},
            "symbols": {name: str(s) for s, name in self.symbols.names.items()},
        }
        if memories := self.buffers.further.memories:
            header["memories"] = memories
        if self.buffers.states:
            header["states"] = self.buffers.states
        if self.symbols.named:
            header["dims"] = self.symbols.named
        return Program(header, bytes(self.buffers.blob))

    def _input(self, f: Feed) -> dict[str, Any]:
        name, *items = f.path
        value = self._with_capacity(self.buffers.tensor(f.tensor), f.room)
        return {"name": name, **({"item": items[0]} if items else {}), **value}

    def _output(self, v: Any, main: TracedGraph) -> dict[str, Any]:
        value = self.buffers.value(v)
        if not isinstance(v, Tensor):
            return {"value": value}
        updates = [self.buffers.number(t) for t in main.updates.get(v.uid, ())]
        return {
            "value": self._with_capacity(value, main.rooms.get(v.uid)),
            **({"updates": updates} if updates else {}),
        }

    def _with_capacity(self, value: dict[str, Any], room: Room | None) -> dict[str, Any]:
        """A tensor's description with the capacity of its buffer, if that is larger."""
        if room is None:
            return value
        dim = self.symbols.dim
        capacity = {"axis": room.axis, "places": dim(room.places)}
        if room.least is not None:
            capacity["least"] = dim(room.least)
        if room.mixed is not None:
            capacity["mixed"] = dim(room.mixed)
        if room.undo is not None:
            capacity["undo"] = dim(room.undo)
        return {**value, "dims": [dim(d) for d in room.shape], "room": capacity}

    def _guards(self, main: TracedGraph) -> list[Any]:
        """Deduplicated guards; the first node's message is kept."""
        guards: dict[Any, list[str]] = {}
        for condition, *rest in [*main.guards, *self._extents(main), *self._conditions(main)]:
            guards.setdefault(condition, rest)
        return [[self.symbols.dim(condition), *rest] for condition, rest in guards.items()]

    def _extents(self, main: TracedGraph) -> list[tuple[Any, str, str]]:
        """Guards on dims of feeds that a memory bounds."""
        dims = sorted({s for f in main.feeds for d in f.tensor.shape for s in sh.symbols(d)})
        return [
            (
                sh.compare("lt", sh.dim_of(s), m.extent),
                f'dim "{s}": a dim of {m.extent} or more is too large for {m.title}\'s integers',
                "",
            )
            for m in self.residency.device_memories
            if m.extent
            for s in dims
        ]

    def _conditions(self, main: TracedGraph) -> list[tuple[Any, str, str, str]]:
        """Guards on dims that providers need for kernels."""
        conditional = [p for p in self.target.providers if isinstance(p, ConditionalProvider)]
        return [
            (fits, text, k.node, p.name)
            for k in compute_kernels(main.block)
            for p in conditional
            if p.name == self.target.provider(k).name
            for fits, text in p.conditions(k)
        ]

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _blocks(self, init: Block, main: TracedGraph) -> None:
        outputs = [t for v in main.outputs.values() for t in tensors_of(v)]
        used = {root(t).uid for t in (*self.residency.read_in_linear_memory(main.block), *outputs)}
        results = {t.uid for k in init.kernels for t in k.outputs}
        constants = {root(t).uid for k in init.kernels for t in k.inputs if isinstance(root(t).kernel, Leaf)}
        self.persistent = used & (results | constants)
        constants_of_init_alone = constants - self.persistent
        on_device = self.residency.constants(init, main.block)
        self.persistent |= {t.uid for t in self.residency.copies.values()}
        fixed = {root(t).uid for t in (*outputs, *[t for t, _ in on_device])}
        self.buffers.further = place_weights(init, main.block, self.residency, self.target, fixed)
        self._block(init, INIT, Boundary(constants_of_init_alone, on_device=on_device))
        self.persistent |= {self.residency.at(t, where).uid for t, where in on_device}
        self._block(main.block, MAIN, Boundary({f.tensor.uid for f in main.feeds}, in_linear_memory=outputs))

    def _inner(self, block: Block) -> int:
        """The number of a new block for a branch or loop body. It uses copies of enclosing
        blocks; enclosing blocks do not use its copies."""
        number = len(self.blocks)
        self.blocks.append({})
        with self.residency.inner_block():
            self._block(block, number, Boundary({t.uid for t in block.inputs[2:]}))
        return number

    def _repeat(self, loop: Loop, number: int) -> dict[str, Any]:
        """A function that runs steps of this body without the executor, if it is one segment in linear memory, and
        shapes do not depend on the step."""
        block = self.blocks[number]
        values = [*block["inputs"], *block["outputs"]]
        has_strings = any("host" in self.buffers.buffers[v["buffer"]] for v in values)
        if len(block["steps"]) != 1 or loop.enters or has_strings:
            return {}
        writer = self.target.writers.get(self.target.places.get(block["steps"][0]["op"], ""))
        if not isinstance(writer, StepLoopWriter):
            return {}
        name = f"repeat_{number}"
        writer.step_loop(name, block["steps"][0]["fn"], len(block["outputs"]) - 1 - len(loop.carried))
        return {"repeat": {"fn": name, "buffer": self.buffers.scratch(LOOP_BYTES)}}

    def _block(self, block: Block, number: int, boundary: Boundary) -> None:
        in_linear_memory = [*block.outputs, *boundary.in_linear_memory]
        steps = self._steps(block, number, in_linear_memory, boundary.on_device)
        returned = {root(self.residency.at(t, LINEAR)).uid for t in in_linear_memory}
        returned |= {self.residency.at(t, where).uid for t, where in boundary.on_device}
        numbers = self.buffers.numbers
        unused = write_lifetimes(steps, boundary.received, self.persistent | returned, numbers)
        self.blocks[number] = {
            "inputs": [self.buffers.tensor_in_linear_memory(t) for t in block.inputs],
            "unused": [numbers[t.uid] for t in block.inputs if t.uid in unused],
            "steps": [step.json for step in steps],
            "outputs": [self.buffers.tensor_in_linear_memory(t) for t in block.outputs],
        }

    def _steps(
        self, block: Block, number: int, in_linear_memory: Sequence[Tensor], on_device: Sequence[tuple[Tensor, Memory]]
    ) -> list[Step]:
        readers = readers_of(block, [*in_linear_memory, *[t for t, _ in on_device]])
        readers.update(self.persistent)  # a later block reads them, too
        steps = BlockSteps(self.segments, self.control, f"run_{number}", readers)
        for kernels in portions(block.kernels) if number == INIT else [block.kernels]:
            for kernel in kernels:
                steps.add(kernel)
            steps.flush()
        for where in self.residency.device_memories:
            steps.copy_missing([t for t, to in on_device if to is where], where)
        steps.copy_missing(in_linear_memory, LINEAR)
        return steps.steps
