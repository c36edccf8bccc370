"""Recovery from faults of providers (docs/design/sessions.md#recovery). For the GPU pyruntime/runtime/recovery.py
decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pyruntime.errors import DeviceLost, ExecutionError, OutOfMemory, PyRuntimeError
from pyruntime.native.gpu.device import warn
from pyruntime.native.memory.budgets import free_idle
from pyruntime.native.sessions.programs import Programs
from pyruntime.placement.open_providers import ALL
from pyruntime.placement.provider_list import effective
from pyruntime.providers import BASE
from pyruntime.runtime.recovery import (
    AGAIN,
    FAIL,
    FULL,
    LATE,
    LOST,
    NODES,
    REFUSED,
    Move,
    RecoveryPlan,
    text_of_moves,
)  # fmt: skip
from pyruntime.session.states import SessionState

T = TypeVar("T")


class Recovery:
    """Repeats the work of one session after faults of its GPU, or of providers of others.

    is_enabled: if False, the work fails instead; moved: what has left its provider
    """

    def __init__(self, programs: Programs, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self.moved: list[Move] = []
        self._programs = programs

    def run(self, work: Callable[[], T], check_feeds: Callable[[], object] = lambda: None) -> T:
        """The result of `work`, which runs again after a fault if the plan of the shared runtime says so.

        check_feeds: raises DeviceLost if the feeds were on the lost device
        Errors: those of `work`
        """
        programs = self._programs
        if not programs.compiler.uses_gpu and not programs.compiler.added:
            return work()
        plan = RecoveryPlan(self.is_enabled, programs.has_model, programs.compiler.providers, programs.has_fallback)
        try:
            while True:
                try:
                    return work()
                except (DeviceLost, ExecutionError, OutOfMemory) as e:
                    if isinstance(e, ExecutionError) and e.provider:
                        if not self.leave(e):
                            raise
                        continue
                    fault, nodes = _fault(e)
                    step = plan.after(fault, nodes, self.moved)
                    if step == FAIL:
                        self._give_up(fault)
                        raise
                    if fault != REFUSED:
                        check_feeds()
                    programs.states.enter(SessionState.RECOVERING)
                    while fault == FULL and step == AGAIN and free_idle():
                        pass
                    if step != AGAIN:
                        self._move(plan, nodes if step == NODES else {}, e)
                programs.restart()
        finally:
            if plan.made:
                warn(text_of_moves(plan.made))

    def leave(self, error: ExecutionError, is_beside: bool = False) -> bool:
        """After an error of a provider of others, compile without it for the nodes at fault. Returns whether the work
        may be repeated. No run may be under way. is_beside: a concurrent run may have met the same fault before"""
        programs = self._programs
        provider = programs.compiler.added.get(error.provider)
        if provider is None or not self.is_enabled:
            return False
        if not provider.leave(error):
            return is_beside
        names = effective(programs.compiler.providers)
        following = next(iter(names[names.index(error.provider) + 1 :]), BASE)
        nodes = {ALL: error.message} if ALL in provider.refused else error.at_fault
        made = [Move(node, why, following) for node, why in nodes.items()]
        self.moved = [*self.moved, *made]
        programs.states.enter(SessionState.RECOVERING)
        programs.restart()
        warn(text_of_moves(made))
        return True

    def _move(self, plan: RecoveryPlan, nodes: Mapping[str, str], error: PyRuntimeError) -> None:
        """Compile without the GPU from now on, or without it for these nodes."""
        compiler, node = self._programs.compiler, f"{error.node}: " if error.node else ""
        self.moved = plan.leave(nodes, f"{node}{error.message}", self.moved)
        compiler.refused = {**compiler.refused, **nodes}
        if not nodes:
            compiler.set_providers([p for p in compiler.providers if p != "webgpu"] or ["wasm"])
            compiler.why_not_gpu = self.moved[0].reason

    def _give_up(self, fault: str) -> None:
        """Work ends with the error of this fault, "" if it is none of the GPU. Later work opens the device again."""
        if fault in (LOST, LATE):
            self._programs.states.enter(SessionState.FAILED)
        if fault:
            self._programs.restart()


def _fault(e: PyRuntimeError) -> tuple[str, Mapping[str, str]]:
    """The fault behind an error, "" if it is none of the GPU, and the nodes at fault, with reasons."""
    if isinstance(e, DeviceLost):
        return (LATE if e.is_late else LOST), e.at_fault
    if isinstance(e, OutOfMemory):
        return (FULL if e.gpu else ""), {}
    assert isinstance(e, ExecutionError)
    return (REFUSED if e.at_fault else ""), e.at_fault
