"""Runs If and Loop steps. Twin of web/run/control.js."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.runtime.loop_states import LoopStates, after_branch
from pyruntime.runtime.repeats import LATEST, LEAST, MOST, SHORT, Repeats, repeats
from pyruntime.runtime.states import State

_NUMBER = struct.Struct("<q")


def run_if(executor: Any, step: types.IfStep, state: State, key: str) -> State:
    values = executor.values
    branch = step["then"] if values.fetch(step["condition"], state).item() else step["orelse"]
    after = executor.run_block(branch, state)
    return after_branch(executor.plan, step, branch, after, key, values.shape, values.hosts)


def run_loop(executor: Any, step: types.LoopStep, state: State, key: str) -> State:
    """Inputs of the body: iteration number, condition, carried values. Outputs of the body: condition, carried values,
    values to stack."""
    values = executor.values
    trips = math.inf if step["trip"] is None else values.fetch(step["trip"], state).item()
    condition = step["condition"] is None or bool(values.fetch(step["condition"], state).item())
    loop = _Loop(executor, step, key)
    state = loop.start(state)
    n = 0
    batches: Repeats | None = None
    while n < trips and condition:
        if batches is None and n < LATEST and trips - n >= LEAST:
            batches = loop.batches(state)
        if batches is not None:
            steps, condition = loop.repeat(batches, n, trips)
            state = batches.state
            n += steps
            continue
        state = executor.run_block(step["body"], loop.next(state, n))
        condition = loop.collect(state)
        state = loop.end(state)
        n += 1
    return loop.finish(state)


class _Loop(LoopStates):
    """With the values that it stacks: `rows` of each iteration, and their `shapes`."""

    def __init__(self, executor: Any, step: types.LoopStep, key: str) -> None:
        super().__init__(executor.plan, step, key, executor.values.shape, executor.values.hosts)
        self.executor, self.values = executor, executor.values
        self.rows: list[list[np.ndarray]] = [[] for _ in self.stacked]
        self.shapes: list[list[Sequence[int]]] = [[] for _ in self.stacked]

    def start(self, state: State) -> State:
        """Copy the carried values, because the body owns them."""
        initial = [self.values.fetch(v, state) for v in self.step["carried"]]
        after = self.enter(state)
        for value, x in zip(self.inputs, initial, strict=True):
            self.values.write(after, value, x)
        return after

    def next(self, state: State, n: int) -> State:
        """Write the iteration number and the condition."""
        for buffer in self.turn:
            address = self.plan.span(state, buffer).address
            if buffer == self.number:
                _NUMBER.pack_into(self.executor.host.memory, address, n)
            else:
                self.executor.host.memory[address] = True
        return self.begin(state)

    def collect(self, state: State) -> bool:
        """Copy the values to stack. Returns the condition."""
        for rows, shapes, value in zip(self.rows, self.shapes, self.stacked, strict=True):
            rows.append(self.values.fetch(value, state))
            shapes.append(rows[-1].shape)
        return bool(self.executor.host.memory[self.plan.span(state, self.condition["buffer"]).address])

    def batches(self, state: State) -> Repeats | None:
        """Batches of steps inside WebAssembly from this state on, if they are possible."""
        executor, step = self.executor, self.step
        if "repeat" not in step or step["repeat"]["fn"] not in executor.functions or executor.timings is not None:
            return None
        address = self.plan.span(state, step["repeat"]["buffer"]).address
        found = repeats(self.plan, step, self.key, state, address, SHORT / 1000, executor.has_threads)
        if found is not None:
            self._write(found.first, found.words)
        return found

    def repeat(self, batches: Repeats, n: int, trips: float) -> tuple[int, bool]:
        """Run a batch of steps from step n on. Returns the number of its steps, and the condition."""
        executor, memory = self.executor, self.executor.host.memory
        executor.check()
        self._write(batches.address, batches.begin(n, int(min(trips - n, MOST))))
        start = time.perf_counter()
        steps = executor.functions[self.step["repeat"]["fn"]](batches.address)
        condition = batches.took(steps, 1000 * (time.perf_counter() - start))
        executor.check_faults()
        for rows, shapes, (address, size) in zip(self.rows, self.shapes, batches.rows, strict=True):
            dtype = rows[0].dtype
            rows.append(memory[address : address + steps * size].copy().view(dtype))
            shapes += [shapes[0]] * steps
        return steps, bool(memory[condition])

    def _write(self, address: int, words: list[int]) -> None:
        self.plan.memory.write_words(address, np.array(words, np.int64))

    def finish(self, state: State) -> State:
        after = self.leave(state, self.shapes)
        for value, rows in zip(self.stacks, self.rows, strict=True):
            if value["buffer"] in self.step["free"]:  # nothing reads it
                continue
            none = np.zeros(0, object if value["dtype"] == "string" else NUMPY[value["dtype"]])
            self.values.write(after, value, np.concatenate([none, *[x.reshape(-1) for x in rows]]))
        return after
