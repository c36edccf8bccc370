"""What `fit` decides: the order of the data, means of losses, which epoch was best, when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pyruntime.errors import InvalidInput

MODULUS = 2147483647  # of the Lehmer generator
FACTOR = 48271


@dataclass(eq=False, slots=True)
class FitEpoch:
    """epoch: its number, from 1; loss: mean of its batches, each before its step; validation: mean loss of the held-out
    data after it, or None; rate: of the last step; steps: how many changed weights; is_best: whether no earlier epoch
    had a lower loss of held-out data (without these: of its batches)"""

    epoch: int
    loss: float
    validation: float | None
    rate: float
    steps: int
    is_best: bool


class LossMean:
    """Of batches of unequal sizes: the mean over their rows."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.rows = 0

    def add(self, loss: float, rows: int) -> None:
        self.sum += loss * rows
        self.rows += rows

    @property
    def mean(self) -> float:
        return self.sum / self.rows if self.rows > 0 else inf - inf


def _check_count(name: str, value: int) -> None:
    """Errors: InvalidInput, also for NaN"""
    if not value >= 1 or value % 1 != 0:
        raise InvalidInput(f"{name} is not a whole number from 1 on")


class FitPlan:
    """patience: of epochs without a better one, or None for all"""

    def __init__(self, epochs: int, batch_size: int, patience: int | None) -> None:
        _check_count("epochs", epochs)
        _check_count("batch_size", batch_size)
        if patience is not None:
            _check_count("patience", patience)
        self.epochs = epochs
        self.patience = patience
        self.done: list[FitEpoch] = []
        self.best = 0
        self.lowest = inf
        self.losses = LossMean()
        self.batches = 0
        self.steps = 0
        self.rate = 0.0
        self.is_stopped = False

    @property
    def epoch(self) -> int:
        """The number of the epoch that runs or comes next."""
        return len(self.done) + 1

    @property
    def is_over(self) -> bool:
        waited = len(self.done) - self.best
        is_idle = self.patience is not None and len(self.done) > 0 and waited >= self.patience
        return self.is_stopped or is_idle or len(self.done) >= self.epochs

    def begin(self) -> None:
        self.losses = LossMean()
        self.batches = 0
        self.steps = 0

    def add(self, loss: float, rate: float, applied: bool, rows: int) -> None:
        """After a step. A batch that changed nothing does not count."""
        self.batches += 1
        self.rate = rate
        if applied:
            self.steps += 1
            self.losses.add(loss, rows)

    def end(self, validation: float | None) -> FitEpoch:
        """Errors: InvalidInput if there was no batch"""
        epoch = self.epoch
        if self.batches == 0:
            hint = "an iterator ends with its first epoch: give a function that returns one" if epoch > 1 else ""
            raise InvalidInput(f"the data had no batch in epoch {epoch}", hint=hint)
        loss = self.losses.mean
        watched = loss if validation is None else validation
        is_best = watched < self.lowest
        found = FitEpoch(epoch, loss, validation, self.rate, self.steps, is_best)
        if is_best:
            self.lowest = watched
            self.best = epoch
        self.done.append(found)
        return found


def row_order(count: int, seed: int, epoch: int) -> list[int]:
    """The numbers below `count`, shuffled by seed and epoch: the same in Python and JavaScript. epoch: its number, plus
    the batches of the session before `fit`, so that calls in a loop have different orders"""
    order = list(range(count))
    state = 1 + (seed % 65536 * 32749 + epoch * 7919) % (MODULUS - 1)
    for n in range(count):
        state = state * FACTOR % MODULUS
        other = n + state % (count - n)
        first = order[n]
        order[n] = order[other]
        order[other] = first
    return order
