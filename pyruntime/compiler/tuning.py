"""Searches for faster schedules of a model's kernels by measurements (docs/design/compiler.md#tuning-schedules)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.choices import KNOBS, OTHERS, Chosen, trials
from pyruntime.program.format import Program
from pyruntime.runtime.turns import Times

KERNEL, RUN = 1.05, 1.02  # least speed-up of a kernel, and then of a run: less is noise
_PROVIDER = {"wasm": "wasm", "gpu": "webgpu"}  # by kind of step


@dataclass(frozen=True, slots=True)
class KernelGain:
    """The gain of equal kernels. nodes: labels of their nodes; chosen: the best value of each knob; before, after:
    seconds of all of them."""

    nodes: tuple[str, ...]
    chosen: Mapping[str, int | str]
    before: float
    after: float


class Search:
    """A search that its caller drives.

    `next` returns choices to compile for, or None at the end. If the resulting Program is `worth` it, the caller runs
    it in turns with the default Program, and passes both times to `measured`. The search tries each value of each knob
    for all kernels, then the best values of each kernel together, which must make the run faster. In the end `choices`
    are the result, and `before` and `after` the seconds of a run."""

    def __init__(self, default: Program, providers: Collection[str]) -> None:
        self.choices: Chosen = {}
        self.before = self.after = float("inf")
        self._default = default
        self._fused: dict[str, str] = {}
        self._code: dict[str, tuple[Any, ...]] = {}
        self._left = trials(providers)
        self._confirms = False
        self._chosen: Chosen = {}
        self._changed: set[str] = set()
        self._best: dict[tuple[str, ...], KernelGain] = {}
        self._trial: tuple[float, Chosen] = (RUN, {})

    @property
    def kernels(self) -> list[KernelGain]:
        """Kernels that some value makes faster, sorted by decreasing gain, whether or not the run gets faster."""
        return sorted(self._best.values(), key=lambda g: g.after - g.before)

    def next(self) -> Chosen | None:
        if self._confirms:
            return None
        self._confirms = not self._left
        if self._confirms:  # a GPU may have no clock for kernels
            self._chosen = _by_node(self.kernels) or self._trial[1]
        else:
            self._chosen = self._left.pop(0)
        return self._chosen or None

    def worth(self, program: Program) -> bool:
        """Whether a Program for the choices differs from the default."""
        self._fused = _fused(self._default) | _fused(program)
        self._code, its = (_code(p, self._fused) for p in (self._default, program))
        self._changed = {node for node, code in its.items() if self._code.get(node) != code}
        return bool(self._changed)

    def measured(self, own: Times, its: Times) -> None:
        self.before = self.after = own.run
        ratio = own.run / its.run
        if self._confirms:
            if ratio >= RUN and self._chosen:
                self.choices, self.after = self._chosen, its.run
            return
        self._trial = max(self._trial, (ratio, self._chosen), key=lambda x: x[0])
        for gain in self._gains(*(_summed(t.kernels, self._fused) for t in (own, its))):
            best = self._best.get(gain.nodes, gain)
            self._best[gain.nodes] = max(best, gain, key=lambda g: g.before / g.after)

    def _gains(self, own: Mapping[str, float], its: Mapping[str, float]) -> Iterator[KernelGain]:
        """Equal kernels that the trial made faster."""
        groups: dict[Any, list[str]] = defaultdict(list)
        for node in self._code.keys() & self._changed & own.keys() & its.keys():
            groups[self._code[node]].append(node)
        for calls, nodes in groups.items():
            before, after = sum(own[n] for n in nodes), sum(its[n] for n in nodes)
            providers = {call[0] for call in calls}
            values = {knob: v[OTHERS] for knob, v in self._chosen.items() if KNOBS[knob].provider in providers}
            if after and before / after >= KERNEL:
                yield KernelGain(tuple(sorted(nodes)), values, before, after)


def _code(program: Program, fused: Mapping[str, str]) -> dict[str, tuple[Any, ...]]:
    """Return the functions and parameters of each node's calls. Kernels with equal ones take the same time. fused: see
    `_summed`"""
    place = program.header["modules"].get("webgpu")
    shaders = json.loads(program.part(place)) if place else []
    found: dict[str, list[Any]] = defaultdict(list)
    for block in program.header["blocks"][1:]:
        for step in block["steps"]:
            for call in step.get("calls", ()):
                kernel = shaders[int(call["kernel"])]["source"] if step["op"] == "gpu" else call["kernel"]
                code = _PROVIDER[step["op"]], kernel, str(call["params"]), str(call["work"])
                found[fused.get(call["node"], call["node"])].append(code)
    return {node: tuple(calls) for node, calls in found.items()}


def _fused(program: Program) -> dict[str, str]:
    """The nodes that run as part of another node's kernel, and that node."""
    return {row["node"]: row["into"] for row in program.header["explain"]["nodes"] if "into" in row}


def _summed(kernels: Mapping[str, float], fused: Mapping[str, str]) -> dict[str, float]:
    """Times of kernels, with those of nodes that either Program fuses added to the kernel that has them there."""
    found: dict[str, float] = defaultdict(float)
    for node, seconds in kernels.items():
        found[fused.get(node, node)] += seconds
    return dict(found)


def _by_node(kernels: list[KernelGain]) -> Chosen:
    found: dict[str, dict[str, int | str]] = defaultdict(dict)
    for gain in kernels:
        for knob, value in gain.chosen.items():
            found[knob] |= dict.fromkeys(gain.nodes, value)
    return dict(found)
