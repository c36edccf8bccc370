"""Decides which executor has the values of a session's states, weights that its runs change, and when they are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pyruntime.errors import SessionFailed
from pyruntime.program import types
from pyruntime.runtime.output_paths import MAIN


class StateOwner(Protocol):
    """An executor. has_changed_states: whether its last run has begun to change states"""

    header: types.Header
    has_changed_states: bool


class StateTable:
    """Of one session; values are of a type of the language.

    holder: the executor that has the current values; kept: values by name, without those that are as at the start;
    is_current: whether `kept` has the holder's values, so that a fault of the next step loses none; spoiled: an
    executor whose values a step has changed in part; lost: why there are no values that belong to one step, or "" """

    def __init__(self) -> None:
        self.holder: StateOwner | None = None
        self.kept: dict[str, Any] = {}
        self.is_current = True
        self.spoiled: StateOwner | None = None
        self.lost = ""

    def require(self) -> None:
        """Errors: SessionFailed if the values are lost"""
        if self.lost != "":
            hint = "load a checkpoint, or create the session again"
            raise SessionFailed(f"the weights are lost: {self.lost}", hint=hint)

    def lose(self, why: str) -> None:
        """The first reason counts."""
        if self.lost == "":
            self.lost = why

    def zeros_for(self, executor: StateOwner) -> list[str]:
        """The states to fill with zeros before the values in `kept` are written to an executor. Errors: SessionFailed
        if it then has values that a step has changed in part"""
        states = states_of(executor.header)
        filled = {c["buffer"] for c in executor.header["constants"] if "zeros" in c}
        rest = [name for name in states.keys() if name not in self.kept]
        zeros = [name for name in rest if states[name]["buffer"] in filled]
        if executor is self.spoiled and len(zeros) < len(rest):
            self.lose("the first step ended in the middle")
            self.require()
        return zeros

    def entered(self, executor: StateOwner) -> None:
        """The executor has the values."""
        self.holder = executor
        self.is_current = True
        self.spoiled = None

    def left(self, values: dict[str, Any]) -> None:
        """The holder's values are taken from it."""
        self.kept = {**self.kept, **values}
        self.holder = None

    def completed(self, executor: StateOwner) -> None:
        """A run has ended: where it changed states, `kept` has old values."""
        if executor.has_changed_states and self.is_current:
            states = states_of(executor.header)
            self.is_current = False
            for name in states.keys():
                self.kept.pop(name, None)

    def failed(self, executor: StateOwner, why: str) -> None:
        """A run has ended with an error, maybe after it changed a part of the values."""
        if executor.has_changed_states and self.is_current:
            self.holder = None
            self.spoiled = executor
        elif executor.has_changed_states:
            self.lose(f"a step ended in the middle: {why}")

    def replace(self, values: dict[str, Any]) -> None:
        """Replace all values; those that are not given become zeros."""
        self.holder = None
        self.kept = values
        self.spoiled = None
        self.lost = ""


def states_of(header: types.Header) -> Mapping[str, types.TensorValue]:
    """By name."""
    none: Mapping[str, types.TensorValue] = {}
    return header.get("states", none)


def changing_steps(header: types.Header, names: Sequence[str]) -> set[str]:
    """Names of the steps that change states in a run for these outputs."""
    found = {b for output in header["outputs"] if output["name"] in names for b in output.get("updates", [])}
    steps = [step for step in header["blocks"][MAIN]["steps"] if "calls" in step]
    updated = [(s["fn"], b) for s in steps for call in s["calls"] for b in call.get("updates", [])]
    return {name for name, b in updated if b in found}
