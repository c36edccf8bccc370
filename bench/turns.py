"""Times of two runtimes that take turns: ours and the peer's, as columns and ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from bench.table import number

WHOSE = ("ours", "peer")
Key = tuple[str, ...]  # of what is measured
Times = Mapping[Key, Sequence[float]]  # (*key, whose): ms


def medians(times: Times, key: Key) -> tuple[float, float]:
    """Of ours and of the peer's; NaN if nothing is measured."""
    ours, peer = (statistics.median(times.get((*key, whose)) or [math.nan]) for whose in WHOSE)
    return ours, peer


def ratio(times: Times, key: Key) -> float:
    """Our time over the peer's; NaN if one is missing."""
    ours, peer = medians(times, key)
    return ours / peer


def columns(times: Times, keys: Iterable[Key]) -> str:
    """For each key our time, the peer's, and the ratio."""
    out = ""
    for key in keys:
        out += "".join(f"{number(median, 4):>8}" for median in medians(times, key)) + f"{ratio(times, key):7.2f}"
    return out
