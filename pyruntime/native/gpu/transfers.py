"""What moves between linear memory and the GPU in a run, and what need not: GPU tensors that come in or go out.

web/gpu/transfers.js is its mirror.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.errors import PyRuntimeError
from pyruntime.native.execution.faults import raise_fault
from pyruntime.native.gpu.tensor import TYPES, GpuTensor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.native.memory.planner import Run, Step, calls_of
from pyruntime.program import types

if TYPE_CHECKING:
    from pyruntime.native.execution.executor import Executor

CopyStep = Step[types.CopyStep]


class Transfers:
    """Of one Program's runs."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        header = executor.header
        read = set(read_at_home(header))
        leaving = {b for o in header["outputs"] for b in buffers_of(o["value"])}
        copies = [s for s in header["blocks"][1]["steps"] if s["op"] == "copy" and s["to"] == "wasm"]
        arriving = {target["buffer"] for s in copies for _, target in s["pairs"]}
        self.inputs = {i["buffer"] for i in header["inputs"]} - read - leaving  # for the GPU alone
        self.outputs: dict[int, list[str]] = {}  # buffers that are filled for outputs alone, and their names
        for o in header["outputs"]:
            for b in buffers_of(o["value"]):
                if b in arriving and b not in read:
                    self.outputs.setdefault(b, []).append(o["name"])
        self.can_stay = {
            o["name"]: v for o in header["outputs"] if (v := o["value"]) and "dtype" in v and v["dtype"] in TYPES
        }

    def begin(
        self, run: Run, feeds: Sequence[tuple[int, Any]], wanted: Collection[str], stay: Collection[str]
    ) -> list[tuple[int, Any]]:
        """The feeds by buffer, without those that need not come home. `wanted`: names of outputs; `stay`: those of them
        that are to stay on the GPU."""
        run.wanted = set(wanted)
        gpu = self.executor.gpu
        run.stay = self.can_stay.keys() & set(stay) if gpu is not None else set()
        at_home: list[tuple[int, Any]] = []
        for buffer, x in feeds:
            if not isinstance(x, GpuTensor):
                at_home.append((buffer, x))
            elif gpu is not None and buffer in self.inputs:
                run.remote[buffer] = x.held(gpu.host.own)
            else:
                at_home.append((buffer, x.stored()))
        return at_home

    def end(self) -> None:
        """All is on its way."""
        if self.executor.gpu is not None:
            self.executor.gpu.host.flush()

    def abandon(self) -> None:
        """The run failed."""
        if self.executor.gpu is not None:
            self.executor.gpu.host.abandon()

    def copy(self, step: CopyStep, run: Run) -> None:
        """Bring tensors into the other memory."""
        try:
            (self._home if step.json["to"] == "wasm" else self._away)(step, run)
        except PyRuntimeError as e:
            raise e.at(self._user(step.json["pairs"])) from e.__cause__
        self.executor.release(step, run)

    def _away(self, step: CopyStep, run: Run) -> None:
        self._make(step, run, [target for _, target in step.json["pairs"]], "webgpu")
        incoming = []
        for source, target in step.json["pairs"]:
            address = run.addresses[target["buffer"]]
            if source["buffer"] in run.remote:
                incoming.append((address, run.remote[source["buffer"]]))
            else:
                self.executor.gpu.write(address, self.executor.fetch(source, run))
        self.executor.gpu.fetch_held(incoming)

    def _home(self, step: CopyStep, run: Run) -> None:
        gpu, pairs = self.executor.gpu, step.json["pairs"]
        for source, target in pairs:
            self._keep(source, target, run)
        pairs = [pair for pair in pairs if self._goes_home(pair[1]["buffer"], run)]
        self._make(step, run, [target for _, target in pairs])
        places = [(run.addresses[s["buffer"]], NUMPY[s["dtype"]], self._count(s, run)) for s, _ in pairs]
        found = gpu.read(places)
        if record := gpu.take_fault():
            raise_fault(record, self.executor.checked)
        for (_, target), data in zip(pairs, found, strict=True):
            self.executor.write(run.addresses[target["buffer"]], data)

    def _keep(self, source: types.TensorValue, target: types.TensorValue, run: Run) -> None:
        """Copies what stays on the GPU to tensors of its own: the next run uses the session's memory again."""
        for name in run.stay.intersection(self.outputs.get(target["buffer"], ())):
            gpu, dtype = self.executor.gpu, source["dtype"]
            held = gpu.hold(NUMPY[dtype], self._count(source, run))
            run.kept[name] = GpuTensor(held, dtype, self.executor.shape(self.can_stay[name], run.env))
            gpu.fill_held([(run.addresses[source["buffer"]], held)])

    def _goes_home(self, buffer: int, run: Run) -> bool:
        names = self.outputs.get(buffer)
        return names is None or not run.wanted.isdisjoint(set(names) - run.stay)

    def _make(self, step: CopyStep, run: Run, targets: list[types.TensorValue], memory: str = "") -> None:
        sizes = {t["buffer"]: self.executor.bytes_of(t["buffer"], run) for t in targets}
        self.executor.planner.take(run, ("copy", step.uid), sizes, memory)

    def _user(self, pairs: list[list[types.TensorValue]]) -> str:
        """The first node that makes or reads the tensors of a copy."""
        tensors = {value["buffer"] for pair in pairs for value in pair}
        calls = [c for b in self.executor.header["blocks"] for s in b["steps"] for c in calls_of(s)]
        return next((str(c["node"]) for c in calls if not tensors.isdisjoint(c["buffers"])), "")

    def _count(self, value: types.TensorValue, run: Run) -> int:
        return int(np.prod(self.executor.shape(value, run.env), dtype=np.int64))

    def result(self, name: str, value: types.Value, run: Run) -> Any:
        """An output: an array, or a GPU tensor wherever it was made."""
        if name in run.kept:
            return run.kept[name]
        x = self.executor.fetch(value, run)
        if name not in run.stay:
            return x
        held = self.executor.gpu.hold(x.dtype, x.size)
        tensor = GpuTensor(held, self.can_stay[name]["dtype"], x.shape)
        held.write(x)
        return tensor


def read_at_home(header: Mapping[str, Any]) -> Iterator[int]:
    """Buffers in linear memory that something other than a copy to the GPU reads."""
    for number, block in enumerate(header["blocks"]):
        values = list(block["outputs"]) if number > 1 else []
        for step in block["steps"]:
            if step["op"] == "wasm":
                yield from (b for call in step["calls"] for b in call["buffers"])
            elif step["op"] == "copy" and step["to"] == "wasm":
                values += [source for source, _ in step["pairs"]]
            else:
                values += [step.get(key) for key in ("value", "trip", "condition")]
                values += [v for key in ("inputs", "carried") for v in step.get(key, ())]
        yield from (b for v in values for b in buffers_of(v))


def buffers_of(value: types.Value) -> list[int]:
    if value is None:
        return []
    return [b for v in value["items"] for b in buffers_of(v)] if "items" in value else [value["buffer"]]


__all__ = ["Transfers"]
