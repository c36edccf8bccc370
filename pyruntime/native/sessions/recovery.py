"""Recovery from faults of the GPU: a lost device, or one whose memory is full (docs/design/sessions.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyruntime.errors import DeviceLost, OutOfMemory
from pyruntime.native.gpu.device import warn
from pyruntime.native.memory.budgets import free_idle
from pyruntime.native.sessions.programs import Programs
from pyruntime.session.states import SessionState

T = TypeVar("T")


class Recovery:
    """Repeats the work of one session after a fault; is_enabled: if False, the work fails instead."""

    def __init__(self, programs: Programs, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._programs = programs

    def run(self, work: Callable[[], T], check_feeds: Callable[[], object] = lambda: None) -> T:
        """The result of `work`. After a fault it runs again, with device, pipelines and weights made again; if the host
        has no device any more, it runs on WebAssembly.

        check_feeds: raises DeviceLost if the feeds were on the lost device
        Errors: OutOfMemory if the GPU is too small, DeviceLost for a Program that was compiled for the GPU
        """
        programs = self._programs
        if not programs.compiler.uses_gpu:
            return work()
        try:
            return work()
        except OutOfMemory as e:
            if not (e.gpu and self.is_enabled):
                raise
            while free_idle():
                pass
        except DeviceLost:
            if not self.is_enabled:
                programs.states.enter(SessionState.FAILED)
                raise
        check_feeds()
        try:
            return self._run_again(work)
        except DeviceLost as e:
            if not programs.has_model:
                programs.states.enter(SessionState.FAILED)
                raise
            warn(f"{e.message}; the session continues on WebAssembly")
        programs.compiler.set_providers([p for p in programs.compiler.providers if p != "webgpu"] or ["wasm"])
        return self._run_again(work)

    def _run_again(self, work: Callable[[], T]) -> T:
        """Called after all Programs were dropped. Loading the next Program ends the recovery."""
        self._programs.states.enter(SessionState.RECOVERING)
        self._programs.restart()
        return work()
