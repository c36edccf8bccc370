"""The provider "auto": measures the runs of a session on other providers, in a thread beside them
(docs/design/gpu.md#auto)."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from pyruntime.native.execution.executor import Executor, gpu_calls
from pyruntime.native.sessions.compiler import RIVAL, Compiler
from pyruntime.native.sessions.feeds import IN_ENGINE, stored
from pyruntime.native.sessions.program_cache import choice_key, read_choice, write_choice
from pyruntime.native.sessions.programs import Programs
from pyruntime.runtime.provider_trial import WANTED, ProviderTrial
from pyruntime.session.states import StateMachine

VALID = 30 * 24 * 3600  # seconds: then it is measured again, because drivers change, and it may have been disturbed
_at_work = threading.Lock()  # held while the thread of a trial is in wgpu, so that the process does not end there
atexit.register(_at_work.acquire, timeout=5)


class SessionTrial:
    """Of one session."""

    def __init__(self, programs: Programs, adopt: weakref.WeakMethod[Callable[..., object]]) -> None:
        """Use at once what an earlier session chose. adopt: moves the session to other providers"""
        self._programs = programs
        self._adopt = adopt
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # runs may be concurrent
        compiler = programs.compiler
        candidates = compiler.candidates
        adapter = _adapter(compiler) if RIVAL in candidates else ""
        about = (adapter, compiler.threads, list(candidates))
        self._name = choice_key(compiler.options, programs.graph, about)
        kept = read_choice(self._name, VALID)
        winner = kept["winner"] if kept and kept["winner"] in candidates else ""
        self._trial = ProviderTrial(kept["best"] if kept and not winner else 0.0)
        if list(candidates) != [RIVAL]:
            self._trial.floor = 0.0
        if kept:
            self._trial.why = f"{kept['why']}, in an earlier session"
        if winner:
            compiler.set_providers(candidates[winner])
        compiler.why_not_gpu = self._trial.why

    def took(self, feeds: Mapping[str, Any], names: Sequence[str], seconds: float) -> None:
        """Count a run that made these outputs."""
        trial = self._trial
        with self._lock:
            compiler = self._programs.compiler
            if self._thread is not None or compiler.providers != compiler.timed:
                return
            items = [x for feed in feeds.values() for x in (feed if isinstance(feed, list) else [feed])]
            arrays = [x for x in items if x is not None]
            if trial.took(sum(int(x.size) for x in arrays), 1000 * seconds):
                self._keep()
            if trial.state == WANTED and not any(isinstance(x, IN_ENGINE) for x in arrays):
                self._thread = threading.Thread(target=self._measure, args=(_copies(feeds), names), daemon=True)
                self._thread.start()

    def _measure(self, feeds: Mapping[str, Any], names: Sequence[str]) -> None:
        winner = ""
        try:
            rivals = [self._rival(name, feeds, names) for name in self._programs.compiler.candidates]
            faster = [rival for rival in rivals if rival.on_gpu]
            why = "; ".join(rival.why.removeprefix("auto: ") for rival in rivals)
            self._trial.settle(bool(faster), f"auto: {why}")
            adopt = self._adopt()
            if faster and adopt is not None:
                winner = min(faster, key=lambda rival: rival.least).other
                adopt(self, winner)
        except Exception as e:  # it cannot move there
            self._trial.settle(False, f"auto: {winner} failed: {e}")
            winner = ""
        finally:
            self._thread = None
        self._keep(winner)

    def _rival(self, name: str, feeds: Mapping[str, Any], names: Sequence[str]) -> ProviderTrial:
        """The trial of one candidate. The memory of its runs is free afterwards."""
        rival = ProviderTrial(self._trial.best)
        rival.other = name
        compiler = copy(self._programs.compiler)
        compiler.set_providers(compiler.candidates[name])
        twin = Programs(self._programs.graph, compiler, StateMachine(lambda: False))
        try:
            with _at_work:
                executor = twin.program(feeds)
            if not gpu_calls(executor.header) and not executor.providers:
                rival.unused()
                return rival
            while rival.took_on_gpu(1000 * _seconds(executor, feeds, names)):
                pass
        except Exception as e:  # of any driver: the session runs without it
            rival.failed(str(e))
        finally:
            twin.forget_others([])
        return rival

    def _keep(self, winner: str = "") -> None:
        trial = self._trial
        self._programs.compiler.why_not_gpu = trial.why
        write_choice(self._name, {"winner": winner, "best": trial.best, "why": trial.why})


def _seconds(executor: Executor, feeds: Mapping[str, Any], names: Sequence[str]) -> float:
    """The time of a run."""
    with _at_work:
        start = time.perf_counter()
        executor.run(stored(feeds), names)
        return time.perf_counter() - start


def _adapter(compiler: Compiler) -> str:
    from pyruntime.providers.webgpu.wgpu_device import shared_device

    return repr(shared_device(compiler.adapter).adapter)


def _copies(feeds: Mapping[str, Any]) -> dict[str, Any]:
    def copied(x: Any) -> Any:
        return [copied(item) for item in x] if isinstance(x, list) else x.copy() if isinstance(x, np.ndarray) else x

    return {name: copied(x) for name, x in feeds.items()}
