"""Loads a Program: what its executors share, and its constants. Twin of web/run/load_program.js."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pyruntime.native.memory.arrays import NUMPY, flush_subnormals, unpack
from pyruntime.onnx.graph import Source
from pyruntime.program import types
from pyruntime.program.format import Program
from pyruntime.runtime.arena import GPU, Span
from pyruntime.runtime.output_paths import MAIN, MOST, OutputPath, OutputPaths
from pyruntime.runtime.start_up import start_up
from pyruntime.runtime.states import State

PART = 1 << 23  # bytes of a weight that are read at once


@dataclass(eq=False, slots=True)
class LoadedPath:
    """The part of a Program that makes some outputs. inputs: those that it reads, and their buffers; steps: each with
    its key in plans; symbols: those that inputs set, each with the number of an input and an axis"""

    inputs: list[types.Input]
    buffers: list[int]
    steps: list[tuple[types.Step, str]]
    symbols: list[tuple[str, int, int]]

    @classmethod
    def of(cls, path: OutputPath) -> LoadedPath:
        steps = [(step, f"{MAIN}.{n}{path.suffix}") for n, step in enumerate(path.steps)]
        return cls(path.inputs, [spec["buffer"] for spec in path.inputs], steps, symbols_of(path.inputs))


def symbols_of(inputs: Sequence[types.Input]) -> list[tuple[str, int, int]]:
    dims = [(d, n, axis) for n, spec in enumerate(inputs) for axis, d in enumerate(spec["dims"]) if isinstance(d, str)]
    return [(d, *place) for d, place in {d: (n, axis) for d, n, axis in dims}.items()]


class LoadedProgram:
    """sources: of weights, by name; strings: of constants, by buffer, once the first executor has loaded them; blocks:
    their steps, each with its key in plans; whole: the path of all outputs."""

    def __init__(self, program: Program, sources: Mapping[str, Source]) -> None:
        self.program = program
        self.sources = sources
        self.header = cast("types.Header", program.header)  # as `validate` found it, or the compiler wrote it
        self.strings: dict[int, Any] = {}
        self.blocks = [
            [(step, f"{number}.{n}") for n, step in enumerate(block["steps"])]
            for number, block in enumerate(self.header["blocks"])
        ]
        self._paths = OutputPaths(self.header)
        self.whole = LoadedPath.of(self._paths.whole)
        self._loaded: dict[str, LoadedPath] = {"": self.whole}  # by the path's suffix

    def path(self, names: Collection[str]) -> LoadedPath:
        """The path of these outputs."""
        if len(names) == len(self.header["outputs"]):  # for speed: most runs ask for all
            return self.whole
        path = self._paths.find(list(names))
        found = self._loaded.get(path.suffix)
        if found is None:
            if len(self._loaded) > MOST:
                self._loaded = {"": self.whole}
            found = self._loaded[path.suffix] = LoadedPath.of(path)
        return found

    def run_init(self, executor: Any, is_filled: bool = False) -> None:
        """Load the constants into memory, and run the init block. is_filled: only plan their places: the memory gets
        pages that have all of it. The init block then has nothing but calls of WebAssembly."""
        plan, state = executor.plan, executor.plan.root
        start = start_up(self.header)
        for b in start.permanent:
            plan.place(state, b)
        plan.preallocated = set(start.permanent)
        self._load_all(start.constants, executor, state, is_filled)
        for (step, key), constants in zip(self.blocks[0], start.before, strict=True):
            state = State(state.place.copy(), state.env)
            self._load_all(constants, executor, state, is_filled)
            state = plan.plan_calls(step, state, key).state if is_filled else executor.run_step(step, state, key)
        if executor.gpu is not None:
            executor.gpu.host.flush()
        plan.make_permanent(state)
        self.strings = executor.values.hosts

    def _load_all(
        self, constants: Sequence[types.Constant], executor: Any, state: State, is_filled: bool
    ) -> None:  # fmt: skip
        """state: in which the constants get memory"""
        for c in constants:
            if "strings" in c:
                executor.values.hosts[c["buffer"]] = c["strings"]
            else:
                executor.plan.place(state, c["buffer"])
        for c in () if is_filled else constants:
            if "strings" not in c:
                executor.plan.ensure(state.place)
                self._load(c, executor, executor.plan.span(state, c["buffer"]))

    def _load(
        self, c: types.SourceConstant | types.BlobConstant | types.ZeroConstant, executor: Any, span: Span
    ) -> None:  # fmt: skip
        """Bring a constant into its memory."""
        if "zeros" in c:
            write_zeros(c, executor, span)
            return
        if span.address >= GPU:
            raw = np.frombuffer(self._data(c), np.uint8)
            if "flush" in c:
                flush_subnormals(raw := raw.copy(), c["dtype"])
            whole = unpack(raw, c["unpack"], c["signed"], executor.plan.size({}, c["buffer"])) if c["unpack"] else raw
            executor.gpu.write(span.address, whole if c["unpack"] else whole.view(NUMPY[c["dtype"]]))
            return
        memory = executor.host.further[span.memory - 1] if span.memory else executor.host.memory
        target = memory[span.address : span.address + executor.plan.size({}, c["buffer"])]
        if c["unpack"]:
            target[:] = unpack(np.frombuffer(self._data(c), np.uint8), c["unpack"], c["signed"], len(target))
        elif "source" in c:  # in parts, without a copy of a large weight beside it
            for start in range(0, c["size"], PART):
                size = min(PART, c["size"] - start)
                part = target[start : start + size]
                part[:] = np.frombuffer(self._read(c, start, size), np.uint8)
                if "flush" in c:
                    flush_subnormals(part, c["dtype"])
        else:
            raw = np.frombuffer(self._data(c), np.uint8)
            target[: len(raw)] = raw
            if "flush" in c:
                flush_subnormals(target[: len(raw)], c["dtype"])

    def _data(self, c: types.SourceConstant | types.BlobConstant) -> Any:
        return self.program.part(c["blob"]) if "blob" in c else self._read(c, 0, c["size"])

    def _read(self, c: types.SourceConstant, start: int, size: int) -> Any:
        return self.sources[c["source"]].read(c["offset"] + start, size)


def write_zeros(c: types.ZeroConstant, executor: Any, span: Span) -> None:
    size = executor.plan.size({}, c["buffer"])
    if span.address >= GPU:
        executor.gpu.write(span.address, np.zeros(size // 4, np.int32))
    else:
        executor.host.memory[span.address : span.address + size] = 0
