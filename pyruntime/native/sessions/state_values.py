"""Reads and writes the states of native executors (docs/design/training.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pyruntime.native.execution.executor import Executor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.native.sessions.stored_arrays import stored_of
from pyruntime.program import types
from pyruntime.runtime.arena import GPU
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.state_values import StateValues


class NativeStates(StateValues[Executor]):
    def fetch(self, executor: Executor) -> dict[str, Stored]:
        return {name: stored_of(_fetch(executor, v)) for name, v in executor.header.get("states", {}).items()}

    def put(self, executor: Executor, values: Mapping[str, Stored]) -> None:
        states = executor.header.get("states", {})
        for name, t in values.items():
            if name in states:
                _put(executor, states[name], t)


def _fetch(executor: Executor, value: types.TensorValue) -> np.ndarray:
    span = executor.plan.span(executor.plan.root, value["buffer"])
    if span.address < GPU:
        found: np.ndarray = executor.values.fetch(value, executor.plan.root)
        return found
    shape = executor.values.shape(value, {})
    (data,) = executor.gpu.read([(span.address, NUMPY[value["dtype"]], math.prod(shape))])
    return np.asarray(data).reshape(shape)


def _put(executor: Executor, value: types.TensorValue, t: Stored) -> None:
    data = np.frombuffer(t.data, NUMPY[value["dtype"]]).reshape(t.shape)
    span = executor.plan.span(executor.plan.root, value["buffer"])
    if span.address < GPU:
        executor.values.write(executor.plan.root, value, data)
    else:
        executor.gpu.write(span.address, data)
