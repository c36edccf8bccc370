"""Values of a run in an executor's linear memory: where steps find them, make them and give them back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.errors import ShapeError
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.native.memory.planner import Env, Planner, Run, Sizes, Step
from pyruntime.program import types
from pyruntime.program.dims import compile_dim, compile_dims
from pyruntime.runtime.growth import ByteRanges, byte_ranges
from pyruntime.runtime.guards import Guards

# Steps without calls, which free buffers themselves.
Releasing = types.CopyStep | types.ReadStep | types.HostStep | types.IfStep | types.LoopStep


class Values:
    """Those of one Program in one memory. host: the linear memory; planner: gives addresses in it."""

    def __init__(self, header: types.Header, host: Any, planner: Planner, guards: Guards) -> None:
        self.header = header
        self.host = host
        self.planner = planner
        self.guards = guards
        self._shapes: dict[int, Callable[[Env], tuple[int, ...]]] = {}

    def bind(self, run: Run, numbers: Env) -> None:
        """Give symbols their numbers. Errors: ShapeError if a guard fails."""
        run.env.update(numbers)
        self.guards.check(run.env, numbers.keys())

    def size(self, buffer: int, env: Env) -> int:
        """Bytes."""
        return Sizes(self.planner.sizes, env)[buffer]

    def shape(self, value: types.Input | types.TensorValue, env: Env) -> tuple[int, ...]:
        found = self._shapes.get(id(value))
        if found is None:  # header values live as long as the executor does
            found = self._shapes[id(value)] = compile_dims(value["dims"])
        shape = found(env)
        if min(shape, default=0) < 0:
            raise ShapeError(f"an output cannot have the shape {list(shape)}")
        return shape

    def write(self, address: int, x: np.ndarray) -> None:
        self.host.memory[address : address + x.nbytes] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)

    def rows(self, value: types.Input | types.TensorValue, run: Run) -> np.ndarray:
        """The bytes of a tensor whose buffer has capacity for more rows along an axis, a line for each byte range; no
        copy."""
        shape, item = self.shape(value, run.env), NUMPY[value["dtype"]].itemsize
        ranges = byte_ranges(shape, value["room"]["axis"], compile_dim(value["room"]["places"])(run.env), item)
        if ranges.count * ranges.stride > self.size(value["buffer"], run.env):
            raise ShapeError(f"a tensor of shape {list(shape)} does not fit its buffer")
        return self.lines(run.addresses[value["buffer"]], ranges)

    def lines(self, address: int, ranges: ByteRanges) -> np.ndarray:
        """Byte ranges in memory as the lines of an array; no copy."""
        whole = self.host.memory[address : address + ranges.count * ranges.stride]
        return whole.reshape(ranges.count, ranges.stride)[:, : ranges.length]

    def fetch(self, value: types.Value, run: Run) -> Any:
        """A copy of a value: an array, a list of them for a sequence, None for an empty optional."""
        if value is None:
            return None
        if "items" in value:
            return [self.fetch(v, run) for v in value["items"]]
        shape = self.shape(value, run.env)
        if value["buffer"] in run.strings:
            return np.array(run.strings[value["buffer"]], dtype=object).reshape(shape)
        dtype = NUMPY[value["dtype"]]
        if "room" in value:
            return self.rows(value, run).copy().view(dtype).reshape(shape)
        size = math.prod(shape) * dtype.itemsize
        address = run.addresses[value["buffer"]]
        return self.host.memory[address : address + size].view(dtype).reshape(shape).copy()

    def make(self, step: Step[types.Step], run: Run, arrays: list[tuple[int, np.ndarray]]) -> None:
        """Allocate buffers for arrays and fill them; strings stay outside memory."""
        plain = [(b, a) for b, a in arrays if a.dtype != object]
        run.strings.update({b: a for b, a in arrays if a.dtype == object})
        self.planner.allocate(run, ("make", step.uid), {b: a.nbytes for b, a in plain})
        for b, a in plain:
            self.write(run.addresses[b], a)

    def free(self, run: Run, key: tuple[Any, ...], buffers: list[int]) -> None:
        """Give back the memory of buffers, where they have some; key: names what frees them."""
        if addresses := [run.addresses[b] for b in buffers if b in run.addresses]:
            self.planner.release(run, key, addresses)

    def release(self, step: Step[Releasing], run: Run) -> None:
        self.free(run, ("free", step.uid), step.json["free"])

    def pass_on(self, source: int, target: int, run: Run) -> None:
        """The target is the source from now on."""
        if source in run.addresses:
            run.addresses[target] = run.addresses[source]
        else:
            run.strings[target] = run.strings[source]


__all__ = ["Values"]
