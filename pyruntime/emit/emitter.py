"""Blocks of kernels → Program: the header and the blob, and what stays from one block to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.provider import LINEAR, Memory
from pyruntime.emit.block_steps import BlockSteps
from pyruntime.emit.buffers import Buffers
from pyruntime.emit.control_steps import ControlSteps
from pyruntime.emit.further import choose
from pyruntime.emit.lifetimes import Step, write_lifetimes
from pyruntime.emit.residency import Residency
from pyruntime.emit.segments import Segments
from pyruntime.emit.start_order import portions
from pyruntime.emit.symbol_names import SymbolNames
from pyruntime.frontend.budget import Budget
from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.trace_graph import Feed, TracedGraph
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import readers_of
from pyruntime.ir.kernel import Block, Host, Leaf, Tensor, root
from pyruntime.ir.room import Room
from pyruntime.ir.symbol import Symbol
from pyruntime.placement.target import Target
from pyruntime.program.format import Program

INIT, MAIN = 0, 1  # numbers of the blocks that every Program has


@dataclass(slots=True)
class Emitted:
    """host_kernels: those that the Program's Host steps refer to by number; symbols: what it calls its symbols; within:
    id of a kernel that runs as part of another -> that one's node."""

    program: Program
    host_kernels: list[Host]
    symbols: Mapping[Symbol, str]
    within: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Ends:
    """What a block must free besides what it makes, and where tensors must be when it ends.

    received: uids of what it is handed to free after the last use
    at_home: tensors that must be in linear memory then, besides its outputs
    away: tensors that must be in another memory then, and in which
    """

    received: set[int]
    at_home: Sequence[Tensor] = ()
    away: Sequence[tuple[Tensor, Memory]] = ()


def emit(name: str, init: Block, main: TracedGraph, target: Target, budget: Budget) -> Emitted:
    """The Program of a model: `init` runs once, the block of `main` at each run."""
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
        self.control = ControlSteps(self.buffers, self._inner)
        self.blocks: list[dict[str, Any]] = [{}, {}]
        self.persistent: set[int] = set()

    def program(self, name: str, init: Block, main: TracedGraph) -> Program:
        self._blocks(init, main)
        header = {
            "name": name,
            "inputs": [self._input(f) for f in main.feeds],
            "outputs": [{"name": n, "value": self._output(v, main)} for n, v in main.outputs.items()],
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
        return Program(header, bytes(self.buffers.blob))

    def _input(self, f: Feed) -> dict[str, Any]:
        name, *items = f.path
        value = self._roomy(self.buffers.tensor_at_home(f.tensor), f.room)
        return {"name": name, **({"item": items[0]} if items else {}), **value}

    def _output(self, v: Any, main: TracedGraph) -> Any:
        value = self.buffers.value(v)
        return self._roomy(value, main.rooms.get(v.uid)) if isinstance(v, Tensor) else value

    def _roomy(self, value: dict[str, Any], room: Room | None) -> dict[str, Any]:
        """A tensor as it is seen, of a buffer that has more places."""
        if room is None:
            return value
        dim = self.symbols.dim
        held = {"axis": room.axis, "places": dim(room.places)}
        if room.least is not None:
            held["least"] = dim(room.least)
        if room.mixed is not None:
            held["mixed"] = dim(room.mixed)
        return {**value, "dims": [dim(d) for d in room.shape], "room": held}

    def _guards(self, main: TracedGraph) -> list[Any]:
        """Each condition once, as the first node tells it that states it."""
        told: dict[Any, list[str]] = {}
        for condition, *rest in [*main.guards, *self._extents(main)]:
            told.setdefault(condition, rest)
        return [[self.symbols.dim(condition), *rest] for condition, rest in told.items()]

    def _extents(self, main: TracedGraph) -> list[tuple[Any, str, str]]:
        """Guards of the dims that a memory bounds."""
        dims = sorted({s for f in main.feeds for d in f.tensor.shape for s in sh.symbols(d)})
        return [
            (
                sh.compare("lt", sh.dim_of(s), m.extent),
                f'dim "{s}": a dim of {m.extent} or more is too large for {m.title}\'s integers',
                "",
            )
            for m in self.residency.away
            if m.extent
            for s in dims
        ]

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _blocks(self, init: Block, main: TracedGraph) -> None:
        outputs = [t for v in main.outputs.values() for t in tensors_of(v)]
        used = {root(t).uid for t in (*self.residency.uses_at_home(main.block), *outputs)}
        results = {t.uid for k in init.kernels for t in k.outputs}
        constants = {root(t).uid for k in init.kernels for t in k.inputs if isinstance(root(t).kernel, Leaf)}
        self.persistent = used & (results | constants)
        constants_of_init_alone = constants - self.persistent
        away = self.residency.constants(init, main.block)
        self.persistent |= {t.uid for t in self.residency.copies.values()}
        fixed = {root(t).uid for t in (*outputs, *[t for t, _ in away])}
        self.buffers.further = choose(init, main.block, self.residency, self.target, fixed)
        self._block(init, INIT, Ends(constants_of_init_alone, away=away))
        self.persistent |= {self.residency.at(t, where).uid for t, where in away}
        self._block(main.block, MAIN, Ends({f.tensor.uid for f in main.feeds}, at_home=outputs))

    def _inner(self, block: Block) -> int:
        """A branch or a body; it sees what copies the blocks around it made, and they do not see its own."""
        number = len(self.blocks)
        self.blocks.append({})
        with self.residency.inner_block():
            self._block(block, number, Ends({t.uid for t in block.inputs[2:]}))
        return number

    def _block(self, block: Block, number: int, ends: Ends) -> None:
        at_home = [*block.outputs, *ends.at_home]
        steps = self._steps(block, number, at_home, ends.away)
        returned = {root(self.residency.at(t, LINEAR)).uid for t in at_home}
        returned |= {self.residency.at(t, where).uid for t, where in ends.away}
        numbers = self.buffers.numbers
        unused = write_lifetimes(steps, ends.received, self.persistent | returned, numbers)
        self.blocks[number] = {
            "inputs": [self.buffers.tensor_at_home(t) for t in block.inputs],
            "unused": [numbers[t.uid] for t in block.inputs if t.uid in unused],
            "steps": [step.json for step in steps],
            "outputs": [self.buffers.tensor_at_home(t) for t in block.outputs],
        }

    def _steps(
        self, block: Block, number: int, at_home: Sequence[Tensor], away: Sequence[tuple[Tensor, Memory]]
    ) -> list[Step]:
        readers = readers_of(block, [*at_home, *[t for t, _ in away]])
        readers.update(self.persistent)  # others read them in a later block
        steps = BlockSteps(self.segments, self.control, f"run_{number}", readers)
        for kernels in portions(block.kernels) if number == INIT else [block.kernels]:
            for kernel in kernels:
                steps.add(kernel)
            steps.flush()
        for where in self.residency.away:
            steps.copy_missing([t for t, to in away if to is where], where)
        steps.copy_missing(at_home, LINEAR)
        return steps.steps


__all__ = ["Emitted", "emit"]
