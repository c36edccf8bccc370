"""The state of a session. pyruntime/runtime/session_rules.py has the transitions. Twin of web/session/states.js."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from pyruntime.errors import InternalError, SessionFailed
from pyruntime.runtime.session_rules import TRANSITIONS


class SessionState(StrEnum):
    RUNNING = "running"  # work is under way: opening the session, a run, a profile
    READY = "ready"  # the session accepts work
    RECOVERING = "recovering"  # after a fault of the GPU: the session makes its executors again
    FAILED = "failed"  # no device is left to continue on; the next run looks for one
    RELEASED = "released"  # for good: the memory is freed


RUNNING, READY, RECOVERING, FAILED, RELEASED = SessionState


class StateMachine:
    """The state of one session.

    `is_busy` returns whether work is under way. This is never stored, because Ctrl-C may end a run between any two
    lines and would leave the state wrong. A run also need not update it.
    changed: gets each state that is stored; recovered: how often the session has recovered
    """

    def __init__(
        self, is_busy: Callable[[], bool], changed: Callable[[SessionState], object] = lambda state: None
    ) -> None:
        self._is_busy = is_busy
        self._changed = changed
        self._stored = RUNNING  # stands for RUNNING or READY
        self.recovered = 0

    @property
    def state(self) -> SessionState:
        if self._stored is RELEASED:
            return RELEASED
        if self._is_busy():
            return RECOVERING if self._stored is RECOVERING else RUNNING
        return FAILED if self._stored is FAILED else READY

    def enter(self, new: SessionState) -> None:
        """Errors: SessionFailed after the release, InternalError for any other transition that is not in the table."""
        old = self.state
        if new is not old and new not in TRANSITIONS[old]:
            if old is RELEASED:
                raise SessionFailed("this session is released", hint="create another")
            raise InternalError(f"a session cannot go from {old} to {new}")
        before, self._stored = self._stored, new
        if new is before:
            return
        if before is RECOVERING and new is RUNNING:
            self.recovered += 1
        self._changed(new)
