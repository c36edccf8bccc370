"""Weights that are frozen while a session goes on: as parameters of torch whose `requires_grad` is False."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

from kit.training_networks import T, batch, dense, model, node
from pyruntime import InvalidInput, TrainingSession
from pyruntime.runtime.trained_weights import fits

CLASSES: dict[str, Any] = {"loss": {"cross_entropy": "y"}}


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_the_norm_leaves_them_out_and_averages_go_on(provider: str) -> None:
    """As torch's clip_grad_norm_, and as AveragedModel, which averages what does not change, too."""
    settings: Any = {"accumulate": True, "clip": 0.1, "ema": 0.75, "optimizer": {"sgd": {"rate": 1.0, "decay": 0.5}}}
    with TrainingSession(dense(), **CLASSES, **settings, providers=[provider]) as s:
        s.step(batch(4))
        before, average = s.weights(), s.weights(average=True)
        gradients = s.gradients(batch(4))
        assert s.freeze(["b*", "w1"]) == ["w1", "b1", "b2"]
        assert [*s.gradients(batch(4))] == ["w2"]
        norm = np.linalg.norm(gradients["w2"])
        assert s.step(batch(4)).norm == pytest.approx(norm, rel=1e-5)
        wanted = before | {"w2": before["w2"] * 0.5 - gradients["w2"] * min(1, 0.1 / norm)}
        for name, w in s.weights().items():
            np.testing.assert_allclose(w, wanted[name], rtol=1e-5, atol=1e-6)
            assert name == "w2" or (w == before[name]).all()
            mean = 0.75 * average[name] + 0.25 * w
            np.testing.assert_allclose(s.weights(average=True)[name], mean, rtol=1e-5, atol=1e-6)


def test_gradients_of_frozen_weights_may_be_infinite() -> None:
    nodes = [node("Pow", "v exponent", "root"), node("Mul", "x root", "scaled"), node("Add", "scaled w", "y")]
    weights = {"v": np.zeros(3, np.float32), "w": np.zeros(3, np.float32), "exponent": np.float32([0.25])}
    net = model(nodes, {"x": (T.FLOAT, ["N", 3])}, {"y": (T.FLOAT, ["N", 3])}, weights)
    feeds = {"x": np.ones((2, 3), np.float32), "target": np.ones((2, 3), np.float32)}
    with TrainingSession(net, loss={"mse": "y"}, trainable=["v", "w"]) as s:
        with pytest.warns(RuntimeWarning, match="gradients are not finite"):
            assert not s.step(feeds).applied
        s.freeze("v")
        assert s.step(feeds).applied
        assert s.weights()["w"].all() and not s.weights()["v"].any()


def test_a_checkpoint_goes_on_with_the_counts_of_each_weight() -> None:
    with TrainingSession(dense(), **CLASSES) as a, TrainingSession(dense(), **CLASSES) as b:
        a.freeze("w1")
        for _ in range(3):
            a.step(batch(4))
        b.load(a.state())
        assert a.unfreeze("w*") == b.freeze([]) == []  # a checkpoint does not freeze
        for s in (a, b):
            s.step(batch(4))
        for name, w in a.weights().items():
            np.testing.assert_array_equal(w, b.weights()[name])
        b.load(TrainingSession(dense(), **CLASSES).state())
        assert b.step(batch(4)).step == 1


def test_a_checkpoint_for_fewer_weights() -> None:
    """Each weight has its own count, whichever others a session trains."""
    with TrainingSession(dense(), **CLASSES) as a, TrainingSession(dense(), **CLASSES, trainable=["b1", "w2"]) as b:
        a.freeze(["w1", "w2"])
        for _ in range(3):
            a.step(batch(4))
        with pytest.warns(RuntimeWarning, match='does not load: tensor "w1"') as told:
            b.load(a.state())
        assert "w2" not in str(told[0].message)
        before = b.weights()
        b.step(batch(4))
        change = np.abs(b.weights()["w2"] - before["w2"])
        np.testing.assert_allclose(change, 1e-3, rtol=0.1)  # Adam's first step, where others are in their fourth
        assert (b.weights()["b1"] != before["b1"]).all()


def test_what_is_refused() -> None:
    with TrainingSession(dense(), **CLASSES, frozen="b2") as s:
        for names in ["other", ["w1", "b2"]]:
            with pytest.raises(InvalidInput, match="no trained weight has a name like"):
                s.freeze(names)
        for wrong in [3, ["w1", 3]]:
            with pytest.raises(InvalidInput, match="names cannot be|freeze"):
                s.freeze(wrong)  # type: ignore[arg-type]
        assert s.freeze(()) == []


def test_patterns() -> None:
    """A star stands for any text, as in fnmatch; all else for itself."""
    texts = ["".join(t) for size in range(5) for t in itertools.product("ab*", repeat=size)]
    for name, pattern in itertools.product([t for t in texts if "*" not in t], texts):
        assert fits(name, pattern) == fnmatchcase(name, pattern), (name, pattern)
    assert fits("layers[0].weight", "layers[0].*") and not fits("layers0", "layers[0]") and not fits("ab", "a?")
