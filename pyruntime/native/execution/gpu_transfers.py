"""Copies between linear memory and the GPU in a run, without those that GPU tensors make unnecessary.
Twin of web/gpu/transfers.js."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import PyRuntimeError
from pyruntime.native.execution.gpu_caches import GpuCaches
from pyruntime.native.execution.values import Values
from pyruntime.native.gpu.tensor import TYPES, GpuTensor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.program.dims import Env
from pyruntime.runtime.growth import ByteRanges
from pyruntime.runtime.states import Change, State


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
        self.names: set[str] = set()  # of this run: outputs to return
        self.on_gpu: set[str] = set()  # those of them that stay on the GPU
        self.gpu_feeds: dict[int, Any] = {}  # feeds on the GPU, by buffer
        self.gpu_results: dict[str, GpuTensor] = {}
        self.caches = GpuCaches(values, gpu, self.inputs if gpu is not None else ())

    def begin_run(
        self, feeds: Sequence[tuple[int, Any]], names: Collection[str], on_gpu: Collection[str], env: Env
    ) -> dict[int, np.ndarray]:
        """The feeds, by buffer, that linear memory needs. names: of the outputs that the caller asked for; on_gpu: of
        those that stay on the GPU; env: gets the capacities of caches that the GPU grows."""
        if self.gpu is None:
            return {buffer: x.stored() if isinstance(x, GpuTensor) else x for buffer, x in feeds}
        self.names = set(names)
        self.on_gpu = self.can_stay.keys() & self.names.intersection(on_gpu)
        arrays: dict[int, np.ndarray] = {}
        caches = self.caches.begin(feeds, self.on_gpu, env)
        for buffer, x in feeds:
            if buffer in caches:
                continue
            if not isinstance(x, GpuTensor):
                arrays[buffer] = x
            elif buffer in self.inputs:
                self.gpu_feeds[buffer] = x.memory(self.gpu.host.own), x.ranges()
            else:
                arrays[buffer] = x.stored()
        return arrays

    def end_run(self) -> None:
        """Submit all commands."""
        if self.gpu is not None:
            self._release()
            self.gpu.host.flush()

    def abandon(self) -> None:
        """Drop the commands of a run that failed."""
        if self.gpu is not None:
            self.caches.abandon()
            self._release()
            self.gpu.host.abandon()

    def _release(self) -> None:
        """Let go of the run's GPU tensors, so that their memory is freed with the caller's last reference."""
        self.gpu_feeds, self.gpu_results = {}, {}
        self.caches.end()
        self.gpu.release_borrowed()

    def run(self, step: types.CopyStep, state: State, key: str) -> State:
        """Copy tensors into the other memory."""
        plan = self.values.plan
        to_linear = step["to"] == "wasm"
        own = {} if to_linear else {t["buffer"]: m for s, t in step["pairs"] if (m := self._own(s, state)) is not None}
        unused = [t["buffer"] for _, t in step["pairs"] if not self._is_needed(t["buffer"])] if to_linear else [*own]

        def change(change: Change) -> None:
            for _, target in step["pairs"]:
                if target["buffer"] in unused:
                    change.take(target["buffer"], 0, plan.is_on_gpu(target["buffer"]))
                else:
                    plan.take(change, [target["buffer"]])
            change.drop(step["free"])

        try:
            after = plan.advance(state, f"{key}{unused}" if unused else key, change)
            if to_linear:
                self._to_linear(step, state, after)
            else:
                self.gpu.host.borrowed.update(own)
                self._to_gpu([pair for pair in step["pairs"] if pair[1]["buffer"] not in own], state, after)
        except PyRuntimeError as e:
            raise e.at(self._user(step["pairs"])) from e.__cause__
        return after

    def _own(self, source: types.TensorValue, state: State) -> Any:
        """The memory of a tensor in which its copy on the GPU lies; None if that is the session's."""
        return self.caches.memory(source["buffer"], state.env)

    def _to_gpu(self, pairs: Sequence[Sequence[types.TensorValue]], state: State, after: State) -> None:
        from_tensors = []
        for source, target in pairs:
            address = self.values.plan.span(after, target["buffer"]).address
            if source["buffer"] in self.gpu_feeds:
                from_tensors.append((address, *self.gpu_feeds[source["buffer"]]))
            else:
                self.gpu.write(address, self.values.fetch(source, state))
        self.gpu.copy_from_tensors(from_tensors)

    def _to_linear(self, step: types.CopyStep, state: State, after: State) -> None:
        pairs = [pair for pair in step["pairs"] if self._is_needed(pair[1]["buffer"])]
        for source, target in step["pairs"]:
            self._keep_on_gpu(source, target, state)
        plan, own = self.values.plan, self.gpu.host.borrowed
        arrays = self.gpu.read(
            [
                (plan.span(state, s["buffer"]).address, NUMPY[s["dtype"]], self._count(s, state))
                for s, _ in pairs
                if s["buffer"] not in own
            ]
        )
        if fault := self.gpu.take_fault():
            error = self.values.fault(*fault)
            error.has_kept_states = True
            raise error
        rest = iter(arrays)
        for source, target in pairs:
            memory = own.get(source["buffer"])
            if memory is None:
                data = next(rest)
            else:
                self.gpu.host.flush()
                data = memory.read(NUMPY[source["dtype"]], ByteRanges(1, memory.size, memory.size, memory.size))
            self.values.write(after, target, data)

    def _keep_on_gpu(self, source: types.TensorValue, target: types.TensorValue, state: State) -> None:
        """Copy an output that stays on the GPU to a tensor, because the next run uses the session's memory again."""
        for name in self.on_gpu.intersection(self.outputs.get(target["buffer"], ())):
            kept = self.caches.result(name, state.env)
            if kept is not None:
                self.gpu_results[name] = kept
                continue
            if self._has_room(name):
                continue  # `result` makes it dense
            dtype = source["dtype"]
            memory = self.gpu.tensor_memory(NUMPY[dtype], self._count(source, state))
            self.gpu_results[name] = GpuTensor(memory, dtype, self.values.shape(self.can_stay[name], state.env))
            self.gpu.copy_to_tensors([(self.values.plan.span(state, source["buffer"]).address, memory)])

    def _has_room(self, name: str) -> bool:
        return "room" in self.can_stay[name]

    def _is_needed(self, buffer: int) -> bool:
        names = self.outputs.get(buffer)
        if names is None:
            return True
        stays = {n for n in self.on_gpu if not self._has_room(n) or self.caches.keeps(n)}
        return not self.names.isdisjoint(set(names) - stays)

    def _user(self, pairs: list[list[types.TensorValue]]) -> str:
        """The first node that makes or reads the tensors of a copy."""
        tensors = {value["buffer"] for pair in pairs for value in pair}
        steps = [s for b in self.values.header["blocks"] for s in b["steps"]]
        calls = [c for s in steps if "calls" in s for c in s["calls"]]
        return next((str(c["node"]) for c in calls if not tensors.isdisjoint(c["buffers"])), "")

    def _count(self, value: types.TensorValue, state: State) -> int:
        return math.prod(self.values.shape(value, state.env))

    def result(self, name: str, value: types.Value, state: State) -> Any:
        """An output: an array, or a GPU tensor, even if it was computed in linear memory."""
        if name in self.gpu_results:
            return self.gpu_results[name]
        x = self.values.fetch(value, state)
        if name not in self.on_gpu:
            return x
        memory = self.gpu.tensor_memory(x.dtype, x.size)
        tensor = GpuTensor(memory, self.can_stay[name]["dtype"], x.shape)
        memory.write(x, tensor.ranges())
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
