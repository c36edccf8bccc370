"""Outputs that a run leaves where they are, for later ones to be fed: caches that grow
(docs/design/kv-caches.md#caches-in-native-sessions).

web/run/held.js is its sibling. There the page has a copy of the data; here there is none until somebody asks for it, or
a run is about to write over it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.errors import ExecutionError
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, presented, storage
from pyruntime.native.memory.planner import Env, Run
from pyruntime.program import types
from pyruntime.program.dims import compile_dim

if TYPE_CHECKING:
    from pyruntime.native.execution.executor import Executor


LEAST = 1 << 16  # bytes that a buffer becomes longer by: with each everything is laid out anew


class HeldTensor:
    """An output in the memory of its run: the first rows along an axis of a buffer with room for more. Runs that are
    fed it write behind these rows; before they are lost they are copied out, and from then on this is an array."""

    def __init__(self, owner: HeldOutputs, value: types.TensorValue, shape: tuple[int, ...], places: int) -> None:
        self.dtype, self.shape, self.places = value["dtype"], shape, places
        self.buffer, self.axis = value["buffer"], value["room"]["axis"]
        self.replaced = False  # by the output of the run that is under way
        self._owner: HeldOutputs | None = owner
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

    def is_in(self, owner: HeldOutputs) -> bool:
        return self._owner is owner

    def array(self) -> np.ndarray[Any, Any]:
        """The data, from now on the caller's, too. Errors: ExecutionError if a run has written over them."""
        owner = self._owner
        if owner is not None:
            owner.copy_out(self)
        if self._array is None:
            hint = "numpy() before a run is fed it keeps it; is seqlens_k less than total_sequence_length - 1?"
            raise ExecutionError("a run has written its new keys among those of this cache", hint=hint)
        return self._array

    def copied(self) -> np.ndarray[Any, Any]:
        """A copy of the data."""
        owner = self._owner
        data = None if owner is None else owner.data(self)
        return self.array().copy() if data is None else presented(data, dt.BY_NAME[self.dtype])

    def stored(self) -> np.ndarray[Any, Any]:
        """The data in the engine's storage layout, not to be changed."""
        return storage(self.array())

    def take(self, data: np.ndarray | None) -> None:
        """It is not where the run left it any more."""
        if data is not None:
            self._array = presented(data, dt.BY_NAME[self.dtype])
        self._owner = None


