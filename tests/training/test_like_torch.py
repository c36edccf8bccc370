"""Optimisers, schedules, groups and losses beside the formulas of torch and transformers (kit/torch_formulas.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kit import torch_formulas as formulas
from kit.training_networks import T, batch, dense, model, node, of_outputs, random, with_gradient
from pyruntime import InvalidInput, TrainingSession
from pyruntime.errors import ExecutionError
from pyruntime.training.files import safetensors

CLASSES: dict[str, Any] = {"loss": {"cross_entropy": "y"}}


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("case", formulas.OPTIMIZERS, ids=lambda case: f"{case[0]} {case[1]}")
def test_optimisers(case: Any, provider: str) -> None:
    kind, settings, formula, *_ = case
    w, gradients = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), formulas.gradients()
    with TrainingSession(with_gradient(w), loss="y", optimizer={kind: settings}, providers=[provider]) as s:
        for n, (g, expected) in enumerate(zip(gradients, formula(w.astype(np.float64), gradients), strict=True)):
            if n in (0, 5):  # as torch does with parameters that have no gradient, whose optimiser counts no steps
                before = safetensors.read(s.state())[0]
                assert s.freeze("w*") == ["w"]
                assert [s.step({"g": np.full(g.shape, 1e3, np.float32)}).norm for _ in range(3)] == [0, 0, 0]
                assert s.unfreeze() == []
                after = safetensors.read(s.state())[0]
                assert all(x == before[name] if name in before else not any(x.data) for name, x in after.items())
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
    ({"loss": {"bce": "y", "logits": "no"}}, "true or false"),
    ({"loss": {"mse": "y", "reduction": "none"}}, "reduction cannot be"),
    ({"loss": {"triplet": "y"}}, "3 outputs"),
    ({"loss": {"cosine": ["y", "z"]}}, 'output "z" does not exist'),
    ({"loss": {"ctc": "y"}}, "CTC needs 3"),
    ({"loss": {"function": lambda o, t: o.y.mean(), "target": "labels"}}, 'loss "function" has no setting "target"'),
    ({"loss": {"onnx": b"", "target": "labels"}}, 'loss "onnx" has no setting "target"'),
    ({"loss": {"triplet": ["y", "y", "y"], "target": "labels"}}, 'loss "triplet" has no setting "target"'),
    ({"loss": {"output": "y", "target": "labels"}}, 'loss "output" has no setting "target"'),
    ({"loss": {"mse": "y", "target": 3}}, "target cannot be 3"),
    ({"schedule": "one_cycle"}, "number of steps"),
    ({"schedule": {"get_linear_schedule_with_warmup": {"num_warmup_steps": 2}}}, "number of steps"),
    ({"schedule": {"get_linear_schedule_with_warmup": {"warmup": 2}}}, "warmup"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda x: str(x).partition(" at 0x")[0])
def test_what_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TrainingSession(dense(), **{**CLASSES, **options})


# ── losses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def loss_and_gradients(
    kind: str, settings: Any, outputs: list[np.ndarray], feeds: list[np.ndarray], *providers: str
) -> Any:
    names = [f"y{n}" for n in range(len(outputs))]
    loss = {kind: names if len(names) > 1 else names[0], **settings}
    given = dict(zip(["target", "input_lengths", "target_lengths"], feeds, strict=False))
    options: Any = {"optimizer": {"sgd": {"rate": 1.0}}, "providers": providers or None}
    with TrainingSession(of_outputs(outputs), loss=loss, **options) as s:
        found = {
            "one": np.float32(1),
            **{k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in given.items()},
        }
        before = s.weights()
        assert s.evaluate(found)["loss"] == pytest.approx(value := s.step(found).loss, rel=1e-6)
        return value, [before[name] - w for name, w in s.weights().items()]


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("case", formulas.LOSSES, ids=lambda case: f"{case[0]} {case[1]}")
def test_losses_and_their_gradients(case: Any, provider: str) -> None:
    kind, settings, outputs, feeds, formula, _ = case
    loss, gradients = loss_and_gradients(kind, settings, outputs, feeds, provider)
    assert loss == pytest.approx(formula(*outputs, *feeds), rel=1e-5)
    for found, expected in zip(gradients, formulas.slopes(formula, outputs, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-6)


def test_a_text_that_does_not_fit_has_an_infinite_loss_or_counts_nothing() -> None:
    """As torch's zero_infinity. Two equal labels need a blank between them, so three steps."""
    x, texts = np.random.default_rng(0).normal(size=(3, 2, 4)), np.array([[1, 1], [1, 2]])
    lengths = [np.array([2, 3]), np.array([2, 2])]
    with pytest.warns(RuntimeWarning, match="loss is not finite"):
        assert loss_and_gradients("ctc", {}, [x], [texts, *lengths])[0] == np.inf
    loss, (gradient,) = loss_and_gradients("ctc", {"zero_infinity": True}, [x], [texts, *lengths])
    assert loss == pytest.approx(formulas.ctc(x[:, 1:], texts[1:], *[n[1:] for n in lengths]) / 2, rel=1e-5)
    assert not gradient[:, 0].any() and gradient[:, 1].any()
    with pytest.raises(ExecutionError, match="index"):
        loss_and_gradients("ctc", {}, [x], [texts, np.array([4, 3]), lengths[1]])
    with pytest.raises(ExecutionError, match="index"):
        loss_and_gradients("ctc", {}, [x], [np.array([[1, 4], [1, 2]]), np.array([3, 3]), lengths[1]])


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_gradients_without_a_step(provider: str) -> None:
    """Those by which SGD changes the weights; accumulated gradients and steps stay right."""
    options: Any = {**CLASSES, "optimizer": {"sgd": {"rate": 1.0}}, "providers": [provider]}
    feeds, others = batch(8), batch(5)
    with TrainingSession(dense(), **options) as plain, TrainingSession(dense(), **options, accumulate=True) as s:
        for n in range(2):
            before = s.weights()
            s.gradients(others)
            gradients = s.gradients(feeds)
            assert all(np.array_equal(w, before[name]) for name, w in s.weights().items())
            assert gradients.keys() == before.keys() and plain.step(feeds).step == s.step(feeds).step == n + 1
            for name, w in s.weights().items():
                np.testing.assert_allclose(before[name] - w, gradients[name], rtol=1e-4, atol=1e-6)
                np.testing.assert_allclose(plain.weights()[name], w, rtol=1e-4, atol=1e-6)
        s.accumulate(feeds)
        with pytest.raises(InvalidInput, match="wait for a step"):
            s.gradients(feeds)
        s.apply()
        bad = {**feeds, "x": np.full_like(feeds["x"], np.nan)}
        with pytest.warns(RuntimeWarning), pytest.raises(ExecutionError, match="not finite"):
            s.gradients(bad)
        assert s.step(feeds).applied
        with pytest.raises(InvalidInput, match="option accumulate"):
            plain.gradients(feeds)
