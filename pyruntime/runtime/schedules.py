"""Schedules of the learning rate: the rate of a step, by its number."""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, floor, pow, sqrt

PI = 3.141592653589793
LEAST_CHANGE = 0.00000001  # of a rate, by a plateau


def scheduled_rate(schedule: str, timing: Mapping[str, float], rate: float, step: int) -> float:
    """The rate of the step that follows `step` others. timing: settings of the schedule; rate: of the optimiser"""
    if schedule == "onecycle":
        return _one_cycle(timing, rate, step)
    warmup = timing.get("warmup", 0.0)
    if step < warmup:
        first = 0 if timing.get("from_zero", 0.0) > 0 else 1
        return rate * (step + first) / warmup
    after = step - warmup
    if schedule == "exponential":
        return rate * pow(timing.get("factor", 1.0), floor(after / timing.get("every", 1.0)))
    if schedule == "inversesqrt":
        return rate * _inverse_root(timing.get("timescale", 0.0), warmup, after)
    left = timing.get("steps", 0.0) - warmup
    share = min(after / left, 1.0) if left > 0 else 1.0
    return rate + (timing.get("end", 0.0) - rate) * _fallen(schedule, timing, share)


def _fallen(schedule: str, timing: Mapping[str, float], share: float) -> float:
    """How much of the way from the rate to the end is done after this share of the steps."""
    if schedule == "linear":
        return share
    if schedule == "polynomial":
        return 1.0 - pow(1.0 - share, timing.get("power", 1.0))
    cycles = timing.get("cycles", 0.5)
    if schedule == "cosine":
        return (1.0 - cos(2.0 * PI * cycles * share)) / 2.0
    if schedule == "restarts":
        return 1.0 if share >= 1.0 else (1.0 - cos(PI * (cycles * share % 1))) / 2.0
    return 0.0


def _inverse_root(timescale: float, warmup: float, after: float) -> float:
    """1/√(1 + steps after the warm-up / timescale), which is the warm-up, or else 10,000, if it is not given."""
    own = timescale if timescale > 0 else warmup if warmup > 0 else 10000.0
    return 1.0 / sqrt(1.0 + after / own)


def _one_cycle(timing: Mapping[str, float], rate: float, step: int) -> float:
    """Up to the rate in the first share of the steps, then down to nearly nothing, as torch's OneCycleLR."""
    steps = timing.get("steps", 0.0)
    low = rate / timing.get("divide", 25.0)
    top = timing.get("start", 0.3) * steps - 1.0
    if step <= top:
        return _between(timing, low, rate, step / top if top > 0 else 1.0)
    last = low / timing.get("final_divide", 1e4)
    left = steps - 1.0 - top
    return _between(timing, rate, last, min((step - top) / left, 1.0) if left > 0 else 1.0)


def _between(timing: Mapping[str, float], start: float, end: float, share: float) -> float:
    if timing.get("linear", 0.0) > 0:
        return start + (end - start) * share
    return end + (start - end) / 2.0 * (1.0 + cos(PI * share))


class Plateau:
    """Lowers the rate when what is observed no longer improves, as torch's ReduceLROnPlateau.

    factor: of the rate, so far; best: value; bad: observations since it; wait: of these, how many do not count after a
    reduction; is_known: whether anything was observed"""

    def __init__(self, timing: Mapping[str, float]) -> None:
        self.timing = timing
        self.factor = 1.0
        self.best = 0.0
        self.bad = 0
        self.wait = 0
        self.is_known = False

    def observe(self, value: float, rate: float) -> None:
        """value: a loss, or with `largest` what should grow; rate: of the optimiser"""
        timing = self.timing
        if self._is_better(value):
            self.best = value
            self.bad = 0
            self.is_known = True
        else:
            self.bad += 1
        if self.wait > 0:
            self.wait -= 1
            self.bad = 0
        if self.bad > timing.get("patience", 10.0):
            lowest = timing.get("end", 0.0) / rate if rate > 0 else 0.0
            lower = max(self.factor * timing.get("factor", 0.1), lowest)
            if (self.factor - lower) * rate > LEAST_CHANGE:
                self.factor = lower
            self.wait = floor(timing.get("cooldown", 0.0))
            self.bad = 0

    def _is_better(self, value: float) -> bool:
        if not self.is_known:
            return value == value
        threshold = self.timing.get("threshold", 1e-4)
        if self.timing.get("largest", 0.0) > 0:
            return value > self.best * (1.0 + threshold)
        return value < self.best * (1.0 - threshold)
