"""Reads and writes the states of native executors (docs/design/training.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np

from pyruntime.native.execution.executor import Executor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.runtime.arena import GPU
from pyruntime.training.session.state_values import StateValues


class NativeStates(StateValues[Executor, np.ndarray]):
    def fetch(self, executor: Executor) -> dict[str, np.ndarray]:
        return {name: _fetch(executor, v) for name, v in executor.header.get("states", {}).items()}

    def put(self, executor: Executor, values: Mapping[str, np.ndarray]) -> None:
        states = executor.header.get("states", {})
        for name, x in values.items():
            if name in states:
                _put(executor, states[name], x)

    def zeros(self, value: types.TensorValue) -> np.ndarray:
        return np.zeros(cast("list[int]", value["dims"]), value["dtype"])


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
