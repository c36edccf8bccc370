"""Times of a standard Program and of another one that run in turns, for `tune`.

Each is first in every other turn. Of a kernel the best time counts. Of runs the median ratio within a turn counts,
because both runs of a turn share the machine's other load. Times are in the unit of the caller's clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

LEAST = 4  # turns


@dataclass(eq=False, slots=True)
class Times:
    """run: the time of a run; kernels: the times of its kernels, by the label of their node"""

    run: float = math.inf
    kernels: dict[str, float] = field(default_factory=dict)

    def add(self, nodes: Sequence[str], times: Sequence[float]) -> None:
        """Count the kernels of another run. nodes, times: of each call of a kernel; a node may have several"""
        sums: dict[str, float] = {}
        for n, node in enumerate(nodes):
            sums[node] = sums.get(node, 0.0) + times[n]
        for node, time in sums.items():
            self.kernels[node] = min(time, self.kernels.get(node, time))


class Turns:
    """both: the times of the standard Program and of the other one"""

    def __init__(self) -> None:
        self.both = [Times(), Times()]
        self._ratios: list[float] = []

    @property
    def are_few(self) -> bool:
        """Whether more turns are needed, however long they took."""
        return len(self._ratios) < LEAST

    @property
    def order(self) -> list[int]:
        """Which of `both` runs first in the next turn, and which then."""
        return [1, 0] if len(self._ratios) % 2 == 1 else [0, 1]

    def add(self, took: Sequence[float]) -> None:
        """The times of both runs of a turn, in the order of `both`."""
        own, its = self.both
        self._ratios.append(took[0] / took[1])
        own.run = min(own.run, took[0])
        its.run = own.run / median(self._ratios)


def median(numbers: Sequence[float]) -> float:
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 == 1 else (ordered[half - 1] + ordered[half]) / 2
