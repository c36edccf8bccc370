"""The states that Loop and If steps lead to: which buffers they take, free and rename, and where strings go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.errors import ExecutionError
from pyruntime.program.dims import Env
from pyruntime.program.types import IfStep, LoopStep, TensorValue
from pyruntime.runtime.planner import Planner, buffers_of
from pyruntime.runtime.states import Change, State

Shape = Callable[[TensorValue, Env], Sequence[int]]


def after_branch(
    plan: Planner, step: IfStep, branch: int, state: State, key: str, shape: Shape, hosts: dict[int, Any]
) -> State:  # fmt: skip
    """The state after a branch of an If, whose outputs become those of the step. state: after the branch's steps; key:
    of the step; shape: of a value; hosts: strings by buffer"""
    made = plan.header["blocks"][branch]["outputs"]
    pass_strings(hosts, made, step["outputs"])

    def join(change: Change) -> None:
        plan.bind(change, step["binds"], [shape(v, change.env) for v in made])
        rename(change, made, step["outputs"])
        change.drop(step["free"])

    return plan.advance(state, f"{key}:join{branch}", join)


class LoopStates:
    """The states of one Loop in a run. Its carried values are in the body's input buffers between iterations.

    plan, step, key, shape, hosts: as of `after_branch`
    turn: buffers of the number of the iteration, `number`, and of its condition, if the body uses them; inputs: of the
    body, for carried values; condition, made, stacked: its outputs: whether the loop goes on, carried values, and
    values to stack; stacks: the loop's outputs for these"""

    def __init__(self, plan: Planner, step: LoopStep, key: str, shape: Shape, hosts: dict[int, Any]) -> None:
        body = plan.header["blocks"][step["body"]]
        carried = len(step["carried"])
        first = buffers_of(body["inputs"][:2])
        self.plan = plan
        self.step = step
        self.key = key
        self.number = first[0]
        self.turn = [b for b in first if b not in body["unused"]]
        self.inputs = body["inputs"][2:]
        self.condition = body["outputs"][0]
        self.made = body["outputs"][1 : 1 + carried]
        self.stacked = body["outputs"][1 + carried :]
        self.stacks = step["outputs"][carried:]
        self._results = buffers_of(step["outputs"][:carried])
        self._targets = buffers_of(self.inputs)
        self._ended = buffers_of([*body["inputs"], self.condition, *self.stacked])
        self._unused = [b for b in body["unused"] if b not in first]
        self._owned = [*([step["repeat"]["buffer"]] if "repeat" in step else []), *self.turn]
        self._shape = shape
        self._hosts = hosts

    def enter(self, state: State) -> State:
        """The state with buffers for the carried values: the host copies these, because the body owns them."""

        def take(change: Change) -> None:
            self._bind(change, self.step["carried"])
            self.plan.take(change, [*self._targets, *self._owned])

        return self.plan.advance(state, f"{self.key}:enter", take)

    def begin(self, state: State) -> State:
        """The state in which an iteration begins."""
        if len(self._unused) == 0:
            return state
        return self.plan.advance(state, f"{self.key}:unused", lambda change: change.drop(self._unused))

    def end(self, state: State) -> State:
        """The body's results become the carried values of the next iteration."""
        pass_strings(self._hosts, self.made, self._targets)

        def turn(change: Change) -> None:
            self._bind(change, self.made)
            change.drop(self._ended)
            rename(change, self.made, self._targets)
            self.plan.take(change, self.turn)

        return self.plan.advance_interned(state, f"{self.key}:end", turn)

    def leave(self, state: State, shapes: list[list[Sequence[int]]]) -> State:
        """The carried values and the stacks become the outputs. shapes: of each stacked value in each iteration.
        Errors: ExecutionError if they differ"""
        node = self.step["node"]
        stacked = [stacked_dims(s, len(v["dims"]), node) for s, v in zip(shapes, self.stacks, strict=True)]
        pass_strings(self._hosts, self.inputs, self._results)

        def leave(change: Change) -> None:
            carried = [self._shape(v, change.env) for v in self.inputs]
            self.plan.bind(change, self.step["binds"], [*carried, *stacked])
            rename(change, self.inputs, self._results)
            self.plan.take(change, buffers_of(self.stacks))
            change.drop([*self._owned, *self.step["free"]])

        texts = "/".join([dims_text(dims) for dims in stacked])
        return self.plan.advance(state, f"{self.key}:leave{texts}", leave)

    def _bind(self, change: Change, values: list[TensorValue]) -> None:
        """values: those that the body's inputs get, after the number and the condition, which set no symbols"""
        self.plan.bind(change, self.step["enters"], [[], [], *[self._shape(v, change.env) for v in values]])


def rename(change: Change, values: list[TensorValue], targets: list[int]) -> None:
    for n, value in enumerate(values):
        change.rename(value["buffer"], targets[n])


def pass_strings(hosts: dict[int, Any], values: list[TensorValue], targets: list[int]) -> None:
    """Move strings to other buffers: all at once, because they may change places."""
    found = [hosts.get(v["buffer"]) for v in values]
    for n, strings in enumerate(found):
        if strings is not None:
            hosts[targets[n]] = strings


def stacked_dims(shapes: Sequence[Sequence[int]], rank: int, node: str) -> list[int]:
    """The dims of a stack along a new first axis. shapes: of the value in each iteration; without iterations, the dims
    are 0; rank: of the stack. Errors: ExecutionError if the shapes differ."""
    if len(shapes) == 0:
        return [0] * rank
    first = shapes[0]
    for n, shape in enumerate(shapes):
        if shape != first:
            text = f"values of shapes [{dims_text(first)}] and [{dims_text(shape)}] (iteration {n}) cannot be stacked"
            raise ExecutionError(text, node=node)
    return [len(shapes), *first]


def dims_text(shape: Sequence[int]) -> str:
    return ", ".join([str(n) for n in shape])
