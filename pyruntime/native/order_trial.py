"""In which order kernels of few rows read weights, found out by runs. web/run/order_trial.js is its mirror.

What is fastest depends on how a processor fetches ahead, which no one tells (docs/adr/0114). The results are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ORDER = 528  # in the reserved bytes at address 0 (providers/wasm/schedules/streams.py), and behind it how much was read
ORDERS = (0, 1, 4, 2)  # as they lie; codes in turns; asked for ahead; floats one after the other, too
ROUNDS = 4
LEAST = 8192  # KiB that a run reads: less may stay in caches from run to run
BETTER = 0.97  # times as long as the first order takes: less may be noise


class OrderTrial:
    """Of one session. Runs count that read about as much as the one before; each order has its turn in each round."""

    def __init__(self) -> None:
        self.read = 0  # KiB of a run
        self.times: list[float] = []  # seconds of runs on trial
        self.settled = False

    def took(self, memory: np.ndarray[Any, np.dtype[np.uint8]], seconds: float) -> None:
        """A run took so long; sets the next one's order."""
        words = memory[ORDER : ORDER + 8].view("<i4")
        read, words[1] = int(words[1]), 0
        if read < LEAST or (self.settled and read <= 1.5 * self.read):
            return
        if self.settled or abs(read - self.read) > self.read / 8:
            self.read, self.times, self.settled = read, [], False
        else:
            self.times.append(seconds)
            self.settled = len(self.times) == ROUNDS * len(ORDERS)
        words[0] = self._best() if self.settled else ORDERS[len(self.times) % len(ORDERS)]

    def _best(self) -> int:
        first, *others = (min(self.times[n :: len(ORDERS)]) for n in range(len(ORDERS)))
        best = min(others)
        return ORDERS[1 + others.index(best)] if best < BETTER * first else ORDERS[0]
