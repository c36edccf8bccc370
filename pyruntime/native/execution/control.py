"""Runs If and Loop steps. Twin of web/run/control.js."""

from __future__ import annotations

import math
import struct
import time
from typing import Any

import numpy as np

from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.program.dims import Env
from pyruntime.runtime.repeats import LATEST, LEAST, MOST, SHORT, Repeats, repeats
from pyruntime.runtime.stacking import stacked_dims
from pyruntime.runtime.states import Change, State

_NUMBER = struct.Struct("<q")


def run_if(executor: Any, step: types.IfStep, state: State, key: str) -> State:
    values, plan = executor.values, executor.plan
    branch = step["then"] if values.fetch(step["condition"], state).item() else step["orelse"]
    made = executor.header["blocks"][branch]["outputs"]
    after = executor.run_block(branch, state)
    for value, output in zip(made, step["outputs"], strict=True):
        values.rename_host(value["buffer"], output)

    def join(change: Change) -> None:
        plan.bind(change, step["binds"], [values.shape(v, change.env) for v in made])
        for value, output in zip(made, step["outputs"], strict=True):
            change.rename(value["buffer"], output)
        change.drop(step["free"])

    result: State = plan.advance(after, f"{key}:join{branch}", join)
    return result


def run_loop(executor: Any, step: types.LoopStep, state: State, key: str) -> State:
    """Inputs of the body: iteration number, condition, carried values. Outputs of the body: condition, carried values,
    values to stack."""
    values = executor.values
    trips = math.inf if step["trip"] is None else values.fetch(step["trip"], state).item()
    condition = step["condition"] is None or bool(values.fetch(step["condition"], state).item())
    loop = _Loop(executor, step, key)
    state = loop.enter(state)
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
        state = executor.run_block(step["body"], loop.begin(state, n))
        condition = loop.collect(state)
        state = loop.end(state)
        n += 1
    return loop.leave(state)


class _Loop:
    """The state of a loop. Its carried values are in the body's input buffers between iterations."""

    def __init__(self, executor: Any, step: types.LoopStep, key: str) -> None:
        self.executor, self.step, self.key = executor, step, key
        self.values, self.plan = executor.values, executor.plan
        body = executor.header["blocks"][step["body"]]
        self.inputs = body["inputs"]
        self.turn = [v["buffer"] for v in self.inputs[:2] if v["buffer"] not in body["unused"]]
        self.unused = [b for b in body["unused"] if b not in [v["buffer"] for v in self.inputs[:2]]]
        self.condition, *self.made = body["outputs"]
        self.carried = len(step["carried"])
        # Values of all iterations, as arrays of a row for each of them; and the shape of each.
        self.stacks: list[list[np.ndarray]] = [[] for _ in self.made[self.carried :]]
        self.shapes: list[list[tuple[int, ...]]] = [[] for _ in self.stacks]
        self.scratch = [step["repeat"]["buffer"]] if "repeat" in step else []

    @property
    def enters(self) -> types.Binds:
        """The symbols that the body's inputs set; inputs are numbered by their position among the carried values."""
        return [[position - 2, axis, symbol] for position, axis, symbol in self.step["enters"]]

    def _shapes(self, values: list[types.TensorValue], env: Env) -> list[tuple[int, ...]]:
        return [self.values.shape(v, env) for v in values]

    def enter(self, state: State) -> State:
        """Copy the carried values, because the body owns them."""

        def change(change: Change) -> None:
            self.plan.bind(change, self.enters, self._shapes(self.step["carried"], state.env))
            for buffer in [*[v["buffer"] for v in self.inputs[2:]], *self.scratch]:
                self.plan.take(change, buffer)
            self._take_turn(change)

        initial = [self.values.fetch(v, state) for v in self.step["carried"]]
        after: State = self.plan.advance(state, f"{self.key}:enter", change)
        for value, x in zip(self.inputs[2:], initial, strict=True):
            self.values.write(after, value, x)
        return after

    def _take_turn(self, change: Change) -> None:
        """Allocate the iteration number and the condition of the next iteration, if the body uses them."""
        for buffer in self.turn:
            self.plan.take(change, buffer)

    def begin(self, state: State, n: int) -> State:
        """Write the iteration number and the condition."""
        for buffer in self.turn:
            address = self.plan.span(state, buffer).address
            if buffer == self.inputs[0]["buffer"]:
                _NUMBER.pack_into(self.executor.host.memory, address, n)
            else:
                self.executor.host.memory[address] = True
        if not self.unused:
            return state
        after: State = self.plan.advance(state, f"{self.key}:unused", lambda change: change.drop(self.unused))
        return after

    def collect(self, state: State) -> bool:
        """Copy the values to stack. Returns the condition."""
        for stack, shapes, value in zip(self.stacks, self.shapes, self.made[self.carried :], strict=True):
            stack.append(self.values.fetch(value, state))
            shapes.append(stack[-1].shape)
        return bool(self.executor.host.memory[self.plan.span(state, self.condition["buffer"]).address])

    def end(self, state: State) -> State:
        """The body's results become the carried values of the next iteration."""
        carried, targets = self.made[: self.carried], self.inputs[2:]
        strings = [self.values.hosts.get(v["buffer"]) for v in carried]  # all first: a round may swap values
        for x, target in zip(strings, targets, strict=True):
            if x is not None:
                self.values.hosts[target["buffer"]] = x

        def change(change: Change) -> None:
            change.drop([v["buffer"] for v in self.inputs])
            change.drop([v["buffer"] for v in (self.condition, *self.made[self.carried :])])
            for value, target in zip(carried, targets, strict=True):
                change.rename(value["buffer"], target["buffer"])
            self.plan.bind(change, self.enters, self._shapes(carried, state.env))
            self._take_turn(change)

        after: State = self.plan.advance_interned(state, f"{self.key}:end", change)
        return after

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
        for stack, shapes, (address, size) in zip(self.stacks, self.shapes, batches.rows, strict=True):
            dtype = stack[0].dtype
            stack.append(memory[address : address + steps * size].copy().view(dtype))
            shapes += [shapes[0]] * steps
        return steps, bool(memory[condition])

    def _write(self, address: int, words: list[int]) -> None:
        self.plan.memory.write_words(address, np.array(words, np.int64))

    def leave(self, state: State) -> State:
        """The carried values and the stacks become the outputs."""
        step, carried = self.step, self.carried
        results, scanned = step["outputs"][:carried], step["outputs"][carried:]
        stacked = [stacked_dims(m, len(v["dims"]), step["node"]) for m, v in zip(self.shapes, scanned, strict=True)]
        for value, result in zip(self.inputs[2:], results, strict=True):
            self.values.rename_host(value["buffer"], result["buffer"])

        def change(change: Change) -> None:
            known = self._shapes(self.inputs[2:], state.env)
            self.plan.bind(change, step["binds"], [*known, *stacked])
            for value, result in zip(self.inputs[2:], results, strict=True):
                change.rename(value["buffer"], result["buffer"])
            for value in scanned:
                self.plan.take(change, value["buffer"])
            change.drop([*self.turn, *self.scratch, *step["free"]])

        after: State = self.plan.advance(state, f"{self.key}:leave{stacked}", change)
        for value, stack in zip(scanned, self.stacks, strict=True):
            if value["buffer"] in step["free"]:  # nothing reads it
                continue
            none = np.zeros(0, object if value["dtype"] == "string" else NUMPY[value["dtype"]])
            self.values.write(after, value, np.concatenate([none, *[x.reshape(-1) for x in stack]]))
        return after
