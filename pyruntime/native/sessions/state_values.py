"""The states of a session: weights that its runs change. One executor at a time has their values.

web/worker/models/state_values.js is its twin (docs/design/training.md)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import numpy as np

from pyruntime.errors import PyRuntimeError, SessionFailed
from pyruntime.native.execution.executor import Executor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.runtime.arena import GPU
from pyruntime.runtime.output_paths import MAIN

Values = dict[str, np.ndarray]


class StateValues:
    """holder: the executor that has the current values; kept: values by name, without those that are as at the start;
    is_current: whether `kept` has the holder's values, so that a fault of the next step loses none; spoiled: an
    executor whose values a step has changed in part; lost: why there are no values that belong to one step, or "" """

    def __init__(self) -> None:
        self.holder: Executor | None = None
        self.kept: Values = {}
        self.is_current = True
        self.spoiled: Executor | None = None
        self.lost = ""

    @contextmanager
    def during_run(self, executor: Executor, names: Collection[str]) -> Iterator[None]:
        """A run of an executor for these outputs. Errors: SessionFailed if the values are lost."""
        if "states" not in executor.header:
            yield
            return
        self.enter(executor)
        executor.changing, executor.has_changed_states = changing(executor.header, names), False
        try:
            yield
        except BaseException as error:
            if executor.has_changed_states and not getattr(error, "has_kept_states", False):
                self._spoil(executor, f"a step ended in the middle: {error}")
            raise
        if executor.has_changed_states and self.is_current:
            self.is_current = False
            self.kept = {n: x for n, x in self.kept.items() if n not in executor.header["states"]}

    def enter(self, executor: Executor) -> None:
        """Give an executor the current values."""
        self._require_values()
        if self.holder is executor:
            return
        if self.holder is not None:
            self.leave(self.holder)
        states = executor.header.get("states", {})
        filled = {c["buffer"] for c in executor.header["constants"] if "zeros" in c}
        zeros = {
            n: np.zeros(cast("list[int]", v["dims"]), v["dtype"]) for n, v in states.items() if v["buffer"] in filled
        }
        values = {**zeros, **self.kept}
        if executor is self.spoiled and not values.keys() >= states.keys():
            self.lose("the first step ended in the middle")
            self._require_values()
        write(executor, values)
        self.holder, self.is_current, self.spoiled = executor, True, None

    def _spoil(self, executor: Executor, why: str) -> None:
        """A step has changed values of the executor in part."""
        if self.is_current:
            self.holder, self.spoiled = None, executor
        else:
            self.lose(why)

    def leave(self, executor: Executor) -> None:
        """Take the values from an executor that is about to lose its memory."""
        if self.holder is executor:
            self.kept = {**self.kept, **read(executor)}
            self.holder = None

    def drop(self, executors: Collection[Executor]) -> None:
        """These executors are gone; their GPU may be lost."""
        if self.holder is not None and self.holder in executors:
            holder = self.holder
            if self.is_current:
                self.holder = None
                return
            try:
                self.leave(holder)
            except PyRuntimeError as error:
                self.holder = None
                self.lose(f"the GPU that had them is gone ({error.message})")

    def lose(self, why: str) -> None:
        self.lost = self.lost or why

    def read(self) -> Values:
        """Copies of the current values, by name, as far as they are not as at the start. Errors: SessionFailed"""
        self._require_values()
        return dict(self.kept) if self.holder is None else {**self.kept, **read(self.holder)}

    def update(self, values: Mapping[str, np.ndarray]) -> None:
        """Replace some values. Errors: SessionFailed"""
        self._require_values()
        if self.holder is not None:
            write(self.holder, values)
        self.kept = {**self.kept, **values}

    def replace(self, values: Mapping[str, np.ndarray]) -> None:
        """Replace all values; those that are not given become zeros."""
        self.holder, self.kept, self.spoiled, self.lost = None, dict(values), None, ""

    def _require_values(self) -> None:
        if self.lost:
            hint = "load a checkpoint, or create the session again"
            raise SessionFailed(f"the weights are lost: {self.lost}", hint=hint)


def changing(header: types.Header, names: Collection[str]) -> set[str]:
    """Names of the steps that change states in a run for these outputs."""
    states = {b for o in header["outputs"] if o["name"] in names for b in o.get("updates", ())}
    steps = [s for s in header["blocks"][MAIN]["steps"] if s["op"] in ("wasm", "gpu")] if states else []
    return {s["fn"] for s in steps for c in s["calls"] if not states.isdisjoint(c.get("updates", ()))}


def read(executor: Executor) -> Values:
    """Copies of an executor's states."""
    return {name: _fetch(executor, v) for name, v in executor.header.get("states", {}).items()}


def write(executor: Executor, values: Mapping[str, np.ndarray]) -> None:
    """Write an executor's states; names that it does not have are those of other Programs."""
    states = executor.header.get("states", {})
    for name, x in values.items():
        if name in states:
            _put(executor, states[name], x)


def _fetch(executor: Executor, value: types.TensorValue) -> np.ndarray:
    span = executor.plan.span(executor.plan.root, value["buffer"])
    if span.address < GPU:
        found: np.ndarray = executor.values.fetch(value, executor.plan.root)
        return found
    shape = executor.values.shape(value, {})
    (data,) = executor.gpu.read([(span.address, NUMPY[value["dtype"]], math.prod(shape))])
    return np.asarray(data).reshape(shape)


def _put(executor: Executor, value: types.TensorValue, x: np.ndarray) -> None:
    data = np.ascontiguousarray(x, NUMPY[value["dtype"]])
    span = executor.plan.span(executor.plan.root, value["buffer"])
    if span.address < GPU:
        executor.values.write(executor.plan.root, value, data)
    else:
        executor.gpu.write(span.address, data)
