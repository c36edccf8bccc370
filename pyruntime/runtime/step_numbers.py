"""The numbers that the host gives a step of training, in double precision: rate, corrections of Adam, scales."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from pyruntime.runtime.schedules import Plateau, scheduled_rate

# places in the feed
RATE = 0  # of learning, after the schedule
SCALE = 1  # of gradients: one over the number of batches
KEEP = 2  # 1: add to the gradients of earlier batches, 0: begin again
SEED = 3
DRAW = 4  # number of the batch, so that each has random numbers of its own
LOSS_SCALE = 5  # what the loss is multiplied by before its gradients, so that small ones are no zeros in float16
NUMBER = 6  # of the step, from 1
COUNT = 7  # of these numbers. Then each trained weight has OWN ones, those of the first weight at the places
FIRST = 7  # 1 / (1 - β₁ⁿ), in its nth step; 0 if it is frozen, like the others
SECOND = 8  # 1 / √(1 - β₂ⁿ)
NTH = 9  # n
OWN = 3

# Dynamic loss scaling, as PyTorch's GradScaler does it
FIRST_SCALE = 65536.0
LEAST_SCALE = 0.00006103515625
MOST_SCALE = 16777216.0
GROWTH_STEPS = 2000

WORD = 1 << 24  # floats hold integers below it


class StepNumbers:
    """The numbers of one session.

    settings: of the optimiser; schedule: its name; timing: its settings; loss_scale: what losses are multiplied by
        (0: a scale that adapts)
    step: number of steps so far; batch: number of batches so far; waiting: batches whose gradients wait for a step;
    losses, counted: sum and number of the losses of these batches, which a checkpoint does not have; is_dynamic:
    whether the scale adapts; good_batches: how many had finite gradients since it last changed"""

    def __init__(
        self, settings: Mapping[str, float], schedule: str, timing: Mapping[str, float], seed: int, loss_scale: float
    ) -> None:  # fmt: skip
        self.rate = settings.get("rate", 0.0)
        self.beta1 = settings.get("beta1", 0.0)
        self.beta2 = settings.get("beta2", 0.0)
        self.schedule = schedule
        self.timing = timing
        self.plateau = Plateau(timing)
        self.seed = seed
        self.is_dynamic = loss_scale == 0.0
        self.loss_scale = FIRST_SCALE if loss_scale == 0.0 else loss_scale
        self.step = 0
        self.batch = 0
        self.waiting = 0
        self.losses = 0.0
        self.counted = 0
        self.good_batches = 0

    def rate_now(self) -> float:
        """The learning rate of the next step."""
        return scheduled_rate(self.schedule, self.timing, self.rate, self.step) * self.plateau.factor

    def numbers(self, rate: float, scale: float) -> list[float]:
        """The feed, but for what weights have. rate: of this step; scale: of gradients"""
        keep = 1.0 if self.waiting > 0 else 0.0
        seed, batch = self.seed % WORD, self.batch % WORD
        return [rate, scale, keep, seed, batch, self.loss_scale, (self.step + 1) % WORD]

    def of_weight(self, missed: int) -> list[float]:
        """Those of a weight that was frozen in so many steps."""
        n = self.step + 1 - missed
        return [1.0 / (1.0 - power(self.beta1, n)), 1.0 / sqrt(1.0 - power(self.beta2, n)), n % WORD]

    def adapts(self, has_loss: bool, is_good: bool) -> bool:
        """Adapt the scale to a batch; returns whether a smaller scale may help the next one. has_loss: its loss is
        finite; is_good: its gradients are, too."""
        if not self.is_dynamic or not has_loss:
            return False
        if is_good:
            self.good_batches += 1
            if self.good_batches >= GROWTH_STEPS:
                self.good_batches = 0
                self.loss_scale = min(self.loss_scale * 2.0, MOST_SCALE)
            return False
        self.good_batches = 0
        if self.loss_scale <= LEAST_SCALE:
            return False
        self.loss_scale = self.loss_scale / 2.0
        return True


def power(base: float, exponent: int) -> float:
    """base to a power from 0 on, by squaring."""
    result = 1.0
    while exponent > 0:
        if exponent % 2 == 1:
            result *= base
        base *= base
        exponent //= 2
    return result
