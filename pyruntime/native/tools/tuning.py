"""`InferenceSession.tune`: measures schedules on this machine, kernel by kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.choices import Chosen
from pyruntime.compiler.tuning import KernelGain, Search
from pyruntime.errors import InvalidInput
from pyruntime.native.execution.executor import Executor
from pyruntime.native.execution.timing import timed, timings
from pyruntime.native.sessions.feeds import stored
from pyruntime.native.sessions.session import Session
from pyruntime.placement.provider_list import effective
from pyruntime.runtime.turns import Times, Turns

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Tuned:
    """choices: for `SessionOptions.choices`, empty if the default schedules are the fastest; before, after: seconds of
    a run; took: seconds of tuning; kernels: kernels with a faster value, sorted by decreasing gain, even if the run
    gains too little for `choices`."""

    choices: Chosen
    before: float
    after: float
    kernels: list[KernelGain]
    took: float

    @property
    def gain(self) -> float:
        """Speed-up of a run."""
        return self.before / self.after


def tune(session: Session, feeds: Mapping[str, Any], seconds: float = 2.0, clock: Clock = time.perf_counter) -> Tuned:
    """Measure other schedules of a session's kernels for these feeds, for `seconds` each, and continue with the
    fastest. Errors: InvalidInput for a Program that was compiled before, or a time that is not a number of seconds"""
    session.programs.require_model("tune", hint="tune it before it is exported")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise InvalidInput(f"seconds cannot be {seconds!r}", hint="a number from 0 on")
    checked = session.check_feeds(feeds)
    return session.run_alone(lambda: _tuned(session, checked, seconds, clock), checked)


def _tuned(session: Session, feeds: Mapping[str, Any], seconds: float, clock: Clock) -> Tuned:
    start = time.perf_counter()
    programs, compiler = session.programs, session.compiler
    specs, constants, _ = programs.requirements_of(feeds)
    arrays, settings = stored(feeds), compiler.settings

    def load(chosen: Chosen) -> closing[Executor]:
        compiler.settings = settings.with_choices(chosen)
        return closing(compiler.load(programs.graph, specs, constants, programs.memory_left())[0])

    try:
        with load({}) as base:
            search = Search(base.program, effective(compiler.providers))
            while (chosen := search.next()) is not None:
                with load(chosen) as other:
                    if search.worth(other.program):
                        search.measured(*_turns(base, other, arrays, seconds, clock))
            if search.before == float("inf"):  # no kernel has a knob
                search.measured(*_turns(base, base, arrays, 0, clock))
        settings = settings.with_choices(search.choices)
    finally:
        compiler.settings = settings
    programs.restart()
    programs.prepare()
    return Tuned(search.choices, search.before, search.after, search.kernels, time.perf_counter() - start)


def _turns(a: Any, b: Any, feeds: Mapping[str, Any], seconds: float, clock: Clock) -> list[Times]:
    """Times of both executors, of whole runs and kernel by kernel"""
    turns, both = Turns(), (a, b)
    for executor in both:
        executor.run(feeds)
    end = time.perf_counter() + seconds
    while turns.are_few or time.perf_counter() < end:
        took = [0.0, 0.0]
        for n in turns.order:
            took[n] = _turn(both[n], feeds, turns.both[n], clock)
        turns.add(took)
    return turns.both


def _turn(executor: Any, feeds: Mapping[str, Any], best: Times, clock: Clock) -> float:
    """Seconds of a run. A second run times the kernels."""
    start = clock()
    executor.run(feeds)
    seconds = clock() - start
    with timed(executor) as calls:
        executor.run(feeds)
    found = timings(calls)
    best.add([call.node for call in found], [call.seconds for call in found])
    return seconds


__all__ = ["KernelGain", "Tuned", "tune"]
