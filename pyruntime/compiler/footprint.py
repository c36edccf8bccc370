"""Estimates the memory that a Program needs from its header, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.program import types
from pyruntime.program.dims import compile_dim, symbols
from pyruntime.runtime.arena import ALIGN
from pyruntime.runtime.start_up import calls_of, start_up


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes in linear memory and GPU memory together.

    weights: constants that stay for the session
    loading: the peak during start-up
    run: the peak of a run's tensors, besides weights
    linear: the peak in linear memories alone; `further` bytes of it are not in the first memory
    assumed: names of symbols that were assumed to be 1
    """

    weights: int
    loading: int
    run: int
    linear: int
    further: int
    assumed: tuple[str, ...]

    @property
    def peak(self) -> int:
        return max(self.loading, self.weights + self.run)


def footprint(header: types.Header) -> Footprint:
    """Estimate the footprint from the liveness of buffers; fragmentation may add a few percent. It assumes one
    iteration of each loop, 1 for unknown symbols, and for KV caches that grow the capacity that the first run needs."""
    walk, linear = _Walk(header), _Walk(header, linear=True)
    weights, loading, run = _sizes(walk)
    alone = _sizes(linear)
    peak, further = max(alone[1], alone[0] + alone[2]), sum(header.get("memories", ()))
    return Footprint(weights, loading, run, peak, further, tuple(sorted(walk.env.assumed)))


def _sizes(walk: _Walk) -> tuple[int, int, int]:
    """Bytes of weights, of loading and of a run."""
    header = walk.header
    start = start_up(header)
    for b in start.permanent:
        walk.take(b)
    walk.placed.update(start.permanent)
    for c in start.constants:
        walk.take(c["buffer"])
    for step, constants in zip(header["blocks"][0]["steps"], start.before, strict=True):
        for c in constants:
            walk.take(c["buffer"])
        walk.step(step)
    weights, loading = walk.alive, walk.peak
    walk.peak = weights
    for given in header["inputs"]:
        if "room" in given:  # the capacity is a symbol that no feed determines
            walk.env[given["room"]["places"]] = walk.value(given["room"]["least"])
        walk.take(given["buffer"])
    walk.block(1)
    return weights, loading, walk.peak - weights


class _Values(dict[str, int]):
    """Values of symbols and named dims; 1 for unknown symbols."""

    def __init__(self, header: types.Header) -> None:
        self.assumed: set[str] = set()
        self._named: Mapping[str, types.Dim] = dict(header.get("dims", ()))

    def __missing__(self, name: str) -> int:
        if name not in self._named:
            self.assumed.add(name)
            return 1
        used = {name}
        for other in reversed(list(self._named)):
            if other in used:
                used |= symbols(self._named[other])
        for other in self._named:  # in order, so that operands have values
            if other in used and other not in self:
                self[other] = compile_dim(self._named[other])(self)
        return self[name]


class _Walk:
    """Visits the blocks in the order of execution. linear: count linear memory only."""

    def __init__(self, header: types.Header, linear: bool = False) -> None:
        self.header = header
        self.linear = linear
        self.env = _Values(header)
        self.held: dict[int, int] = {}
        self.placed: set[int] = set()  # buffers that have memory already
        self.alive = self.peak = 0

    def take(self, b: int) -> None:
        buffer = self.header["buffers"][b]
        if b not in self.placed and not buffer.get("host") and not (self.linear and buffer.get("memory")):
            self.held[b] = size = self.size(b)
            self.alive += size
            self.peak = max(self.peak, self.alive)

    def drop(self, b: int) -> None:
        self.alive -= self.held.pop(b, 0)

    def size(self, b: int) -> int:
        return max(-(-self.value(self.header["buffers"][b]["size"]) // ALIGN) * ALIGN, ALIGN)

    def value(self, dim: Any) -> int:
        return dim if isinstance(dim, int) else compile_dim(dim)(self.env)

    def block(self, number: int) -> None:
        for step in self.header["blocks"][number]["steps"]:
            self.step(step)

    def step(self, step: types.Step) -> None:
        for call in calls_of(step):
            self.call(call)
        if step["op"] == "copy":
            for _, target in step["pairs"]:
                self.take(target["buffer"])
        elif step["op"] == "host":
            for made in step["outputs"]:
                self.take(made["buffer"])
        elif step["op"] == "if":
            self.branch(step)
        elif step["op"] == "loop":
            self.loop(step)
        for b in step["free"] if "free" in step else ():
            self.drop(b)

    def call(self, call: types.Call) -> None:
        dying = set(call["free"])
        for b in call["alloc"]:
            sources = (a for output, a in call["inplace"] if output == b and a in dying & self.held.keys())
            source = next((a for a in sources if self.held[a] == self.size(b)), None)
            if source is None or b in self.placed:
                self.take(b)
            else:
                dying.discard(source)
                self.held[b] = self.held.pop(source)
        for b in dying:
            self.drop(b)

    def branch(self, step: types.IfStep) -> None:
        """Continue after the branch that keeps more memory."""
        before, ends = (self.held, self.alive), []
        for number in (step["then"], step["orelse"]):
            self.held, self.alive = dict(before[0]), before[1]
            self.block(number)
            made = self.header["blocks"][number]["outputs"]
            self.bind(step["binds"], made)
            for outer, inner in zip(step["outputs"], made, strict=True):
                self.pass_on(inner, outer)
            ends.append((self.alive, self.held))
        self.alive, self.held = max(ends, key=lambda end: end[0])

    def loop(self, step: types.LoopStep) -> None:
        body = self.header["blocks"][step["body"]]
        self.bind(step["enters"], [None, None, *step["carried"]])
        scratch = [step["repeat"]["buffer"]] if "repeat" in step else []
        for b in [*[v["buffer"] for v in body["inputs"]], *scratch]:
            self.take(b)
        for b in body["unused"]:
            self.drop(b)
        self.block(step["body"])
        self.bind(step["binds"], body["outputs"][1:])
        for made, outer in zip(body["outputs"][1:], step["outputs"], strict=True):
            self.pass_on(made, outer["buffer"])
        for b in [body["outputs"][0]["buffer"], *scratch]:
            self.drop(b)

    def pass_on(self, made: types.TensorValue, outer: int) -> None:
        if made["buffer"] in self.held:
            self.held[outer] = self.held.pop(made["buffer"])

    def bind(self, binds: types.Binds, values: Mapping[int, Any] | list[Any]) -> None:
        """Set symbols to the dims of these values, if the values are known."""
        for position, axis, name in binds:
            dims = values[position]["dims"] if values[position] else []
            if axis < len(dims):
                self.env[name] = self.value(dims[axis])
