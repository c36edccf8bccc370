"""`TrainingSession.fit`: epochs of steps over a set of data. pyruntime/runtime/fitting.py decides, this reads data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyruntime.errors import InvalidInput
from pyruntime.runtime.fitting import FitEpoch, FitPlan, LossMean
from pyruntime.runtime.training_steps import StepResult

Feeds = Mapping[str, Any]
Order = Callable[[int, int], Sequence[int]]  # of so many rows in an epoch


@dataclass(frozen=True, slots=True)
class FitResult:
    """best: number of the best epoch, 0 if none had a loss that is finite"""

    epochs: tuple[FitEpoch, ...]
    best: int


class Trained(Protocol):
    """A session, as `fit` uses it."""

    def step(self, feeds: Feeds, *, run_options: Any = None) -> StepResult: ...

    def evaluate(self, feeds: Feeds, *, run_options: Any = None) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Data:
    """Batches of feeds. given: arrays by name, whose first axis has the rows; a list of batches; any other iterable of
    batches; or a function of the epoch's number that returns one of these. targets: names of their feeds"""

    given: Any
    batch_size: int
    targets: Sequence[str]
    rows_of: Callable[[str, Any], Callable[[list[int]], Any]]

    def batches(self, epoch: int, order: Order) -> Iterator[Feeds]:
        """order: of the rows or of the list. Errors: InvalidInput"""
        given = self.given(epoch) if callable(self.given) else self.given
        if isinstance(given, Mapping):
            yield from self._of_arrays(given, epoch, order)
        elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
            yield from [given[n] for n in order(len(given), epoch)]
        elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
            yield from given
        else:
            hint = "arrays by name, an iterable of batches, or a function that returns one"
            raise InvalidInput(f"data cannot be {type(given).__name__}", hint=hint)

    def _of_arrays(self, arrays: Feeds, epoch: int, order: Order) -> Iterator[Feeds]:
        counts = {name: _length(name, x) for name, x in arrays.items()}
        if len(set(counts.values())) != 1:
            raise InvalidInput(f"the arrays have different numbers of rows: {counts}")
        rows = {name: self.rows_of(name, x) for name, x in arrays.items()}
        numbers = order(next(iter(counts.values())), epoch)
        for n in range(0, len(numbers), self.batch_size):
            yield {name: take([*numbers[n : n + self.batch_size]]) for name, take in rows.items()}

    def rows(self, feeds: Feeds) -> int:
        """Of a batch: of its first target, or else of its first feed with an axis."""
        for name in (*self.targets, *feeds):
            if name in feeds and (size := _size(feeds[name])) is not None:
                return size
        return 1


def as_given(count: int, _: int) -> Sequence[int]:
    return range(count)


def _size(x: Any) -> int | None:
    shape = getattr(x, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(x) if hasattr(x, "__len__") else None


def _length(name: str, x: Any) -> int:
    size = _size(x)
    if size is None:
        raise InvalidInput(f'"{name}" has no rows', hint="arrays whose first axis is that of the samples")
    return size


def fit(
    session: Trained, plan: FitPlan, data: Data, held: Data | None, order: Order,
    callbacks: Sequence[Callable[[FitEpoch | StepResult], Any]], keep: Callable[[], Callable[[], None]] | None,
    run_options: Any,
) -> FitResult:  # fmt: skip
    """Callbacks are called after each step and each epoch; False ends the work. keep: copies the weights and
    returns what puts them back, so that at the end they are those of the epoch with the lowest loss of held-out data"""
    best = None

    def tell(of: FitEpoch | StepResult) -> None:
        if any([callback(of) is False for callback in callbacks]):
            plan.is_stopped = True

    while not plan.is_over:
        plan.begin()
        for feeds in data.batches(plan.epoch, order):
            result = session.step(feeds, run_options=run_options)
            plan.add(result.loss, result.rate, result.applied, data.rows(feeds))
            tell(result)
            if plan.is_stopped:
                break
        done = plan.end(None if held is None else _validated(session, held, plan.epoch, run_options))
        if held is not None and keep and done.is_best:
            best = keep()
        tell(done)
    if best is not None and plan.best != len(plan.done):
        best()
    return FitResult(tuple(plan.done), plan.best)


def _validated(session: Trained, held: Data, epoch: int, run_options: Any) -> float:
    losses = LossMean()
    for feeds in held.batches(epoch, as_given):
        found = session.evaluate(feeds, run_options=run_options)
        if "loss" not in found:
            raise InvalidInput("the validation data have no targets", hint=f"their names: {', '.join(held.targets)}")
        losses.add(found["loss"], held.rows(feeds))
    if losses.rows == 0:
        raise InvalidInput("the validation data have no batch")
    return losses.mean
