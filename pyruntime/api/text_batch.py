"""Runs texts of one generator in threads. `pyruntime/runtime/text_batch.py` decides what runs (docs/adr/0070)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from threading import Condition, get_ident
from typing import Any, TypeVar

from pyruntime.api.decoder import Decoder
from pyruntime.errors import ExecutionError, InvalidInput
from pyruntime.native.execution.forks import in_children
from pyruntime.runtime.text_batch import TextBatch
from pyruntime.runtime.writing import BEYOND, BUSY, BUSY_HINT

T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of shared code that awaits in pages alone: natively nothing is pending."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("native code awaits nothing")


class NativeBatch(TextBatch):
    """Threads take turns: whoever needs a piece of a text runs the model, and others wait."""

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        self._turns = _Turns()
        super().__init__(list(decoders), self._turns)
        in_children(self.after_fork)

    def after_fork(self) -> None:
        """In a child, where other threads have ended: a run by one of them stays undone."""
        if not self._turns.after_fork():
            return
        for chat in self.chats:
            chat.fail(ExecutionError("the process was forked in the middle of a run", hint="begin the text again"))
        self.current, self.chats = None, []
        self.restart()


class _Turns:
    def __init__(self) -> None:
        self._changed = Condition()
        self._owner: int | None = None  # the thread that runs the model

    async def begin(self, is_needed: Callable[[], bool]) -> bool:
        """Errors: InvalidInput in the middle of a run by this thread"""
        with self._changed:
            if self._owner == get_ident():
                raise InvalidInput(BUSY, hint=BUSY_HINT)
            while self._owner is not None and is_needed():
                self._changed.wait()
            is_ours = is_needed()
            if is_ours:
                self._owner = get_ident()
            return is_ours

    def end(self) -> None:
        with self._changed:
            self._owner = None
            self._changed.notify_all()

    def after_fork(self) -> bool:
        """Whether another thread was in the middle of a run."""
        self._changed = Condition()
        was_running = self._owner not in (None, get_ident())
        if was_running:
            self._owner = None
        return was_running

    def told(self, error: Exception) -> Exception:
        if isinstance(error, ExecutionError):
            error.hint = error.hint or BEYOND
        return error

    def is_stopped(self, signal: None) -> bool:
        return False

    def free(self, tensors: list[Any], used: list[Any]) -> None:
        """Python counts references."""


__all__ = ["NativeBatch", "finished"]
