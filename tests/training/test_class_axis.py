"""Cross entropy of outputs with the classes in any axis, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T

from kit.training_networks import model, node
from pyruntime import TrainingSession

# shape of the output, the axis of its classes, declared dims, settings of the loss
CASES: list[tuple[tuple[int, ...], int, list[Any], dict[str, Any]]] = [
    ((3, 5, 7), 1, [3, 5, 7], {}), ((3, 5, 5), 1, [3, 5, 5], {}), ((3, 7, 5), 2, [3, 7, 5], {}),
    ((3, 5, 7), 1, ["N", 5, 7], {}), ((3, 5, 7), 1, ["N", 5, "T"], {}), ((3, 5, 5), 1, ["N", 5, "T"], {}),
    ((3, 7, 5), 2, ["N", "T", 5], {}), ((3, 5, 5), 2, ["N", "T", 5], {}), ((3, 7, 5), 2, ["N", "T", "C"], {}),
    ((3, 5, 7), 1, ["N", "C", "T"], {}), ((3, 5, 5), 2, [3, 5, 5], {"axis": -1}),
    ((3, 5, 5), 1, [3, 5, 5], {"axis": 1}), ((2, 4, 3, 6), 1, [2, 4, 3, 6], {}), ((2, 3, 6, 4), 3, [2, 3, 6, 4], {}),
    ((2, 3, 6, 4), 3, ["N", "H", "W", 4], {}),
    ((2, 3, 4, 6), 2, ["N", 3, 4, 6], {"axis": 2}), ((5, 4), 1, ["N", 4], {}), ((4, 5), 0, [4, 5], {"axis": 0}),
]  # fmt: skip


def expected(y: np.ndarray, labels: np.ndarray, axis: int) -> tuple[float, np.ndarray]:
    """The mean, and its gradient with respect to y."""
    shifted = y - y.max(axis, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    at = np.expand_dims(labels, axis)
    one = np.zeros_like(y)
    np.put_along_axis(one, at, 1, axis)
    return float(-np.take_along_axis(logs, at, axis).mean()), (np.exp(logs) - one) / labels.size


@pytest.mark.parametrize(("shape", "axis", "dims", "settings"), CASES)
def test_losses_and_gradients(shape: tuple[int, ...], axis: int, dims: list[Any], settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    scales = [d if n == axis else 1 for n, d in enumerate(shape)]
    x, w = (rng.normal(size=s).astype(np.float32) for s in (shape, scales))
    labels = rng.integers(0, shape[axis], [d for n, d in enumerate(shape) if n != axis])
    data = model([node("Add", "x w", "y")], {"x": (T.FLOAT, dims)}, {"y": (T.FLOAT, dims)}, {"w": w})
    others = tuple(n for n in range(len(shape)) if n != axis)
    loss, gradient = expected(x + w, labels, axis)
    with TrainingSession(data, loss={"cross_entropy": "y", **settings}, optimizer={"sgd": {"rate": 1.0}}) as session:
        assert session.step({"x": x, "target": labels}).loss == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(
            session.weights()["w"], w - gradient.sum(others, keepdims=True), rtol=1e-4, atol=1e-5
        )
