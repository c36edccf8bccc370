"""The states of a session: weights that its runs change. pyruntime/runtime/state_table.py decides which executor has
their values, and web/worker/models/state_values.js moves them in pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, Generic, Protocol, TypeVar

from pyruntime.errors import DeviceLost, PyRuntimeError
from pyruntime.ir.dtype import BY_NAME
from pyruntime.program import types
from pyruntime.runtime.state_table import StateOwner, StateTable, changing_steps, states_of
from pyruntime.training.files.safetensors import Stored


class Executor(StateOwner, Protocol):
    """What runs a Program. changing: names of the steps that change states in the next run"""

    changing: Collection[str]


E = TypeVar("E", bound=Executor)
T = TypeVar("T")


class StateValues(ABC, Generic[E]):
    """A subclass reads and writes values."""

    def __init__(self) -> None:
        self.table = StateTable()

    @property
    def holder(self) -> Any:
        """The executor that has the current values, or None."""
        return self.table.holder

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
        executor.changing, executor.has_changed_states = changing_steps(executor.header, [*names]), False
        try:
            yield
        except BaseException as error:
            if not getattr(error, "has_kept_states", False):
                self.table.failed(executor, str(error))
            raise
        self.table.completed(executor)

    def enter(self, executor: E) -> None:
        """Give an executor the current values."""
        self.table.require()
        if self.holder is executor:
            return
        if self.holder is not None:
            self.leave(self.holder)
            self.table.require()
        states = states_of(executor.header)
        zeros = {name: zeros_of(states[name]) for name in self.table.zeros_for(executor)}
        self.put(executor, {**zeros, **self.table.kept})
        self.table.entered(executor)

    def leave(self, executor: E) -> None:
        """Take the values from an executor that is about to lose its memory. They are lost if its GPU is."""
        if self.holder is executor:
            self._take(executor, DeviceLost)

    def drop(self, executors: Collection[E]) -> None:
        """These executors are gone; their GPU may be lost, or full."""
        if self.holder is not None and self.holder in executors:
            self._take(self.holder, PyRuntimeError)

    def _take(self, executor: E, fault: type[PyRuntimeError]) -> None:
        """Take the values from an executor. fault: an error that means that they are lost"""
        try:
            self.table.left({} if self.table.is_current else self.fetch(executor))
        except fault as error:
            self.table.left({})
            self.table.lose(f"the GPU that had them is gone ({error.message})")

    def forget(self) -> None:
        """The session ends: nothing needs the values."""
        self.table.holder = None

    def read(self) -> dict[str, Stored]:
        """Copies of the current values, by name, as far as they are not as at the start. Errors: SessionFailed"""
        self.table.require()
        found = self._with_holder(self.fetch) or {}
        return {**self.table.kept, **found}

    def update(self, values: Mapping[str, Stored]) -> None:
        """Replace some values. Errors: SessionFailed"""
        self.table.require()
        self._with_holder(lambda holder: self.put(holder, values))
        self.table.kept = {**self.table.kept, **values}

    def _with_holder(self, work: Callable[[Any], T]) -> T | None:
        """The result of `work` with the executor that has the values; None if there is none, or its GPU is lost but not
        the values. Errors: SessionFailed if they are lost, too"""
        holder = self.holder
        if holder is None:
            return None
        try:
            return work(holder)
        except DeviceLost:
            self.leave(holder)
            self.table.require()
            return None

    def replace(self, values: Mapping[str, Stored]) -> None:
        """Replace all values; those that are not given become zeros."""
        self.table.replace({**values})


def zeros_of(value: types.TensorValue) -> Stored:
    """The value of a state that begins with zeros."""
    shape, dtype = tuple(int(n) for n in value["dims"]), value["dtype"]  # type: ignore[arg-type]
    return Stored(dtype, shape, bytes(prod(shape) * BY_NAME[dtype].size))
