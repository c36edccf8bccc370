"""The states of a session: weights that its runs change. One executor at a time has their values.
Twin of web/worker/models/state_values.js."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Generic, Protocol, TypeVar

from pyruntime.errors import PyRuntimeError, SessionFailed
from pyruntime.ir.dtype import BY_NAME
from pyruntime.program import types
from pyruntime.runtime.output_paths import MAIN
from pyruntime.training.files.safetensors import Stored


class Executor(Protocol):
    """What runs a Program. changing: names of the steps that change states in the next run; has_changed_states: whether
    the last run has begun to"""

    header: types.Header
    changing: Collection[str]
    has_changed_states: bool


E = TypeVar("E", bound=Executor)


class StateValues(ABC, Generic[E]):
    """A subclass reads and writes values.

    holder: the executor that has the current values; kept: values by name, without those that are as at the start;
    is_current: whether `kept` has the holder's values, so that a fault of the next step loses none; spoiled: an
    executor whose values a step has changed in part; lost: why there are no values that belong to one step, or "" """

    def __init__(self) -> None:
        self.holder: E | None = None
        self.kept: dict[str, Stored] = {}
        self.is_current = True
        self.spoiled: E | None = None
        self.lost = ""

    @abstractmethod
    def fetch(self, executor: E) -> dict[str, Stored]:
        """Copies of an executor's states."""

    @abstractmethod
    def put(self, executor: E, values: Mapping[str, Stored]) -> None:
        """Write an executor's states; names that it does not have are those of other Programs."""

    @contextmanager
    def during_run(self, executor: E, names: Collection[str]) -> Iterator[None]:
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

    def enter(self, executor: E) -> None:
        """Give an executor the current values."""
        self._require_values()
        if self.holder is executor:
            return
        if self.holder is not None:
            self.leave(self.holder)
        states = executor.header.get("states", {})
        filled = {c["buffer"] for c in executor.header["constants"] if "zeros" in c}
        zeros = {n: zeros_of(v) for n, v in states.items() if v["buffer"] in filled}
        values = {**zeros, **self.kept}
        if executor is self.spoiled and not values.keys() >= states.keys():
            self.lose("the first step ended in the middle")
            self._require_values()
        self.put(executor, values)
        self.holder, self.is_current, self.spoiled = executor, True, None

    def _spoil(self, executor: E, why: str) -> None:
        """A step has changed values of the executor in part."""
        if self.is_current:
            self.holder, self.spoiled = None, executor
        else:
            self.lose(why)

    def leave(self, executor: E) -> None:
        """Take the values from an executor that is about to lose its memory."""
        if self.holder is executor:
            self.kept = {**self.kept, **self.fetch(executor)}
            self.holder = None

    def drop(self, executors: Collection[E]) -> None:
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

    def read(self) -> dict[str, Stored]:
        """Copies of the current values, by name, as far as they are not as at the start. Errors: SessionFailed"""
        self._require_values()
        return dict(self.kept) if self.holder is None else {**self.kept, **self.fetch(self.holder)}

    def update(self, values: Mapping[str, Stored]) -> None:
        """Replace some values. Errors: SessionFailed"""
        self._require_values()
        if self.holder is not None:
            self.put(self.holder, values)
        self.kept = {**self.kept, **values}

    def replace(self, values: Mapping[str, Stored]) -> None:
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


def zeros_of(value: types.TensorValue) -> Stored:
    """The value of a state that begins with zeros."""
    shape, dtype = tuple(int(n) for n in value["dims"]), value["dtype"]  # type: ignore[arg-type]
    return Stored(dtype, shape, bytes(prod(shape) * BY_NAME[dtype].size))
