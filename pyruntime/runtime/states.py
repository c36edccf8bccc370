"""The memory at one point of a run. States form a tree: a step leads from one state to the next, and transitions are
memoised by key, so that a second run with the same shapes plans nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pyruntime.program.dims import Env
from pyruntime.runtime.arena import GPU, Arena, Span
from pyruntime.runtime.layout import Capacities
from pyruntime.runtime.step_layout import LiveRange, lay_out


class Place:
    """The allocators of both memories, and the span of each buffer. Immutable once a layout leads to it, so that states
    with different shapes share it. layouts: those that start from here, by step; canonical: the first place with this
    content."""

    def __init__(self, arena: Arena, gpu: Arena, spans: dict[int, Span]) -> None:
        self.arena = arena
        self.gpu = gpu
        self.spans = spans
        self.layouts: dict[str, list[Layout]] = {}
        self.canonical: Place | None = None

    def copy(self) -> Place:
        """A mutable copy."""
        return Place(self.arena.copy(), self.gpu.copy(), self.spans.copy())

    def with_only(self, buffers: list[int]) -> Place:
        """A copy with only these buffers."""
        copy = self.copy()
        for buffer in self.spans.keys():
            if buffer not in buffers:
                copy.drop(buffer)
        for arena in [copy.arena, copy.gpu]:
            arena.peak = arena.used
            arena.requested = arena.used - arena.weights
            arena.top = arena.end
        return copy

    def take(self, buffer: int, size: int, on_gpu: bool) -> None:
        """Allocate a buffer."""
        self.spans[buffer] = self.gpu.alloc(size) if on_gpu else self.arena.alloc(size)

    def drop(self, buffer: int) -> None:
        """Free a buffer's memory, if it has any."""
        span = self.spans.get(buffer)
        if span is None:
            return
        del self.spans[buffer]
        if span.address >= GPU:
            self.gpu.release(span)
        else:
            self.arena.release(span)

    def rename(self, buffer: int, name: int) -> None:
        """Move the memory of one buffer to another."""
        span = self.spans.get(buffer)
        if span is not None and buffer != name:
            del self.spans[buffer]
            self.spans[name] = span

    def lay_out_step(self, found: dict[int, LiveRange], calls: int) -> None:
        """Allocate the live ranges of a step, and become the place after it."""
        last: dict[LiveRange, int] = {}  # the last of the buffers that share a range in place
        for buffer, live in found.items():
            last[live] = buffer
        linear: list[LiveRange] = []
        on_gpu: list[LiveRange] = []
        for live in last:
            if live.on_gpu or live.address >= GPU:
                on_gpu.append(live)
            else:
                linear.append(live)
        if len(linear) > 0:
            lay_out(self.arena, linear, calls)
        if len(on_gpu) > 0:
            lay_out(self.gpu, on_gpu, calls)
        for buffer in found.keys():
            self.spans.pop(buffer, None)
        for live, buffer in last.items():
            if live.dies >= calls:
                self.spans[buffer] = Span(live.address, live.size)

    def content(self) -> str:
        """Equal for places that lead to equal plans."""
        spans = sorted([(buffer, span.address, span.size) for buffer, span in self.spans.items()], key=lambda s: s[0])
        texts = [f"{buffer}@{address}+{size}" for buffer, address, size in spans]
        return f"{self.arena.content()};{self.gpu.content()};{','.join(texts)}"


@dataclass(eq=False, slots=True)
class Layout:
    """Addresses of the buffers of a step, with spare capacity. after: the memory after it; spans: of the buffers that
    the step's calls allocate or free; words: its argument blocks with addresses, but without parameters and work;
    sizes, bindings: on the GPU, bytes of each call's buffers, and what the GPU keeps for them; duration: of its last
    run, in the executor's unit; portions: work units of each call between two checks whether to stop; batch: steps
    of the next batch inside WebAssembly (repeats.py)."""

    after: Place
    capacities: Capacities
    spans: dict[int, LiveRange] = field(default_factory=dict)
    words: Any = None
    sizes: list[list[int]] | None = None
    bindings: Any = None
    duration: float = inf
    portions: list[int] | None = None
    batch: int = 1


@dataclass(eq=False, slots=True)
class Transition:
    """The plan of one step. table: address of its argument blocks; generation: of the tables; is_parallel: whether some
    call is worth several threads; prepared: what the GPU runs."""

    state: State
    layout: Layout
    table: int = 0
    generation: int = 0
    is_parallel: bool = False
    prepared: Any = None


class State:
    """A place and the values of symbols. next: transitions by key."""

    __slots__ = ("env", "next", "place")

    def __init__(self, place: Place, env: Env) -> None:
        self.place = place
        self.env = env
        self.next: dict[str, Transition] = {}


class Change:
    """A transition without calls: new values of symbols, and buffers that are allocated, freed or renamed. buffers,
    sizes: to allocate; name: a key of the changes to buffers."""

    def __init__(self, env: Env) -> None:
        self.env = env.copy()
        self.buffers: list[int] = []
        self.sizes: list[int] = []
        self.moves: list[Callable[[Place, list[int]], None]] = []
        self.name = ""

    def take(self, buffer: int, size: int, on_gpu: bool) -> None:
        n = len(self.buffers)
        self.buffers.append(buffer)
        self.sizes.append(size)
        self.moves.append(lambda place, capacities: place.take(buffer, capacities[n], on_gpu))
        self.name += f"+{buffer}"

    def drop(self, buffers: list[int]) -> None:
        for buffer in buffers:
            self._drop(buffer)

    def _drop(self, buffer: int) -> None:
        self.moves.append(lambda place, capacities: place.drop(buffer))
        self.name += f"-{buffer}"

    def rename(self, buffer: int, name: int) -> None:
        self.moves.append(lambda place, capacities: place.rename(buffer, name))
        self.name += f">{buffer},{name}"
