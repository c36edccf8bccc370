"""What executors of one Program share: its header, compiled steps and guards, and where its constants lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pyruntime.native.execution.values import Values
from pyruntime.native.memory.argument_blocks import ArgumentBlocks
from pyruntime.native.memory.arrays import NUMPY, unpack
from pyruntime.native.memory.planner import Run, Step
from pyruntime.onnx.graph import Source
from pyruntime.program import types
from pyruntime.program.dims import symbols
from pyruntime.program.footprint import start_up
from pyruntime.program.format import Program
from pyruntime.runtime.guards import Guards

PART = 1 << 23  # bytes of a weight that are read at once


@dataclass(frozen=True, slots=True)
class Constants:
    """Addresses, which are the same in all memories of a Program, and strings, by buffer."""

    addresses: dict[int, int]
    strings: dict[int, Any]


class LoadedProgram:
    """sources: of weights, by name; constants: None until the first executor loads them."""

    def __init__(self, program: Program, sources: Mapping[str, Source]) -> None:
        self.program = program
        self.sources = sources
        self.header = cast("types.Header", program.header)  # as `validate` found it, or the compiler wrote it
        self.guards = Guards(self.header)
        self.constants: Constants | None = None
        steps = [s for b in self.header["blocks"] for s in b["steps"]]
        compiled = iter([self._step(s, uid) for uid, s in enumerate(steps, 1)])
        self.blocks = [[next(compiled) for _ in b["steps"]] for b in self.header["blocks"]]

    def _step(self, json: types.Step, uid: int) -> Step[types.Step]:
        step = Step(json, uid=uid)
        if json["op"] in ("wasm", "gpu"):
            dims = [d for c in json["calls"] for d in (*c["params"], c["work"])]
            step.blocks = ArgumentBlocks(json["calls"])
            sizes = [self.header["buffers"][b]["size"] for b in {b for c in json["calls"] for b in c["buffers"]}]
            step.symbols = tuple(sorted(frozenset().union(*map(symbols, [*dims, *sizes]))))
        return step

    def load_constants(self, values: Values, gpu: Any, run_step: Callable[[Step[types.Step], Run], None]) -> Constants:
        """Bring the constants into memory and run the init block, by `run_step`."""
        planner = values.planner
        run = Run({}, {})
        permanent, loads = start_up(self.header)
        for b in permanent:  # these come first, so that what only init needs leaves no holes between them
            run.addresses[b] = planner.place(b, values.size(b, {}))
        planner.placed = set(permanent)
        for (_, constants), step in zip(loads, [None, *self.blocks[0]], strict=True):
            for c in constants:
                if "strings" in c:
                    run.strings[c["buffer"]] = c["strings"]
                else:
                    run.addresses[c["buffer"]] = self._load(c, values, gpu)
            run.state = planner.add_state()
            if step is not None:
                run_step(step, run)
        if gpu is not None:
            gpu.host.flush()
        planner.make_permanent(run.state)
        self.constants = Constants(run.addresses, run.strings)
        return self.constants

    def _load(self, c: types.SourceConstant | types.BlobConstant, values: Values, gpu: Any) -> int:
        """The address of a constant that is in memory now."""
        buffer = self.header["buffers"][c["buffer"]]
        in_gpu = bool(buffer.get("memory"))
        if "source" in c and not c["unpack"] and not in_gpu:
            return self._load_in_parts(c, values)
        data = self.program.part(c["blob"]) if "blob" in c else self._read(c, 0, c["size"])
        size = values.size(c["buffer"], {}) if c["unpack"] else len(data)
        raw = np.frombuffer(data, np.uint8)
        raw = unpack(raw, c["unpack"], c["signed"], size) if c["unpack"] else raw
        if in_gpu:
            address = values.planner.place(c["buffer"], size)
            gpu.write(address, raw if c["unpack"] else raw.view(NUMPY[c["dtype"]]))
            return address
        address, target = self._allocate(c["buffer"], size, values)
        target[:] = raw
        return address

    def _read(self, c: types.SourceConstant, start: int, size: int) -> Any:
        return self.sources[c["source"]].read(c["offset"] + start, size)

    def _load_in_parts(self, c: types.SourceConstant, values: Values) -> int:
        """Without a copy of a large weight beside it."""
        address, target = self._allocate(c["buffer"], c["size"], values)
        for start in range(0, c["size"], PART):
            part = target[start : start + PART]
            part[:] = np.frombuffer(self._read(c, start, len(part)), np.uint8)
        return address

    def _allocate(self, buffer: int, size: int, values: Values) -> tuple[int, np.ndarray]:
        """The address of a constant in its linear memory, and the bytes there."""
        address = values.planner.place(buffer, size)
        found = self.header["buffers"][buffer].get("further")
        memory = values.host.further[found[0] - 1] if found else values.host.memory
        return address, memory[address : address + size]


__all__ = ["LoadedProgram"]
