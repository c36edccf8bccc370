"""Weights as one vector, averages of sessions, and the proximal term that holds weights near those loaded last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit.training_networks import batch, dense, node
from pyruntime import InvalidInput, TrainingSession
from pyruntime.training.files import safetensors

CLASSES = {"loss": {"cross_entropy": "y"}}
SGD: dict[str, Any] = {**CLASSES, "optimizer": {"sgd": {"rate": 0.5}}}


def test_a_vector_has_the_weights_in_the_order_of_parameters() -> None:
    with TrainingSession(dense(), **SGD, frozen="b1") as a, TrainingSession(dense(5), **SGD, frozen="b1") as b:
        a.step(batch(8))
        vector, weights = a.get_contiguous_parameters(), a.weights()
        assert [p.name for p in a.parameters()] == ["w1", "w2", "b2"]
        assert np.array_equal(vector, np.concatenate([weights[n].ravel() for n in ("w1", "w2", "b2")]))
        assert (vector.dtype, vector.size, a.get_parameters_size()) == (np.float32, 75, 75)
        for given in (vector, vector.tobytes(), vector.astype(np.float64)):
            b.set_weights({"w1": np.zeros((6, 8))})
            b.load_parameters_buffer(given)
            assert np.array_equal(b.get_contiguous_parameters(), vector)
        for bad, text in (
            (vector[1:], "74 numbers"), (vector.astype(np.int64), "int64"), (vector * np.nan, "not finite"),
            (vector.tobytes() + b"abc", "303 bytes"),
        ):  # fmt: skip
            with pytest.raises(InvalidInput, match=text):
                b.load_parameters_buffer(bad)
        assert np.array_equal(b.get_contiguous_parameters(), vector)


@pytest.mark.parametrize("how", ["vector", "weights", "file"])
def test_the_proximal_term_pulls_to_what_was_loaded_last(how: str) -> None:
    mu, rate, feeds = 0.7, 0.5, batch(8)
    start = np.random.default_rng(1).normal(size=83).astype(np.float32)
    with TrainingSession(dense(), **SGD) as plain, TrainingSession(dense(), **SGD, proximal=mu) as pulled:
        pulled.step(feeds)
        plain.load_parameters_buffer(start)
        weights = plain.weights()
        if how == "vector":
            pulled.load_parameters_buffer(start)
        elif how == "weights":
            pulled.set_weights(weights)
        else:
            stored = {n: safetensors.Stored("float32", x.shape, x.tobytes()) for n, x in weights.items()}
            pulled.load(safetensors.write(stored, {}))
        for _ in range(2):
            plain.load_parameters_buffer(before := pulled.get_contiguous_parameters())
            plain.step(feeds)
            pulled.step(feeds)
            expected = plain.get_contiguous_parameters() - rate * mu * (before - start)
            np.testing.assert_allclose(pulled.get_contiguous_parameters(), expected, atol=1e-5)
        state = pulled.state()
        following = [pulled.step(feeds).loss for _ in range(2)]
        pulled.load(state)  # a checkpoint has what it pulls to
        assert [pulled.step(feeds).loss for _ in range(2)] == following


def test_a_step_also_computes_outputs_as_training_does() -> None:
    net, feeds = dense(extra=[node("Tanh", "a", "t"), node("Dropout", "t", "b")]), batch(16)
    with TrainingSession(net, **CLASSES, optimizer={"sgd": {"rate": 0.0}}, step_outputs="y") as session:
        session.step(feeds)
        y = session.step_outputs["y"]
        assert y.shape == (16, 3) and not np.allclose(y, session.evaluate(feeds, ["y"])["y"])
    with pytest.raises(InvalidInput, match='output "z" of step_outputs does not exist'):
        TrainingSession(net, **CLASSES, step_outputs="z")
