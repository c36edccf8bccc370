"""Values of a run in an executor's linear memory: reads and writes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.errors import ExecutionError, ShapeError, out_of_range
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.program.dims import Env, compile_dim, compile_dims
from pyruntime.runtime.growth import ByteRanges, byte_ranges
from pyruntime.runtime.planner import Planner
from pyruntime.runtime.states import State

VIEWS = 1024  # of tensors in memory, at most


class Values:
    """Those of one Program in one memory. host: the linear memory; plan: gives addresses in it; hosts: strings of the
    current run, by buffer."""

    def __init__(self, header: types.Header, host: Any, plan: Planner) -> None:
        self.header = header
        self.host = host
        self.plan = plan
        self.hosts: dict[int, Any] = {}
        self._shapes: dict[int, Callable[[Env], tuple[int, ...]]] = {}
        self._views: dict[tuple[State, int], np.ndarray] = {}  # by state and value, of this memory
        self._memory: Any = None

    def shape(self, value: types.Input | types.TensorValue, env: Env) -> tuple[int, ...]:
        found = self._shapes.get(id(value))
        if found is None:  # header values live as long as the executor does
            found = self._shapes[id(value)] = compile_dims(value["dims"])
        shape = found(env)
        if min(shape, default=0) < 0:
            raise ShapeError(f"an output cannot have the shape {list(shape)}")
        return shape

    def fetch(self, value: types.Value, state: State) -> Any:
        """A copy of a value: an array, a list of them for a sequence, None for an empty optional."""
        if value is None:
            return None
        if "items" in value:
            return [self.fetch(v, state) for v in value["items"]]
        if value["buffer"] in self.hosts:
            return np.array(self.hosts[value["buffer"]], dtype=object).reshape(self.shape(value, state.env))
        if "room" in value:
            shape = self.shape(value, state.env)
            return self._rows(value, state).copy().view(NUMPY[value["dtype"]]).reshape(shape)
        return self.view(value, state).copy()

    def view(self, value: types.Input | types.TensorValue, state: State) -> np.ndarray:
        """A tensor in linear memory that fills its buffer; no copy. Made once for each state."""
        if self._memory is not self.host.memory or len(self._views) > VIEWS:
            self._views, self._memory = {}, self.host.memory
        key = state, id(value)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self.new_view(value, state)
        return found

    def new_view(self, value: types.Input | types.TensorValue, state: State) -> np.ndarray:
        """Of the caller's own."""
        shape, dtype = self.shape(value, state.env), NUMPY[value["dtype"]]
        address = self.plan.span(state, value["buffer"]).address
        return self.host.memory[address : address + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def write(self, state: State, value: types.Input | types.TensorValue, x: np.ndarray) -> None:
        """Write a tensor into its buffer. Strings stay outside memory."""
        if "host" in self.header["buffers"][value["buffer"]]:
            self.hosts[value["buffer"]] = x
        elif "room" in value:
            rows = self._rows(value, state)
            rows[...] = np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(rows.shape)
        else:
            view = self.view(value, state)
            view[...] = x.reshape(view.shape)

    def _rows(self, value: types.Input | types.TensorValue, state: State) -> np.ndarray:
        """The bytes of a tensor whose buffer has capacity for more rows along an axis, a line for each byte range; no
        copy."""
        shape, item = self.shape(value, state.env), NUMPY[value["dtype"]].itemsize
        ranges = byte_ranges(shape, value["room"]["axis"], compile_dim(value["room"]["places"])(state.env), item)
        if ranges.count * ranges.stride > self.plan.size(state.env, value["buffer"]):
            raise ShapeError(f"a tensor of shape {list(shape)} does not fit its buffer")
        return self.lines(self.plan.span(state, value["buffer"]).address, ranges)

    def lines(self, address: int, ranges: ByteRanges) -> np.ndarray:
        """Byte ranges in memory as the lines of an array; no copy."""
        whole = self.host.memory[address : address + ranges.count * ranges.stride]
        return whole.reshape(ranges.count, ranges.stride)[:, : ranges.length]

    def fault(self, node: int, extent: int, index: int) -> ExecutionError:
        """The error that a fault record describes. node: the number of a node whose indices are checked, from 1 on"""
        checked = self.header["checked"]
        return out_of_range(checked[node - 1] if 0 < node <= len(checked) else "", index, extent)
