"""Decides what a training session does: which run a call needs, what its result means, and when to warn."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pyruntime.errors import ExecutionError, InvalidInput
from pyruntime.runtime.step_numbers import StepNumbers
from pyruntime.runtime.trained_weights import TrainedWeights

# names in the graph of a step
NUMBERS = "training:numbers"  # the feed with the numbers of a step (step_numbers.py)
APPLY = "training:apply"  # a feed of 1 or 0 elements: whether the optimiser runs
RESULT = "training:result"  # loss, whether it and all gradients are finite, norm of the gradients
APPLIED = "training:applied"  # the same, of a step with the gradients of several batches
LOSS = "training:loss"  # of an evaluation

# what a run does
STEP = "step"  # a step of one batch
ADD = "add"  # adds the gradients of a batch to those that wait
ADD_FIRST = "add first"  # the same, as the first half of a step
SHOW = "show"  # computes the gradients of a batch, in place of those that wait
UPDATE = "update"  # a step with the gradients that wait
EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class StepResult:
    """loss: of the batch, before the step, or the mean of the batches that waited for it; norm: of all gradients; rate:
    of learning; step: number of steps so far; applied: whether weights were changed: not if the loss or a gradient is
    not finite"""

    loss: float
    norm: float
    rate: float
    step: int
    applied: bool


@dataclass(eq=False, slots=True)
class StepRun:
    """A run of the graph. does: STEP, ADD, …; outputs: to ask for; numbers: the feed NUMBERS; rate: of learning, None
    if the schedule's; loss: of the batch whose step an update completes"""

    does: str
    outputs: list[str]
    numbers: list[float]
    used_rate: float
    rate: float | None = None
    loss: float | None = None

    @property
    def applies(self) -> int:
        """Number of elements of the feed APPLY, which graphs that accumulate have."""
        return 1 if self.does == UPDATE else 0


@dataclass(eq=False, slots=True)
class StepOutcome:
    """After a run. event: what listeners of "session" hear of; warning: a text, or ""; following: the run that
    completes the step, or None"""

    result: StepResult
    event: str
    batch: int
    warning: str
    following: StepRun | None


