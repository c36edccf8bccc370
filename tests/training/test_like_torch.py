"""Optimisers, schedules and groups beside the formulas of torch and transformers (kit/torch_formulas.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kit import torch_formulas as formulas
from kit.training_networks import T, batch, dense, model, node, random
from pyruntime import InvalidInput, TrainingSession

CLASSES: dict[str, Any] = {"loss": {"cross_entropy": "y"}}


def given(w: np.ndarray) -> bytes:
    """A model whose gradient is what it is fed: y = Σ w·g"""
    nodes = [node("Mul", "w g", "p"), node("ReduceSum", "p", "y", keepdims=0)]
    return model(nodes, {"g": (T.FLOAT, [*w.shape])}, {"y": (T.FLOAT, [])}, {"w": w})


@pytest.mark.parametrize("case", formulas.OPTIMIZERS, ids=lambda case: f"{case[0]} {case[1]}")
def test_optimisers(case: Any) -> None:
    kind, settings, formula, *_ = case
    w, gradients = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), formulas.gradients()
    with TrainingSession(given(w), loss="y", optimizer={kind: settings}) as s:
        for g, expected in zip(gradients, formula(w.astype(np.float64), gradients), strict=True):
            s.step({"g": g.astype(np.float32)})
            np.testing.assert_allclose(s.weights()["w"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", formulas.SCHEDULES, ids=lambda case: f"{case[0]} {case[1]}")
def test_schedules(case: Any) -> None:
    kind, settings, formula, *_ = case
    count = settings.get("steps", formulas.COUNT)
    optimizer = {"sgd": {"rate": formulas.RATE}}
    with TrainingSession(dense(), **CLASSES, optimizer=optimizer, schedule={kind: settings}) as s:
        found = [s.step(batch(4)).rate for _ in range(count)]
    np.testing.assert_allclose(found, [formulas.RATE * formula(n) for n in range(count)], rtol=1e-9, atol=1e-12)


def test_a_plateau_lowers_the_rate_and_is_in_checkpoints() -> None:
    options: Any = {**CLASSES, "optimizer": {"sgd": {"rate": formulas.RATE}}, "schedule": {"plateau": formulas.PLATEAU}}
    with TrainingSession(dense(), **options) as a, TrainingSession(dense(), **options) as b:
        rates = [a.observe(value) for value in formulas.OBSERVED[:8]]
        b.load(a.state())
        assert b.step(batch(4)).rate == rates[-1]
        rates += [b.observe(value) for value in formulas.OBSERVED[8:]]
        np.testing.assert_allclose(rates, formulas.PLATEAU_RATES)
        a.load(TrainingSession(dense(), **options).state())
        assert a.observe(9.0) == formulas.RATE  # as at the start
    with TrainingSession(dense(), **CLASSES) as s, pytest.raises(InvalidInput, match="plateau"):
        s.observe(1.0)


GROUPS: list[tuple[dict[str, Any], Callable[[str, int], tuple[float, float]]]] = [
    ({}, lambda *_: (0.1, 0.2)),
    ({"groups": [{"match": "*2", "rate": 0.02}]}, lambda n, _: (0.02 if n.endswith("2") else 0.1, 0.2)),
    ({"groups": [{"match": ["b1"], "decay": 0}, {"match": "b*", "rate": 0.0, "decay": 0.5}]},
     lambda n, _: (0.1, 0.0) if n == "b1" else (0.0, 0.5) if n.startswith("b") else (0.1, 0.2)),
    ({"no_decay": "vectors"}, lambda _, rank: (0.1, 0.2 if rank > 1 else 0.0)),
    ({"no_decay": ["b1", "w2"], "groups": [{"match": "w2", "rate": 0.3}]},
     lambda n, _: (0.3 if n == "w2" else 0.1, 0.0 if n in ("b1", "w2") else 0.2)),
]  # fmt: skip


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("options", "expected"), GROUPS, ids=lambda x: str(x) if isinstance(x, dict) else None)
def test_groups_have_rates_and_decays_of_their_own(options: Any, expected: Any, accumulate: bool) -> None:
    """As torch's groups of SGD; the schedule halves each rate."""
    weights = {**random(0, w1=(6, 8), w2=(8, 3)), "b1": np.ones(8, np.float32), "b2": np.ones((1, 3), np.float32)}
    nodes = [node("MatMul", "x w1", "a"), node("Add", "a b1", "c"), node("MatMul", "c w2", "d"),
             node("Add", "d b2", "y")]  # fmt: skip
    net = model(nodes, {"x": (T.FLOAT, ["N", 6])}, {"y": (T.FLOAT, ["N", 3])}, weights)
    feeds = {"x": batch(4)["x"], "target": np.zeros((4, 3), np.float32)}
    decay = {"sgd": {"rate": 0.1, "decay": 0.2}}
    more: Any = {"schedule": {"exponential": {"factor": 0.5}}, "accumulate": accumulate}
    with (
        TrainingSession(net, loss={"mse": "y"}, optimizer={"sgd": {"rate": 1.0}}) as plain,
        TrainingSession(net, loss={"mse": "y"}, optimizer=decay, **options, **more) as s,
    ):
        for n in range(3):
            before = s.weights()
            plain.set_weights(before)
            plain.step(feeds)
            s.step(feeds)
            for name, w in s.weights().items():
                rate, shrink = expected(name, sum(d > 1 for d in w.shape))
                g = before[name] - plain.weights()[name]
                wanted = before[name] - rate * 0.5**n * (g + shrink * before[name])
                np.testing.assert_allclose(w, wanted, rtol=1e-4, atol=1e-5)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"groups": [{"match": "other*", "rate": 1}]}, 'name like "other'),
    ({"no_decay": "other"}, 'name like "other'),
    ({"groups": [{"rate": 1}]}, "needs names"),
    ({"groups": {"match": "*"}}, "groups cannot be"),
    ({"groups": [{"match": "*", "rate": -1}]}, "rate cannot be -1"),
    ({"groups": [{"match": "*", "rate": 1}], "optimizer": {"sgd": {"rate": 0}}}, "above 0"),
    ({"optimizer": {"adam": {"amsgrad": 1}}}, "true or false"),
    ({"optimizer": {"adam": {"beta1": True}}}, "beta1 cannot be True"),
    ({"schedule": "one_cycle"}, "number of steps"),
    ({"schedule": {"get_linear_schedule_with_warmup": {"num_warmup_steps": 2}}}, "number of steps"),
    ({"schedule": {"get_linear_schedule_with_warmup": {"warmup": 2}}}, "warmup"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda x: str(x) if isinstance(x, dict) else None)
def test_what_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TrainingSession(dense(), **{**CLASSES, **options})
