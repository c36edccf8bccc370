"""Times runs to choose the order in which GEMV kernels read quantised weights. web/run/order_trial.js is its twin.

Processors prefetch differently, and no API describes how (docs/design/weight-bandwidth.md#read-order-trial). The
results are the same in each order.
"""

from __future__ import annotations

from pyruntime.codegen.linear_memory import IN_TURNS, PREFETCH
from pyruntime.native.execution.trial import Trial

ORDERS = (0, IN_TURNS, PREFETCH)
ROUNDS = 4
LEAST = 8192  # KiB that a run reads: less may stay in caches from run to run
GAIN = 0.97  # see `fastest`
RETRY_AFTER = 1000  # runs


class OrderTrial:
    """Of one session. Only runs that read about as many weights are compared."""

    def __init__(self) -> None:
        self.trial = Trial(len(ORDERS), ROUNDS, GAIN, RETRY_AFTER)
        self.read = 0  # KiB of a run in this trial

    @property
    def order(self) -> int:
        """Of the next run."""
        return ORDERS[self.trial.current]

    def took(self, read: int, seconds: float) -> None:
        """A run read so many KiB of weights in this time."""
        if read < LEAST:
            return
        if read > 1.5 * self.read or not self.trial.settled and abs(read - self.read) > self.read / 8:
            self.read = read
            self.trial.restart()
        else:
            self.trial.took(seconds)


__all__ = ["OrderTrial"]