class HeldOutputs:
    """Of one executor. Whatever is held lies at addresses that `_snapshot`, the arena's state after the last run that
    left some, has in use; the memory's lock is held by whoever copies from there, for a stop takes the memory away."""

    def __init__(self, executor: Executor) -> None:
        self._executor = weakref.proxy(executor)
        self._host = executor.host
        inputs = executor.header["inputs"]
        self._rooms: dict[int, types.Input] = {i["buffer"]: i for i in inputs if "room" in i}
        values = [(o["name"], o["value"]) for o in executor.header["outputs"]]
        self._values: dict[str, Any] = {n: v for n, v in values if v is not None and "room" in v}
        self._places = {n: compile_dim(v["room"]["places"]) for n, v in self._values.items()}
        dims = {v["buffer"]: v["dims"][v["room"]["axis"]] for v in self._values.values()}
        rooms = {b: i["room"] for b, i in self._rooms.items()}
        self._least = {b: compile_dim(room["least"]) for b, room in rooms.items()}
        self._new = {b: compile_dim(room["mixed"]) for b, room in rooms.items() if "mixed" in room}
        self._total = {b: compile_dim(dims[b]) for b in self._new}
        self._addresses: dict[int, int] = {}
        self._snapshot: Any = None
        self._tensors: list[weakref.ref[HeldTensor]] = []
        self._late: dict[int, HeldTensor] = {}  # fed ones of which it is not known yet where new rows lie
        self._bold: set[int] = set()  # buffers whose new rows are taken to be the last; `_check` finds whether they are
        self._cautious = False

    # ── before a run ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, run: Run, feeds: Mapping[int, Any]) -> set[int]:
        """The buffers in which what they are fed lies already; what else is held is copied out. feeds: by buffer;
        dims of inputs are bound, places for more are bound here."""
        self._late, self._bold = {}, set()
        fed: dict[int, HeldTensor] = {}
        for b, spec in self._rooms.items():
            x, room = feeds[b], spec["room"]
            least = places = self._least[b](run.env)
            if isinstance(x, HeldTensor) and x.is_in(self) and x.buffer == b:
                if least <= x.places:
                    fed[b], places = x, x.places
                else:  # it grew before, so it does again
                    row = math.prod(x.shape[: x.axis] + x.shape[x.axis + 1 :]) * NUMPY[x.dtype].itemsize
                    places += max(-(-least // 4), -(-LEAST // (row or LEAST)))
            run.env[room["places"]] = places
        for x in self._alive():
            if x.buffer not in fed or x.rows > fed[x.buffer].rows:
                self.copy_out(x)
        self._protect(fed, run.env)
        if fed:
            self._executor.planner.start_from(run, self._snapshot, {b: self._addresses[b] for b in fed})
        return set(fed)

    def has(self, feeds: Iterable[Any]) -> bool:
        """Whether some of the feeds are here."""
        return any(isinstance(x, HeldTensor) and x.is_in(self) for x in feeds)

    def _alive(self) -> list[HeldTensor]:
        found = [x for ref in self._tensors if (x := ref()) is not None and x.is_in(self)]
        self._tensors = [weakref.ref(x) for x in found]
        return found

    def _protect(self, fed: Mapping[int, HeldTensor], env: Env) -> None:
        """Copies out what this run may write over: new rows that lie among those of the past."""
        kept: dict[int, int] = {}
        for b in fed.keys() & self._new.keys():
            try:
                total = self._total[b](env)
            except KeyError:  # a symbol has no value yet
                self._late[b] = fed[b]
                continue
            kept[b] = 0
            if total > fed[b].rows and fed[b].shape[0] == 1 and not self._cautious:
                kept[b] = total - self._new[b](env)  # the keys of a single item end where the present does
                self._bold.add(b)
        for x in self._alive() if kept else ():
            if x.rows > kept.get(x.buffer, x.rows) and not x.replaced:
                self.copy_out(x)

    def learned(self, env: Env) -> None:
        """More symbols have values."""
        late, self._late = self._late, {}
        self._protect(late, env)

    # ── after a run ──────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, run: Run, names: set[str]) -> dict[str, HeldTensor]:
        """Outputs of these names that stay where they are; the rest of what is held stays, too."""
        env = run.env
        self._check(run)
        self._addresses = {b: run.addresses[b] for b in self._rooms}
        made = {}
        for name in self._values.keys() & names:
            value = self._values[name]
            made[name] = HeldTensor(self, value, self._executor.shape(value, env), self._places[name](env))
        self._tensors = [weakref.ref(x) for x in (*self._alive(), *made.values())]
        if self._tensors:
            self._snapshot = self._executor.planner.states[run.state]
        return made

    def _check(self, run: Run) -> None:
        """Where new rows were taken to lie behind the past they end with the last row, and what no run writes is 0. If
        that row is 0, pasts that are still held may have been written over; who asks for one is told."""
        alike: dict[Any, list[int]] = {}
        for name, value in self._values.items():
            if value["buffer"] in self._bold:
                shape, places = self._executor.shape(value, run.env), self._places[name](run.env)
                alike.setdefault((value["dtype"], shape, places, value["room"]["axis"]), []).append(value["buffer"])
        for (dtype, shape, places, axis), buffers in alike.items():
            addresses = np.array([run.addresses[b] for b in buffers])
            written = self._last_rows(NUMPY[dtype], shape, places, axis, addresses).any(-1).all(-1)
            for b in np.array(buffers)[~written]:
                self._cautious = True
                for x in self._alive():
                    if x.buffer == b:
                        x.take(None)

    def _last_rows(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], places: int, axis: int, addresses: np.ndarray
    ) -> np.ndarray:
        """Of each buffer the last row along the axis: (buffers, what is before the axis, what is behind it)."""
        before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        rows = np.arange(before) * places + shape[axis] - 1
        at = rows[:, None] * behind + np.arange(behind)
        return self._host.memory.view(dtype)[addresses[:, None, None] // dtype.itemsize + at]

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def data(self, x: HeldTensor, for_good: bool = False) -> np.ndarray[Any, Any] | None:
        """A copy of its data, None if they are not here; for_good: which it takes, for they may be lost here."""
        with self._host.memory_lock:
            if not x.is_in(self):
                return None
            dtype, shape = NUMPY[x.dtype], list(x.shape)
            shape[x.axis] = x.places
            begin = self._addresses[x.buffer]
            whole = self._host.memory[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            found = whole[(slice(None),) * x.axis + (slice(x.rows),)].copy()
            if for_good:
                x.take(found)
            return found

    def copy_out(self, x: HeldTensor) -> None:
        """Its data become its own."""
        self.data(x, for_good=True)

    def let_go(self) -> None:
        """The memory will be no more."""
        for x in self._alive():
            self.copy_out(x)


__all__ = ["HeldOutputs", "HeldTensor"]
