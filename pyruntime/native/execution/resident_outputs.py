"""Outputs that stay in linear memory for later runs: KV caches (docs/design/kv-caches.md#caches-in-native-sessions).
Twin of web/run/resident_outputs.js.

pyruntime/runtime/growth.py has the arithmetic, which web/run/resident_outputs.js uses as well. There the page has a
copy of the data; here there is no copy until the caller asks for the data or a run is about to overwrite them.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyruntime.errors import ExecutionError
from pyruntime.ir import dtype as dt
from pyruntime.native.execution.values import Values
from pyruntime.native.memory.arrays import NUMPY, from_storage, to_storage
from pyruntime.program import types
from pyruntime.program.dims import Env, compile_dim
from pyruntime.runtime.growth import ByteRanges, byte_ranges, first_new_row, next_capacity
from pyruntime.runtime.states import Place, State


class ResidentTensor:
    """An output in the memory of its run: the first rows along an axis of a buffer with `capacity` rows. Runs that are
    fed it append rows. Before a run overwrites its rows they are copied out; then it is an array."""

    def __init__(
        self, owner: ResidentOutputs, dtype: str, shape: tuple[int, ...], buffer: int, axis: int, capacity: int
    ) -> None:  # fmt: skip
        self.dtype, self.shape, self.capacity = dtype, shape, capacity
        self.buffer, self.axis = buffer, axis
        self.replaced = False  # by an output of the current run
        self._owner: ResidentOutputs | None = owner
        self._array: np.ndarray | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        return self.shape[self.axis]

    def ranges(self) -> ByteRanges:
        return byte_ranges(self.shape, self.axis, self.capacity, NUMPY[self.dtype].itemsize)

    def is_in(self, owner: ResidentOutputs) -> bool:
        return self._owner is owner

    def array(self) -> np.ndarray[Any, Any]:
        """The data, copied out of linear memory. Errors: ExecutionError if a run has overwritten them."""
        owner = self._owner
        if owner is not None:
            owner.copy_out(self)
        if self._array is None:
            hint = "numpy() before a run is fed it keeps it; is seqlens_k less than total_sequence_length - 1?"
            raise ExecutionError("a run has written its new keys among those of this cache", hint=hint)
        return self._array

    def copy(self) -> np.ndarray[Any, Any]:
        owner = self._owner
        data = None if owner is None else owner.data(self)
        return self.array().copy() if data is None else from_storage(data, dt.BY_NAME[self.dtype])

    def stored(self) -> np.ndarray[Any, Any]:
        """The data in the engine's storage layout. Callers must not change them."""
        return to_storage(self.array())

    def first_rows(self, count: int) -> ResidentTensor | np.ndarray[Any, Any]:
        """The first rows along the axis that grows: in the same memory, if they are there."""
        owner, shape = self._owner, (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])
        if owner is None:
            return np.ascontiguousarray(self.array()[(slice(None),) * self.axis + (slice(count),)])
        return owner.shorter(self, shape)

    def detach(self, data: np.ndarray | None) -> None:
        """From now on `data`; None: the data are lost."""
        if data is not None:
            self._array = from_storage(data, dt.BY_NAME[self.dtype])
        self._owner = None


@dataclass(slots=True)
class Begin:
    """The start of a run. resident: feeds that are in their buffers, by buffer."""

    root: State
    resident: dict[int, ResidentTensor] = field(default_factory=dict)


