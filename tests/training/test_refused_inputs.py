"""What training sessions refuse: models that are none, and labels that are no class."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx.parser
import pytest

import pyruntime
from kit.training_networks import batch, dense
from pyruntime import TrainingSession
from pyruntime.errors import ExecutionError

CLASSES = {"loss": {"cross_entropy": "y"}}


@pytest.mark.parametrize(
    ("given", "error"), [("no/such.onnx", "ModelNotFound"), (7, "InvalidInput"), (b"text", "InvalidModel")], ids=str
)
def test_what_is_no_model_is_refused_as_by_sessions(given: Any, error: str) -> None:
    for create in (pyruntime.InferenceSession, lambda model: TrainingSession(model, **CLASSES)):
        with pytest.raises(pyruntime.PyRuntimeError) as found:
            create(given)
        assert type(found.value).__name__ == error


def test_a_label_out_of_range_changes_nothing() -> None:
    feeds = batch(4)
    with TrainingSession(dense(), **CLASSES) as s:
        s.step(feeds)
        before = s.weights()
        for label, kind in ((3, np.int64), (3, np.uint8), (-2, np.int64)):
            with pytest.raises(ExecutionError, match=rf"index {label} .* 3 elements \(target\[2\] is {label}\)"):
                s.step({**feeds, "target": np.array([0, 1, label, 2], kind)})
        assert all(np.array_equal(x, before[n]) for n, x in s.weights().items())
        ignored = s.evaluate({**feeds, "target": np.array([0, -100, -100, -100])})["loss"]
        alone = s.evaluate({"x": feeds["x"][:1], "target": np.array([0])})["loss"]
        assert ignored == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize(
    ("op", "loss", "is_told"),
    [
        ("Softmax", {"cross_entropy": "p"}, True), ("Sigmoid", {"bce": "p"}, True),
        ("Sigmoid", {"bce": "p", "logits": False}, False), ("Softmax", {"mse": "p"}, False),
        ("LogSoftmax", {"nll": "p"}, False), ("LogSoftmax", {"cross_entropy": "p"}, False),
    ],
)  # fmt: skip
def test_losses_that_expect_scores(op: str, loss: dict[str, Any], is_told: bool) -> None:
    """One that computes a Softmax or a Sigmoid tells of an output that is the result of one."""
    text = f"""<ir_version: 9, opset_import: ["" : 20]> g (float[N, 6] x) => (float[N, 3] p)
        <float[6, 3] w = {{{", ".join(["0.5, -0.5, 0.25"] * 6)}}}> {{ y = MatMul (x, w)  p = {op} (y) }}"""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        TrainingSession(onnx.parser.parse_model(text).SerializeToString(), loss=loss).release()
    assert [f"computes a {op}" in str(w.message) for w in told] == [True] * is_told
