"""Reports of the memory that a session uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyruntime.runtime.arena import Arena
from pyruntime.runtime.planner import Figures


@dataclass(frozen=True, slots=True)
class Stats:
    """One memory. weights: bytes that stay for the session; peak: most bytes in use at once besides weights; requested:
    bytes of all buffers of a run, where equal rounds of a loop count once; top: the highest address that was used."""

    weights: int
    peak: int
    requested: int
    top: int

    @classmethod
    def of_arena(cls, root: Arena, figures: Figures, further: int = 0) -> Stats:
        """root: before a run; further: bytes of weights in further memories."""
        weights, peak = root.weights + further, figures.peak - root.weights
        return cls(weights, peak, figures.requested, figures.top - root.base + further)

    @property
    def reuse(self) -> float:
        """How many times a run used each byte."""
        return self.requested / self.peak if self.peak else 0.0

    @property
    def fragmentation(self) -> float:
        """Share of the arena up to `top`, besides weights, that was not in use at its peak."""
        return 1 - self.peak / (self.top - self.weights) if self.top > self.weights else 0.0


@dataclass(frozen=True, slots=True)
class MemoryReport(Stats):
    """All memories of a session; providers: each memory ("wasm": linear, "webgpu": GPU); arena: bytes from the
    system, with argument blocks and growth in steps; tensors: bytes of all GPU tensors on the session's device, even
    those of other sessions."""

    providers: dict[str, Stats]
    arena: int
    tensors: int = 0

    @classmethod
    def of(cls, providers: dict[str, Stats], arena: int, tensors: int = 0) -> MemoryReport:
        sums = {f.name: sum(getattr(s, f.name) for s in providers.values()) for f in fields(Stats)}
        return cls(**sums, providers=providers, arena=arena, tensors=tensors)

    @property
    def held(self) -> int:
        """Bytes from the system, linear and on the GPU, without tensors of callers."""
        return self.arena + (self.providers["webgpu"].top if "webgpu" in self.providers else 0)

    def with_twins(self, others: Sequence[MemoryReport]) -> MemoryReport:
        """Of several linear memories that share their weights."""
        if not others:
            return self
        mine, *theirs = (r.providers["wasm"] for r in (self, *others))
        peak, requested = (sum(getattr(s, name) for s in (mine, *theirs)) for name in ("peak", "requested"))
        wasm = Stats(mine.weights, peak, requested, mine.top + sum(s.top - mine.weights for s in theirs))
        arena = self.arena + sum(r.arena - mine.weights for r in others)
        return MemoryReport.of({**self.providers, "wasm": wasm}, arena, self.tensors)
