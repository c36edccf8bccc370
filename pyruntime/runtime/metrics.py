"""What a session counts of its runs, for dashboards and logs (docs/watching.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RECENT = 1024  # runs whose times are kept for the quantiles


@dataclass(eq=False, slots=True)
class EngineCounts:
    """What the executors of a session count. recovered: how often they were loaded again after a fault; waiting: calls
    that wait for their turn; compiled: Programs; bytes: of linear memory and of the GPU's."""

    recovered: int
    waiting: int
    compiled: int
    runs: int
    planned: int
    bytes: int


class RunCounts:
    """Runs that have ended, however they ended, and the milliseconds of the latest ones that gave results."""

    def __init__(self) -> None:
        self.failed = 0
        self.stopped = 0
        self._succeeded = 0
        self._longest = 0.0
        self._recent: list[float] = []
        self._new: list[float] = []  # times that are not counted yet: a run only appends to it

    def succeed(self, milliseconds: float) -> bool:
        """Note a run. Returns whether `settle` is due."""
        self._new.append(milliseconds)
        return len(self._new) >= RECENT

    def settle(self) -> None:
        """Count what `succeed` has noted."""
        new = self._new
        self._new = []
        self._succeeded += len(new)
        self._longest = max([self._longest, *new])
        self._recent = [*self._recent, *new][-RECENT:]

    def fail(self, is_stopped: bool) -> str:
        """Count a run without results. is_stopped: whether its caller stopped it. Returns its outcome, for an event"""
        if is_stopped:
            self.stopped += 1
        else:
            self.failed += 1
        return "stopped" if is_stopped else "failed"

    def report(self, engine: EngineCounts) -> Mapping[str, Any]:
        self.settle()
        times = sorted(self._recent)
        return {
            "runs": self._succeeded + self.failed + self.stopped,
            "failed": self.failed,
            "stopped": self.stopped,
            "recovered": engine.recovered,
            "waiting": engine.waiting,
            "milliseconds": {"p50": quantile(times, 50), "p95": quantile(times, 95), "max": self._longest},
            "compiled": engine.compiled,
            "plans": {"made": engine.planned, "found": engine.runs - engine.planned},
            "bytes": engine.bytes,
        }


def quantile(times: Sequence[float], percent: int) -> float:
    """The smallest of these sorted times that so many percent of them do not exceed (nearest rank); 0 without any."""
    return times[max(0, -(-len(times) * percent // 100) - 1)] if len(times) > 0 else 0.0
