"""Times runs to choose the order in which GEMV kernels read quantised weights.

Processors prefetch differently, and no API describes how (docs/design/weight-bandwidth.md#read-order-trial). The
results are the same in each order.
"""

from __future__ import annotations

from pyruntime.codegen.linear_memory import IN_TURNS, PREFETCH
from pyruntime.runtime.trial import Trial

ORDERS = [0, IN_TURNS, PREFETCH]
ROUNDS = 4
LEAST = 8192  # KiB that a run reads: less may stay in caches from run to run
GAIN = 0.97  # see `fastest`
RETRY_AFTER = 1000  # runs


class OrderTrial:
    """Of one session. Only runs that read about as many weights on as many threads are compared.

    read: KiB of weights that a run of this trial reads; is_shared: whether its runs use several threads
    """

    def __init__(self) -> None:
        self.trial = Trial(len(ORDERS), ROUNDS, GAIN, RETRY_AFTER)
        self.read = 0
        self.is_shared = False

    @property
    def order(self) -> int:
        """Of the next run."""
        return ORDERS[self.trial.current]

    @property
    def best(self) -> int:
        """The fastest order of the last complete trial, for runs that do not count for this one."""
        return ORDERS[self.trial.best]

    def took(self, read: int, time: float, is_shared: bool = False) -> None:
        """A run read so many KiB of weights in this time, in any unit."""
        if read < LEAST:
            return
        is_other = is_shared != self.is_shared or abs(read - self.read) > self.read / 8
        if read > 1.5 * self.read or (is_other and not self.trial.is_settled):
            self.read = read
            self.is_shared = is_shared
            self.trial.restart()
        else:
            self.trial.took(time)
