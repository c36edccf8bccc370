"""Data of a comparison: its options, a row for each model and number of threads, and their mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Options:
    """names: models; worker: `env.wasm.proxy` for both; seconds, rounds: of the turns of a model, at most."""

    names: list[str]
    threads: list[int]
    provider: str = "wasm"
    jax: bool = True
    worker: bool = False
    seconds: float = 6.0
    rounds: int = 40


@dataclass
class Row:
    """One model with one number of threads. times: median ms; create, first: ms; errors: why a runtime has no time;
    difference: how far results are from those expected, a number or why they cannot be compared."""

    model: str
    threads: int
    flops: int
    tolerance: float
    start: dict[str, float] = field(default_factory=dict)
    create: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    difference: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, int] = field(default_factory=dict)

    def ratio(self, other: str = "peer") -> float:
        """The ratio of times, above 1 if we are faster; NaN if a time is missing."""
        return self.times.get(other, math.nan) / self.times.get("ours", math.nan)

    def wrong(self, runtime: str = "ours") -> bool:
        found = self.difference.get(runtime, 0.0)
        return isinstance(found, str) or found > self.tolerance

    def counts(self) -> bool:
        """Whether the ratio may go into a mean."""
        return not self.wrong() and not math.isnan(self.ratio())

    def share(self, peak: float) -> float:
        """FLOPs of products and convolutions over what all threads can do with 128-bit vectors; NaN below 0.1 GFLOP."""
        time = self.times.get("ours", math.nan)
        return self.flops / (time / 1000) / (peak * self.threads) if self.flops >= 1e8 else math.nan


def geomean(rows: list[Row]) -> float:
    """The geometric mean of the ratios to the peer, without models that we (see `warn`) or the peer fail."""
    return geomean_of([row.ratio() for row in rows if row.counts()])


def geomean_of(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
