"""In which order kernels of few rows read codes, found out by runs. web/run/order_trial.js is its mirror.

What is fastest depends on how a processor fetches ahead, which no one tells
(docs/design/weight-bandwidth.md#read-order-trial). The results are the same.
"""

from __future__ import annotations

ORDER, READ = 528, 592  # words of linear memory: providers/wasm/schedules/panel_order.py
ORDERS = (0, 1, 2)  # as they lie; in turns; as they lie, and asked for ahead
TRIED = 4 * len(ORDERS)  # runs
LEAST = 8192  # KiB that a run reads: less may stay in caches from run to run
BETTER = 0.97  # times as long as the first order takes: less may be noise
AGAIN = 1000  # runs until orders are tried anew: what took the processor may have misled them


class OrderTrial:
    """Of one session. Runs count that read about as much as the first; each order has its turn in each round."""

    def __init__(self) -> None:
        self.order = ORDERS[0]  # of the next run
        self.read = 0  # KiB of a run
        self.times: list[float] = []  # seconds of runs on trial
        self.runs = 0  # after it

    def took(self, read: int, seconds: float) -> None:
        """A run read so many KiB in this time."""
        if read < LEAST:
            return
        settled = len(self.times) == TRIED
        self.runs += settled
        if settled and self.runs < AGAIN and read <= 1.5 * self.read:
            return
        if settled or abs(read - self.read) > self.read / 8:
            self.read, self.times, self.runs = read, [], 0
        else:
            self.times.append(seconds)
        self.order = self._best() if len(self.times) == TRIED else ORDERS[len(self.times) % len(ORDERS)]

    def _best(self) -> int:
        first, *others = (min(self.times[n :: len(ORDERS)]) for n in range(len(ORDERS)))
        best = min(others)
        return ORDERS[1 + others.index(best)] if best < BETTER * first else ORDERS[0]
