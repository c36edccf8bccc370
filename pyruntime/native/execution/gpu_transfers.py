"""Copies between linear memory and the GPU in a run, without those that GPU tensors make unnecessary.

web/gpu/transfers.js is its twin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import PyRuntimeError
from pyruntime.native.execution.faults import raise_fault
from pyruntime.native.execution.values import Values
from pyruntime.native.gpu.tensor import TYPES, GpuTensor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.native.memory.planner import Run, Step, calls_of
from pyruntime.program import types

CopyStep = Step[types.CopyStep]


class Transfers:
    """Of one executor. gpu: None without one."""

    def __init__(self, values: Values, gpu: Any) -> None:
        self.values = values
        self.gpu = gpu
        header = values.header
        read = set(read_in_linear_memory(header))
        result_buffers = {b for o in header["outputs"] for b in buffers_of(o["value"])}
        copies = [s for s in header["blocks"][1]["steps"] if s["op"] == "copy" and s["to"] == "wasm"]
        copied = {target["buffer"] for s in copies for _, target in s["pairs"]}
        self.inputs = {i["buffer"] for i in header["inputs"]} - read - result_buffers  # only the GPU reads these
        self.outputs: dict[int, list[str]] = {}  # names of outputs, by buffers that are copied for outputs alone
        for o in header["outputs"]:
            for b in buffers_of(o["value"]):
                if b in copied and b not in read:
                    self.outputs.setdefault(b, []).append(o["name"])
        self.can_stay = {
            o["name"]: v for o in header["outputs"] if (v := o["value"]) and "dtype" in v and v["dtype"] in TYPES
        }

    def begin(
        self, run: Run, feeds: Sequence[tuple[int, Any]], names: Collection[str], on_gpu: Collection[str]
    ) -> list[tuple[int, Any]]:
        """The feeds, by buffer, that linear memory needs. names: of the outputs that the caller asked for; on_gpu: of
        those that stay on the GPU."""
        run.names = set(names)
        run.on_gpu = self.can_stay.keys() & set(on_gpu) if self.gpu is not None else set()
        arrays: list[tuple[int, Any]] = []
        for buffer, x in feeds:
            if not isinstance(x, GpuTensor):
                arrays.append((buffer, x))
            elif self.gpu is not None and buffer in self.inputs:
                run.gpu_feeds[buffer] = x.memory(self.gpu.host.own)
            else:
                arrays.append((buffer, x.stored()))
        return arrays

    def end(self) -> None:
        """Submit all commands."""
        if self.gpu is not None:
            self.gpu.host.flush()

    def abandon(self) -> None:
        """Drop the commands of a run that failed."""
        if self.gpu is not None:
            self.gpu.host.abandon()

    def copy(self, step: CopyStep, run: Run) -> None:
        """Copy tensors into the other memory."""
        try:
            (self._to_linear if step.json["to"] == "wasm" else self._to_gpu)(step, run)
        except PyRuntimeError as e:
            raise e.at(self._user(step.json["pairs"])) from e.__cause__
        self.values.release(step, run)

    def _to_gpu(self, step: CopyStep, run: Run) -> None:
        self._allocate(step, run, [target for _, target in step.json["pairs"]], "webgpu")
        from_tensors = []
        for source, target in step.json["pairs"]:
            address = run.addresses[target["buffer"]]
            if source["buffer"] in run.gpu_feeds:
                from_tensors.append((address, run.gpu_feeds[source["buffer"]]))
            else:
                self.gpu.write(address, self.values.fetch(source, run))
        self.gpu.copy_from_tensors(from_tensors)

    def _to_linear(self, step: CopyStep, run: Run) -> None:
        pairs = step.json["pairs"]
        for source, target in pairs:
            self._keep_on_gpu(source, target, run)
        pairs = [pair for pair in pairs if self._is_needed(pair[1]["buffer"], run)]
        self._allocate(step, run, [target for _, target in pairs])
        places = [(run.addresses[s["buffer"]], NUMPY[s["dtype"]], self._count(s, run)) for s, _ in pairs]
        arrays = self.gpu.read(places)
        if record := self.gpu.take_fault():
            raise_fault(record, self.values.header["checked"])
        for (_, target), data in zip(pairs, arrays, strict=True):
            self.values.write(run.addresses[target["buffer"]], data)

    def _keep_on_gpu(self, source: types.TensorValue, target: types.TensorValue, run: Run) -> None:
        """Copy an output that stays on the GPU to a tensor, because the next run uses the session's memory again."""
        for name in run.on_gpu.intersection(self.outputs.get(target["buffer"], ())):
            dtype = source["dtype"]
            memory = self.gpu.tensor_memory(NUMPY[dtype], self._count(source, run))
            run.gpu_results[name] = GpuTensor(memory, dtype, self.values.shape(self.can_stay[name], run.env))
            self.gpu.copy_to_tensors([(run.addresses[source["buffer"]], memory)])

    def _is_needed(self, buffer: int, run: Run) -> bool:
        names = self.outputs.get(buffer)
        return names is None or not run.names.isdisjoint(set(names) - run.on_gpu)

    def _allocate(self, step: CopyStep, run: Run, targets: list[types.TensorValue], memory: str = "") -> None:
        sizes = {t["buffer"]: self.values.size(t["buffer"], run.env) for t in targets}
        self.values.planner.allocate(run, ("copy", step.uid), sizes, memory)

    def _user(self, pairs: list[list[types.TensorValue]]) -> str:
        """The first node that makes or reads the tensors of a copy."""
        tensors = {value["buffer"] for pair in pairs for value in pair}
        calls = [c for b in self.values.header["blocks"] for s in b["steps"] for c in calls_of(s)]
        return next((str(c["node"]) for c in calls if not tensors.isdisjoint(c["buffers"])), "")

    def _count(self, value: types.TensorValue, run: Run) -> int:
        return int(np.prod(self.values.shape(value, run.env), dtype=np.int64))

    def result(self, name: str, value: types.Value, run: Run) -> Any:
        """An output: an array, or a GPU tensor, even if it was computed in linear memory."""
        if name in run.gpu_results:
            return run.gpu_results[name]
        x = self.values.fetch(value, run)
        if name not in run.on_gpu:
            return x
        memory = self.gpu.tensor_memory(x.dtype, x.size)
        tensor = GpuTensor(memory, self.can_stay[name]["dtype"], x.shape)
        memory.write(x)
        return tensor


def read_in_linear_memory(header: Mapping[str, Any]) -> Iterator[int]:
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