class TrainingSteps:
    """Of one session. targets: names of the feeds for the loss; outputs: of the model; step_outputs: names in the graph
    of further outputs of a step; trained: which weights are frozen"""

    def __init__(
        self, numbers: StepNumbers, accumulates: bool, targets: list[str], outputs: list[str], step_outputs: list[str],
        trained: TrainedWeights,
    ) -> None:  # fmt: skip
        self.numbers = numbers
        self.accumulates = accumulates
        self.targets = targets
        self.outputs = outputs
        self.step_outputs = step_outputs
        self.trained = trained

    # ── before a run ──

    def step(self, rate: float | None) -> StepRun:
        """rate: None for the schedule's. Errors: InvalidInput if gradients wait"""
        if self.accumulates and self.numbers.waiting > 0:
            raise InvalidInput("gradients of earlier batches wait for a step", hint="call apply()")
        return self._run(ADD_FIRST if self.accumulates else STEP, rate, 1.0)

    def next(self, rate: float | None, count: int) -> list[StepRun]:
        """The runs of so many steps, as if each changed the weights."""
        numbers = self.numbers
        step, batch = numbers.step, numbers.batch
        runs: list[StepRun] = []
        for _ in range(count):
            runs.append(self._run(STEP, rate, 1.0))
            numbers.step += 1
            numbers.batch += 1
        numbers.step, numbers.batch = step, batch
        return runs

    def accumulate(self) -> StepRun:
        """Errors: InvalidInput for a session that does not accumulate"""
        self._require_accumulation()
        return self._run(ADD, None, 1.0)

    def gradients(self) -> StepRun:
        """Leaves the gradients of a batch in the states of those that wait. Errors: InvalidInput for a session that
        does not accumulate, or if gradients wait"""
        self._require_accumulation()
        if self.numbers.waiting > 0:
            raise InvalidInput("gradients of earlier batches wait for a step", hint="call apply()")
        return self._run(SHOW, None, 1.0)

    def apply(self, rate: float | None, sums: bool) -> StepRun:
        """A step with the mean of the gradients that wait, or with their sum. Errors: InvalidInput if none wait"""
        self._require_accumulation()
        waiting = self.numbers.waiting
        if waiting == 0:
            raise InvalidInput("no gradients wait for a step", hint="call accumulate(feeds) first")
        return self._run(UPDATE, rate, 1.0 if sums else 1.0 / waiting)

    def evaluate(self, fed: list[str], asked: list[str]) -> StepRun:
        """The loss, first, if its targets are fed, and these outputs of the model. asked: empty for only the loss, or
        for all outputs"""
        has_targets = all(name in fed for name in self.targets)
        names = asked if has_targets or len(asked) > 0 else self.outputs
        wanted = [LOSS, *names] if has_targets else names
        return StepRun(EVALUATE, wanted, self._numbers(0.0, 1.0), 0.0)

    def observe(self, value: float) -> float:
        """Tell the schedule "plateau" a value, such as the loss of held-out data; returns the rate of the next step.
        Errors: InvalidInput for another schedule"""
        if self.numbers.schedule != "plateau":
            raise InvalidInput(f'the schedule "{self.numbers.schedule}" observes nothing', hint='it must be "plateau"')
        self.numbers.plateau.observe(value, self.numbers.rate)
        return self.numbers.rate_now()

    def _run(self, does: str, rate: float | None, scale: float) -> StepRun:
        used = self.numbers.rate_now() if rate is None else rate
        outputs = [APPLIED] if does == UPDATE else [RESULT, *self.step_outputs]
        return StepRun(does, outputs, self._numbers(used, scale), used, rate)

    def _numbers(self, rate: float, scale: float) -> list[float]:
        return [*self.numbers.numbers(rate, scale), *self.trained.numbers(self.numbers)]

    def _require_accumulation(self) -> None:
        if not self.accumulates:
            raise InvalidInput("this session makes a step of each batch", hint="create it with the option accumulate")

    # ── after a run ──

    def check_gradients(self, result: StepResult) -> None:
        """Errors: ExecutionError if they were not written because they are not finite"""
        if not is_finite(result.loss) or not is_finite(result.norm):
            raise ExecutionError("the gradients are not finite", hint='see the loss, or set on_nan to "go on"')

    def ended(self, run: StepRun, values: list[float]) -> StepOutcome:
        """values: loss, whether it and all gradients are finite, norm of the gradients; an update has no loss"""
        loss, norm = values[0], values[2]
        is_good = values[1] > 0
        if run.does == UPDATE:
            numbers = self.numbers
            is_known = numbers.counted > 0 and numbers.counted == numbers.waiting
            loss = numbers.losses / numbers.counted if is_known else inf - inf
            numbers.waiting = 0
            return self._after_step(run, loss if run.loss is None else run.loss, norm, is_good, False)
        self.numbers.batch += 1
        may_help = self.numbers.adapts(is_finite(loss), is_good)
        if run.does == STEP:
            return self._after_step(run, loss, norm, is_good, may_help)
        if is_good and run.does == ADD:
            numbers = self.numbers
            is_first = numbers.waiting == 0
            numbers.losses = loss if is_first else numbers.losses + loss
            numbers.counted = 1 if is_first else numbers.counted + 1
            numbers.waiting += 1
        warning = "" if is_good or may_help else self._warning(is_finite(loss))
        result = StepResult(loss, norm, run.used_rate, self.numbers.step, False)
        following = None
        if is_good and run.does == ADD_FIRST:  # if the second half of the step is stopped, its gradients do not wait
            following = self._run(UPDATE, run.rate, 1.0)
            following.loss = loss
        return StepOutcome(result, "batch", self.numbers.batch, warning, following)

    def _after_step(self, run: StepRun, loss: float, norm: float, is_good: bool, may_help: bool) -> StepOutcome:
        """may_help: a smaller scale of the loss may help the next step, so that there is nothing to warn of"""
        warning = "" if is_good or may_help else self._warning(run.does == UPDATE or is_finite(loss))
        if is_good:
            self.numbers.step += 1
            self.trained.after_step()
        result = StepResult(loss, norm, run.used_rate, self.numbers.step, is_good)
        return StepOutcome(result, "step", self.numbers.batch, warning, None)

    def _warning(self, has_loss: bool) -> str:
        what = "the gradients are not finite" if has_loss else "the loss is not finite"
        step, batch = self.numbers.step + 1, self.numbers.batch
        return f"step {step} (batch {batch}) changed no weight: {what}; a lower rate or clip may help"


def is_finite(number: float) -> bool:
    return number - number == 0.0


def label_place(node: str, message: str, target: str, dims: list[int], labels: list[int]) -> str:
    """A hint at the first label that an error of a loss is about (out_of_range of errors.py), or ""."""
    for n, label in enumerate(labels if node.startswith("pyruntime.training.Loss") else []):
        if message.startswith(f"index {label} is out of range"):
            place: list[str] = []
            rest = n
            for dim in reversed(dims):
                place.insert(0, str(rest % dim))
                rest = rest // dim
            return f"{target}[{', '.join(place)}] is {label}"
    return ""
