"""`fit` beside the loop that it stands for, and its ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from kit.training_networks import dense
from kit.training_networks import noisy_classes as data
from pyruntime import InvalidInput, TrainingSession
from pyruntime.errors import PyRuntimeError
from pyruntime.runtime.fitting import row_order

OPTIONS: dict[str, Any] = {"loss": {"cross_entropy": "y"}, "optimizer": {"adam": {"rate": 0.02}}}


def rows(feeds: dict[str, np.ndarray], order: list[int]) -> dict[str, np.ndarray]:
    return {name: x[order] for name, x in feeds.items()}


def parts(feeds: dict[str, np.ndarray], size: int, order: list[int]) -> list[dict[str, np.ndarray]]:
    return [rows(feeds, order[n : n + size]) for n in range(0, len(order), size)]


def test_the_order_is_a_permutation_by_seed_and_epoch() -> None:
    for count in (0, 1, 2, 7, 300):
        assert sorted(row_order(count, 3, 1)) == list(range(count))
    orders = {tuple(row_order(50, seed, epoch)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400
    firsts = np.bincount([row_order(5, seed, 1)[0] for seed in range(2000)], minlength=5)
    assert firsts.min() > 300, firsts  # each is about as likely


@pytest.mark.parametrize("form", ["arrays", "buffers", "batches", "iterator", "function"])
def test_it_is_the_loop_that_people_write(form: str) -> None:
    """The same losses and weights: shuffled, with a last batch of three rows, and the best weights at the end."""
    train, held = data(35), data(20, 1)
    given: dict[str, Any] = {
        "arrays": train, "buffers": {name: memoryview(x) for name, x in train.items()},
        "batches": parts(train, 8, [*range(35)]),
        "iterator": iter(parts(train, 8, [*range(35)])),
        "function": lambda epoch: iter(parts(train, 8, row_order(35, 5, epoch))),
    }  # fmt: skip
    epochs = 1 if form == "iterator" else 4
    with TrainingSession(dense(), **OPTIONS, seed=5) as s, TrainingSession(dense(), **OPTIONS, seed=5) as loop:
        found = s.fit(given[form], epochs=epochs, batch_size=8, validation=held)
        best, lowest = None, np.inf
        for epoch, done in enumerate(found.epochs, 1):
            batches = parts(
                train, 8, row_order(35, 5, epoch) if form in ("arrays", "buffers", "function") else [*range(35)]
            )
            if form == "batches":
                batches = [batches[n] for n in row_order(5, 5, epoch)]
            losses = [loop.step(batch).loss for batch in batches]
            weights = [len(batch["target"]) for batch in batches]
            assert done.loss == pytest.approx(np.average(losses, weights=weights), rel=1e-6)
            assert done.validation == pytest.approx(loop.evaluate(held)["loss"], rel=1e-6)
            assert done.is_best == (done.validation < lowest) and done.steps == 5
            if done.is_best:
                best, lowest = loop.weights(), done.validation
        assert best is not None
        assert all(np.array_equal(w, best[name]) for name, w in s.weights().items())


def test_it_stops_early_and_takes_the_best_weights() -> None:
    """A rate that is far too large: the first epoch is best, and patience ends the work two epochs later."""
    options = {**OPTIONS, "optimizer": {"sgd": {"rate": 3.0}}, "schedule": {"constant": {"warmup": 40}}}
    with TrainingSession(dense(), **options) as s:
        seen: list[Any] = []
        found = s.fit(data(32), epochs=50, validation=data(64, 1), patience=2, callbacks=[seen.append])
        validations = [e.validation for e in found.epochs]
        assert len(found.epochs) == found.best + 2 < 50
        assert validations[found.best - 1] == min(v for v in validations if v is not None)
        assert s.evaluate(data(64, 1))["loss"] == pytest.approx(min(v for v in validations if v is not None), rel=1e-6)
        assert [type(x).__name__ for x in seen[:4]] == ["StepResult", "FitEpoch"] * 2
    with TrainingSession(dense(), **options) as s:
        last = s.fit(data(32), epochs=50, validation=data(64, 1), patience=2, keep_best=False).epochs[-1]
        assert s.evaluate(data(64, 1))["loss"] == pytest.approx(last.validation, rel=1e-6)


def test_the_best_weights_leave_the_anchors_of_the_proximal_term() -> None:
    options = {**OPTIONS, "optimizer": {"sgd": {"rate": 3.0}}, "proximal": 0.01}
    with TrainingSession(dense(), **options) as s:
        loaded = {name: w + 0.01 for name, w in s.weights().items()}
        s.set_weights(loaded)
        found = s.fit(data(32), epochs=9, validation=data(64, 1), patience=2)
        assert found.best < len(found.epochs)
        anchors = safetensors.numpy.load(s.state())
        assert all(np.array_equal(anchors[f"start/{name}"], w) for name, w in loaded.items())


def test_calls_in_a_loop_have_different_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a checkpoint."""
    feeds, seen = data(8), []
    with TrainingSession(dense(), **OPTIONS, seed=3) as s, TrainingSession(dense(), **OPTIONS, seed=3) as other:
        for session in (s, s, other):
            step = session.step
            monkeypatch.setattr(session, "step", lambda x, step=step, **more: (seen.append(x["x"]), step(x, **more))[1])
            session.fit(feeds, batch_size=4)
            monkeypatch.undo()
            other.load(s.state())
    for n in range(3):
        assert np.array_equal(np.concatenate(seen[2 * n : 2 * n + 2]), feeds["x"][row_order(8, 3, 1 + 2 * n)])


