"""Ranges of values over samples, for scales of codes: their extremes, a percentile, or the range whose codes lose the
least information (entropy: Kullback-Leibler divergence of the histogram and that of the codes)."""

from __future__ import annotations

import numpy as np

from pyruntime.errors import InvalidInput

METHODS = ("range", "percentile", "entropy")
_BINS = 2048  # of magnitudes of each sign
_LEVELS = 256  # of codes
_STEP = 16  # bins between two ranges that entropy compares
_LEAST = 1e-30  # magnitudes, which can be divided into bins
_OUTSIDE = 1e-4  # the share of numbers that codes are taken to tell of what is outside of their range


class Histogram:
    """Counts of a value's numbers in equal bins around 0, which become twice as wide when a number is outside. Zeros do
    not count: they have a code of their own in every range, and are most of what Relu returns."""

    def __init__(self) -> None:
        self.low = self.high = self.most = 0.0
        self.counts = np.zeros(2 * _BINS)

    def add(self, name: str, x: np.ndarray) -> None:
        """Errors: InvalidInput for numbers that are not finite"""
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        if not np.isfinite(low + high):
            raise InvalidInput(f'"{name}" has numbers that are not finite on these samples', hint="keep its layers")
        self.low, self.high = min(self.low, low), max(self.high, high)
        largest = max(-low, high)
        self.most = self.most or (max(largest, _LEAST) if largest else 0.0)
        while largest > self.most:
            self.most *= 2
            inner = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.pad(inner, _BINS // 2)
        if self.most:
            self.counts += np.histogram(x[x != 0], 2 * _BINS, (-self.most, self.most))[0]

    def range(self, method: str, percentile: float) -> tuple[float, float]:
        """The range of codes; 0 is in it."""
        if method == "range" or not self.most:
            return self.low, self.high
        return _percentile(self, percentile) if method == "percentile" else _entropy(self)


def _percentile(h: Histogram, percentile: float) -> tuple[float, float]:
    """Leaves out as many of the smallest numbers as of the largest."""
    share = np.cumsum(h.counts) / h.counts.sum()
    outside = (1 - percentile / 100) / 2
    edges = np.linspace(-h.most, h.most, 2 * _BINS + 1)
    low, high = edges[np.searchsorted(share, outside)], edges[np.searchsorted(share, 1 - outside) + 1]
    return max(h.low, min(float(low), 0.0)), min(h.high, max(float(high), 0.0))


def _entropy(h: Histogram) -> tuple[float, float]:
    limits = [h.most * n / _BINS for n in range(_LEVELS // 2, _BINS + 1, _STEP)]
    found = [(max(h.low, -limit), min(h.high, limit)) for limit in limits]
    return min(found, key=lambda limits: _divergence(h, *limits))


def _divergence(h: Histogram, low: float, high: float) -> float:
    """Of the histogram and the one that codes of a range can tell: bins of one code have its mean, those outside of the
    range next to nothing."""
    first, last = (_BINS + int(f(x * _BINS / h.most)) for f, x in ((np.floor, low), (np.ceil, high)))
    p = h.counts / h.counts.sum()
    inner = p[first:last]
    level = np.arange(len(inner)) * _LEVELS // max(len(inner), _LEVELS)
    sums, counts = (np.bincount(level, x, _LEVELS) for x in (inner, inner > 0))
    q = np.full(len(p), _OUTSIDE / len(p))
    q[first:last] = np.where(inner > 0, sums[level] / np.maximum(counts[level], 1), 0)
    known = p > 0
    return float((p[known] * np.log(p[known] / q[known])).sum())


def scale_of(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of codes from -128 to 127 for a range with 0 in it."""
    scale = float(np.float32((high - low) / (_LEVELS - 1))) or 1.0
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


def check(method: str, percentile: float) -> None:
    """Errors: InvalidInput"""
    if method not in METHODS:
        raise InvalidInput(f'calibration "{method}" is not known', hint=f"it can be {', '.join(METHODS)}")
    if not 50 < percentile <= 100:
        raise InvalidInput(f"percentile is {percentile}", hint="a number above 50, up to 100")
