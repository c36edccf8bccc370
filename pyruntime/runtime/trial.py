"""Times runs to choose among candidates that give the same results.

A pure state machine: its callers time the runs.
"""

from __future__ import annotations

from collections.abc import Sequence


def fastest(costs: Sequence[float], gain: float) -> int:
    """The cheapest candidate. Candidate 0 is the default: another must cost less than `gain` times as much, because
    smaller differences may be noise."""
    best = costs.index(min(costs))
    return best if costs[best] < gain * costs[0] else 0


class Trial:
    """Candidates take turns, `rounds` runs each. Then the candidate with the shortest run wins. After `retry_after`
    more runs a new trial begins, because other programs may have disturbed this one.

    current: candidate of the next run; best: winner of the last complete trial, at first 0; is_settled: whether
    `current` is that winner; times: of each candidate's runs in this trial; runs: since the trial began, or since it
    settled.
    """

    def __init__(self, candidates: int, rounds: int, gain: float, retry_after: int) -> None:
        self.rounds = rounds
        self.gain = gain
        self.retry_after = retry_after
        self.times: list[list[float]] = [[] for _ in range(candidates)]
        self.current = 0
        self.best = 0
        self.runs = 0
        self.is_settled = False

    def restart(self) -> None:
        """Forget all times."""
        self.times = [[] for _ in self.times]
        self.current = 0
        self.runs = 0
        self.is_settled = False

    def took(self, time: float) -> None:
        """The run of `current` took this long, in any unit."""
        self.runs += 1
        if self.is_settled:
            if self.runs == self.retry_after:
                self.restart()
            return
        self.times[self.current].append(time)
        if self.runs == self.rounds * len(self.times):
            self.best = fastest([min(times) for times in self.times], self.gain)
            self.current = self.best
            self.runs = 0
            self.is_settled = True
        else:
            self.current = self.runs % len(self.times)
