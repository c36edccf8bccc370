"""`InferenceSession.tune`: candidates of schedules measured on this machine, kernel by kernel (docs/adr/0098)."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.choices import KNOBS, OTHERS, Choices, Chosen, trials
from pyruntime.errors import InvalidInput
from pyruntime.native.timing import timed, timings
from pyruntime.placement.provider_list import effective
from pyruntime.program.format import Program

TURNS = 3  # of two candidates, at least
KERNEL, RUN = 1.05, 1.02  # as fast a kernel, and then the run, must get: less is noise
_PROVIDER = {"wasm": "wasm", "gpu": "webgpu"}  # of the steps of a Program

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class KernelGain:
    """Equal kernels: labels of their nodes, the value by knob that is best for them, the seconds of all of them."""

    nodes: tuple[str, ...]
    chosen: Mapping[str, int]
    before: float
    after: float


@dataclass(slots=True)
class Tuned:
    """choices: for `SessionOptions.choices`, empty where the rules were right; before, after: seconds of a run;
    took: seconds that it took to find out; kernels: those for which another value is better, the largest gain first,
    whether or not the run gained enough."""

    choices: Chosen
    before: float
    after: float
    kernels: list[KernelGain] = field(default_factory=list)
    took: float = 0

    @property
    def gain(self) -> float:
        """How many times as fast a run is."""
        return self.before / self.after


@dataclass(slots=True)
class _Times:
    """The best ones of a run, and of its kernels by the label of their node."""

    run: float = float("inf")
    kernels: dict[str, float] = field(default_factory=dict)


def tune(session: Any, feeds: Mapping[str, Any], seconds: float = 2.0, clock: Clock = time.perf_counter) -> Tuned:
    """Measure other schedules of a session's kernels for these feeds, some `seconds` each, have it go on with the
    fastest, and tell. Errors: InvalidInput for a Program that was compiled before, or a time that is none."""
    if session._opened:
        raise InvalidInput("a compiled Program holds no model to tune", hint="tune it before it is exported")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise InvalidInput(f"{seconds!r} is no time to measure for", hint="a number of seconds")
    checked = session._feeds.check(session._maps.entered(feeds))
    return session._turns.alone(lambda: session._surviving(lambda: _tuned(session, checked, seconds, clock), checked))


def _tuned(session: Any, feeds: Mapping[str, Any], seconds: float, clock: Clock) -> Tuned:
    start = time.perf_counter()
    specs, inner = session._specs(feeds)
    before = session._choices

    def made(chosen: Chosen) -> Any:
        session._choices = Choices(chosen)
        return session._executor(session._graph, specs, inner)

    def turns(a: Any, b: Any) -> tuple[_Times, _Times]:
        return _turns(a, b, session._feeds.stored(feeds), seconds, clock)

    try:
        found = _found(made, turns, effective(session._providers))
        before = Choices(found.choices)
    finally:
        session._choices = before
    session._again(session._prepare)
    found.took = time.perf_counter() - start
    return found


def _found(made: Callable[[Chosen], Any], turns: Callable[[Any, Any], Any], providers: list[str]) -> Tuned:
    with _closing(made({})) as base:
        code = _code(base.program)
        best: dict[Any, KernelGain] = {}
        trial: tuple[float, Chosen] = (RUN, {})
        for chosen in trials(providers):
            with _closing(made(chosen)) as other:
                changed = {node for node, c in _code(other.program).items() if code.get(node) != c}
                if not changed:
                    continue
                own, its = turns(base, other)
            trial = max(trial, (own.run / its.run, chosen), key=lambda x: x[0])
            for gain in _gains(code, changed, chosen, own.kernels, its.kernels):
                key = gain.nodes
                best[key] = max(best.get(key, gain), gain, key=lambda g: g.before / g.after)
        kernels = sorted(best.values(), key=lambda g: g.after - g.before)
        choices = _by_node(kernels) or trial[1]  # a GPU may have no clock for kernels
        if choices:
            with _closing(made(choices)) as other:
                own, its = turns(base, other)
            if own.run / its.run >= RUN:
                return Tuned(choices, own.run, its.run, kernels)
        else:
            own, _ = turns(base, base)
        return Tuned({}, own.run, own.run, kernels)


@contextmanager
def _closing(executor: Any) -> Iterator[Any]:
    try:
        yield executor
    finally:
        executor.close()


def _turns(a: Any, b: Any, feeds: Mapping[str, Any], seconds: float, clock: Clock) -> tuple[_Times, _Times]:
    """Both run one after the other, whole and kernel by kernel, the first run of each for itself."""
    times = (_Times(), _Times())
    for executor in (a, b):
        executor.run(feeds)
    end, count = time.perf_counter() + seconds, 0
    while count < TURNS or time.perf_counter() < end:
        for executor, found in zip((a, b), times, strict=True):
            start = clock()
            executor.run(feeds)
            found.run = min(found.run, clock() - start)
            with timed(executor) as calls:
                executor.run(feeds)
            sums: dict[str, float] = defaultdict(float)
            for call in timings(calls):
                sums[call.node] += call.seconds
            found.kernels = {node: min(s, found.kernels.get(node, s)) for node, s in sums.items()}
        count += 1
    return times


def _code(program: Program) -> dict[str, tuple[Any, ...]]:
    """By node, what its calls run with which numbers: kernels for which that is equal take as long."""
    place = program.header["modules"].get("webgpu")
    shaders = json.loads(program.part(place)) if place else []
    found: dict[str, list[Any]] = defaultdict(list)
    for block in program.header["blocks"][1:]:
        for step in block["steps"]:
            for call in step.get("calls", ()):
                kernel = shaders[int(call["kernel"])]["source"] if step["op"] == "gpu" else call["kernel"]
                found[call["node"]].append((_PROVIDER[step["op"]], kernel, str(call["params"]), str(call["work"])))
    return {node: tuple(calls) for node, calls in found.items()}


def _gains(
    code: Mapping[str, Any], changed: set[str], chosen: Chosen, own: Mapping[str, float], its: Mapping[str, float]
) -> Iterator[KernelGain]:
    """Of equal kernels that the trial made faster."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for node in code.keys() & changed & own.keys() & its.keys():
        groups[code[node]].append(node)
    for calls, nodes in groups.items():
        before, after = sum(own[n] for n in nodes), sum(its[n] for n in nodes)
        providers = {call[0] for call in calls}
        values = {knob: v[OTHERS] for knob, v in chosen.items() if KNOBS[knob].provider in providers}
        if after and before / after >= KERNEL:
            yield KernelGain(tuple(sorted(nodes)), values, before, after)


def _by_node(kernels: list[KernelGain]) -> Chosen:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for gain in kernels:
        for knob, value in gain.chosen.items():
            found[knob] |= dict.fromkeys(gain.nodes, value)
    return dict(found)


__all__ = ["KernelGain", "Tuned", "tune"]
