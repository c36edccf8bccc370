"""Ranges of values over samples, for scales of codes: their extremes, a percentile, or the range whose codes lose the
least information (entropy: Kullback-Leibler divergence of the histogram and that of the codes)."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import ceil, floor, log

from pyruntime.ir.dtype import F32, I32, I64
from pyruntime.onnx.write import GraphWriter, value_info

METHODS = ("range", "percentile", "entropy")
_BINS = 2048  # of magnitudes of each sign
_LEVELS = 256  # of codes
_STEP = 16  # bins between two ranges that entropy compares
_OUTSIDE = 1e-4 / (2 * _BINS)  # the share of numbers that codes are taken to tell of a bin outside of their range


@cache
def histogram_model() -> bytes:
    """Counts "found" in equal bins from -most to most. Zeros do not count: they have a code of their own in
    every range, and are most of what Relu returns."""
    g = GraphWriter()
    zero = g.constant(F32, 0, shape=())
    place = g("Mul", g("Add", g("Div", "found", "most"), g.constant(F32, 1)), g.constant(F32, _BINS))
    place = g("Cast", g("Clip", g("Floor", place), zero, g.constant(F32, 2 * _BINS - 1, shape=())), to=I64.code)
    nothing = g("Cast", g("Expand", zero, g.constant(I64, 2 * _BINS)), to=I32.code)
    ones = g("Cast", g("Not", g("Equal", "found", zero)), to=I32.code)
    g("ScatterElements", nothing, place, ones, reduction="add", output="counts")
    inputs = [value_info("found", F32, ("n",)), value_info("most", F32, (1,))]
    return g.model(inputs, [value_info("counts", I32, (2 * _BINS,))])


def range_of(low: float, high: float, counts: Sequence[int], method: str, percentile: float) -> tuple[float, float]:
    """The range of codes, with 0 in it. low, high: of all numbers; counts: of bins from -max(-low, high) on"""
    most = max(-low, high)
    if method == "range" or not any(counts):
        return low, high
    below = [0, *accumulate(counts)]
    if method == "percentile":  # leaves out as many of the smallest numbers as of the largest
        outside = below[-1] * (1 - percentile / 100) / 2
        first, last = bisect_left(below, outside) - 1, bisect_left(below, below[-1] - outside)
        return max(low, min(first / _BINS - 1, 0) * most), min(high, max(last / _BINS - 1, 0) * most)
    kinds = [0, *accumulate(n > 0 for n in counts)]
    limits = [most * n / _BINS for n in range(_LEVELS // 2, _BINS + 1, _STEP)]
    ranges = [(max(low, -limit), min(high, limit)) for limit in limits]
    return min(ranges, key=lambda found: _divergence(below, kinds, *(x / most for x in found)))


def _divergence(below: Sequence[int], kinds: Sequence[int], low: float, high: float) -> float:
    """Of the histogram and the one that codes of a range can tell, less what is equal for all ranges: bins of one code
    have its mean, those outside of the range next to nothing. below, kinds: numbers, and bins with any, below each"""
    first, last = _BINS + floor(low * _BINS), _BINS + ceil(high * _BINS)
    count = last - first
    edges = [first + min(count, ceil(k * max(count, _LEVELS) / _LEVELS)) for k in range(_LEVELS + 1)]
    told = 0.0
    for a, b in zip(edges, edges[1:], strict=False):
        if n := below[b] - below[a]:
            told += n * log(n / below[-1] / (kinds[b] - kinds[a]))
    return -told - (below[-1] - below[last] + below[first]) * log(_OUTSIDE)


def scale_of(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of codes from -128 to 127 for a range with 0 in it."""
    scale = as_float32((high - low) / (_LEVELS - 1)) or 1.0
    return scale, max(-128, min(127, round(-128 - low / scale)))


def as_float32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])
