"""Times runs to choose among candidates that give the same results. web/run/trial.js is its twin.

A pure state machine: its callers time the runs.
"""

from __future__ import annotations

from collections.abc import Sequence


def fastest(costs: Sequence[float], gain: float) -> int:
    """The cheapest candidate. Candidate 0 is the default: another must cost less than `gain` times as much, because
    smaller differences may be noise."""
    best = min(range(len(costs)), key=costs.__getitem__)
    return best if costs[best] < gain * costs[0] else 0


class Trial:
    """Candidates take turns, `rounds` runs each. Then the one with the shortest run settles. After `retry_after` more
    runs a new trial begins, because other programs may have disturbed this one.

    current: candidate of the next run; best: winner of the last complete trial, at first 0; settled: whether `current`
    is that winner; times: of each candidate's runs in this trial; runs: since the trial began, or since it settled.
    """

    def __init__(self, candidates: int, rounds: int, gain: float, retry_after: int) -> None:
        self.candidates, self.rounds, self.gain, self.retry_after = candidates, rounds, gain, retry_after
        self.best = 0
        self.restart()

    def restart(self) -> None:
        """Forget all times."""
        self.times: list[list[float]] = [[] for _ in range(self.candidates)]
        self.current = self.runs = 0
        self.settled = False

    def took(self, time: float) -> None:
        """The run of `current` took this long, in any unit."""
        self.runs += 1
        if self.settled:
            if self.runs == self.retry_after:
                self.restart()
            return
        self.times[self.current].append(time)
        if self.runs == self.rounds * self.candidates:
            self.current = self.best = fastest([min(times) for times in self.times], self.gain)
            self.settled, self.runs = True, 0
        else:
            self.current = self.runs % self.candidates


__all__ = ["Trial", "fastest"]