class ResidentOutputs:
    """Of one executor. The tensors have memory in `_place`, which the last run led to. Copies out take the memory's
    lock, because stopping a run replaces the memory."""

    def __init__(self, values: Values) -> None:
        self._values = values
        header = values.header
        self._inputs: dict[int, types.Input] = {i["buffer"]: i for i in header["inputs"] if "room" in i}
        outputs = {o["name"]: o["value"] for o in header["outputs"]}
        # those that the GPU makes are copied to another buffer than their feed's
        resident = [(n, v) for n, v in outputs.items() if v is not None and v.get("buffer") in self._inputs]
        self._outputs: dict[str, Any] = {n: v for n, v in resident if "room" in v}
        self._capacity = {n: compile_dim(v["room"]["places"]) for n, v in self._outputs.items()}
        rooms = {b: i["room"] for b, i in self._inputs.items()}
        self._least = {b: compile_dim(room["least"]) for b, room in rooms.items()}
        dims = {v["buffer"]: v["dims"][v["room"]["axis"]] for v in self._outputs.values()}
        self._new_rows = {b: compile_dim(r["mixed"]) for b, r in rooms.items() if "mixed" in r and b in dims}
        self._total_rows = {b: compile_dim(dims[b]) for b in self._new_rows}
        self._place: Place | None = None
        self._tensors: list[weakref.ref[ResidentTensor]] = []
        # Feeds of this run whose rows it may overwrite, until the number of rows after the run is known.
        self._unprotected: dict[int, ResidentTensor] = {}
        self._appended: set[int] = set()  # buffers where new rows are assumed to come last; `_verify_appended` checks
        self._may_assume = True  # False after a wrong assumption

    # ── before a run ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, feeds: Mapping[int, Any], env: Env) -> Begin:
        """Copy out what the run overwrites, and set the symbols of capacities. feeds: by buffer; env: the symbols that
        follow from the feeds' dims."""
        self._unprotected, self._appended = {}, set()
        start = Begin(self._values.plan.root)
        if not self._inputs:
            return start
        for b, spec in self._inputs.items():
            if b not in feeds:  # the run does not read it
                continue
            x, least = feeds[b], self._least[b](env)
            capacity = self._values.plan.least_capacity(b, least)
            if isinstance(x, ResidentTensor) and x.is_in(self) and x.buffer == b:
                if least <= x.capacity:
                    start.resident[b], capacity = x, x.capacity
                else:
                    capacity = max(capacity, next_capacity(least, x.ranges()))
            env[spec["room"]["places"]] = capacity
        for x in self._alive():
            if x.buffer not in start.resident or x.rows > start.resident[x.buffer].rows:
                self.copy_out(x)
        self._protect(start.resident, env)
        if start.resident and self._place is not None:
            start.root = self._values.plan.start_from(self._place, list(start.resident))
        return start

    def has(self, feeds: Iterable[Any]) -> bool:
        """Whether some of the feeds are in this memory."""
        return any(isinstance(x, ResidentTensor) and x.is_in(self) for x in feeds)

    def _alive(self) -> list[ResidentTensor]:
        alive = [x for ref in self._tensors if (x := ref()) is not None and x.is_in(self)]
        self._tensors = [weakref.ref(x) for x in alive]
        return alive

    def _protect(self, fed: Mapping[int, ResidentTensor], env: Env) -> None:
        """Copy out tensors that this run may overwrite: their rows come after the first new row."""
        first_new: dict[int, int] = {}
        for b in fed.keys() & self._new_rows.keys():
            try:
                total = self._total_rows[b](env)
            except KeyError:  # a symbol is not bound yet
                self._unprotected[b] = fed[b]
                continue
            x = fed[b]
            first_new[b] = first_new_row(x.shape[0], x.rows, total, self._new_rows[b](env)) if self._may_assume else 0
            if first_new[b] > 0:
                self._appended.add(b)
        for x in self._alive() if first_new else ():
            if x.rows > first_new.get(x.buffer, x.rows) and not x.replaced:
                self.copy_out(x)

    def bound(self, env: Env) -> None:
        """The run has bound more symbols."""
        unprotected, self._unprotected = self._unprotected, {}
        self._protect(unprotected, env)

    # ── after a run ──────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, state: State, names: set[str]) -> dict[str, ResidentTensor]:
        """The outputs of these names that can stay in memory."""
        if not self._outputs:
            return {}
        env = state.env
        self._verify_appended(state)
        self._place = state.place
        made = {}
        for name in self._outputs.keys() & names:
            value = self._outputs[name]
            shape, axis = self._values.shape(value, env), value["room"]["axis"]
            made[name] = ResidentTensor(self, value["dtype"], shape, value["buffer"], axis, self._capacity[name](env))
        self._tensors = [weakref.ref(x) for x in (*self._alive(), *made.values())]
        return made

    def _address(self, buffer: int) -> int:
        assert self._place is not None
        return self._place.spans[buffer].address

    def _verify_appended(self, state: State) -> None:
        """Rows that no run wrote are 0, so the assumption holds if the last row is not. Otherwise the run may have
        overwritten tensors: they are lost, and reading one raises an error."""
        alike: dict[Any, list[int]] = {}
        for name, value in self._outputs.items():
            if value["buffer"] in self._appended:
                shape, capacity = self._values.shape(value, state.env), self._capacity[name](state.env)
                alike.setdefault((value["dtype"], shape, capacity, value["room"]["axis"]), []).append(value["buffer"])
        for (dtype, shape, capacity, axis), buffers in alike.items():
            addresses = np.array([self._values.plan.span(state, b).address for b in buffers])
            written = self._last_rows(NUMPY[dtype], shape, capacity, axis, addresses).any(-1).all(-1)
            for b in np.array(buffers)[~written]:
                self._may_assume = False
                for x in self._alive():
                    if x.buffer == b:
                        x.detach(None)

    def _last_rows(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], capacity: int, axis: int, addresses: np.ndarray
    ) -> np.ndarray:
        """The last row of each buffer along the axis: (buffers, elements before the axis, elements after it)."""
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        rows = np.arange(before) * capacity + shape[axis] - 1
        at = rows[:, None] * after + np.arange(after)
        return self._values.host.memory.view(dtype)[addresses[:, None, None] // dtype.itemsize + at]

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def data(self, x: ResidentTensor, detach: bool = False) -> np.ndarray[Any, Any] | None:
        """A copy of its data, None if it is not in this memory; detach: it becomes that copy."""
        host = self._values.host
        with host.memory_lock:
            if not x.is_in(self):
                return None
            lines = self._values.lines(self._address(x.buffer), x.ranges())
            copy = lines.copy().view(NUMPY[x.dtype]).reshape(x.shape)
            if detach:
                x.detach(copy)
            return copy

    def shorter(self, x: ResidentTensor, shape: tuple[int, ...]) -> ResidentTensor:
        made = ResidentTensor(self, x.dtype, shape, x.buffer, x.axis, x.capacity)
        self._tensors.append(weakref.ref(made))
        return made

    def copy_out(self, x: ResidentTensor) -> None:
        self.data(x, detach=True)

    def copy_all_out(self) -> None:
        """Before the memory is freed."""
        for x in self._alive():
            self.copy_out(x)