def test_callbacks_end_it_and_a_plateau_hears_the_losses() -> None:
    options = {**OPTIONS, "schedule": {"plateau": {"patience": 0, "threshold": 0.9, "factor": 0.5}}}
    with TrainingSession(dense(), **options) as s:
        found = s.fit(data(40), epochs=4, batch_size=20)
        assert [e.rate for e in found.epochs] == pytest.approx([0.02, 0.02, 0.01, 0.005])
        assert (
            s.fit(data(40), epochs=9, batch_size=20, callbacks=[lambda r: None, lambda r: False]).epochs[0].steps == 1
        )


def test_a_batch_that_changes_nothing_does_not_count() -> None:
    good, bad = data(8), data(8)
    bad["x"][0] = np.nan
    with TrainingSession(dense(), **OPTIONS) as s, pytest.warns(RuntimeWarning, match="not finite"):
        expected = s.evaluate(good)["loss"]
        (epoch,) = s.fit([bad, good], shuffle=False).epochs
        assert epoch.steps == 1 and epoch.loss == pytest.approx(expected, rel=1e-6)


def ends() -> Iterator[dict[str, np.ndarray]]:
    yield data(4)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (data(4), {"epochs": 0}, "epochs"), (data(4), {"batch_size": 0}, "batch_size"),
    (data(4), {"patience": 0}, "patience"), (ends(), {"epochs": 2}, "a function that returns one"),
    ([], {}, "no batch"), (5, {}, "data cannot be int"), ("text", {}, "data cannot be str"),
    ({**data(4), "target": data(5)["target"]}, {}, "different numbers of rows"),
    (data(4), {"validation": []}, "no batch"), (data(4), {"validation": {"x": data(4)["x"]}}, "no targets"),
    ({"x": data(4)["x"], "target": 3}, {}, "no rows"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "options", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_is_refused(given: Any, options: dict[str, Any], message: str) -> None:
    with TrainingSession(dense(), **OPTIONS) as s:
        with pytest.raises(InvalidInput, match=message):
            s.fit(given, **options)
        assert s.step(data(4)).applied


def test_steps_with_several_batches() -> None:
    batches = parts(data(40), 8, [*range(40)])
    wrong = {**batches[2], "target": batches[2]["target"][:3]}
    with TrainingSession(dense(), **OPTIONS) as one, TrainingSession(dense(), **OPTIONS) as several:
        assert several.steps(iter(batches)) == [one.step(batch) for batch in batches]
        with pytest.raises(PyRuntimeError, match=r"batch 3: .*(shape|dims|sizes)"):
            several.steps([*batches[:2], wrong, batches[3]])
        for batch in batches[:2]:
            one.step(batch)
        assert several.steps(batches[:1], rate=0.5) == [one.step(batches[0], rate=0.5)]
        assert several.steps([]) == []
