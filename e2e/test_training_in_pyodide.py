"""`TrainingSession` for Python programs in a stock Pyodide, where there is no NumPy, in a worker in Chromium."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from playwright.sync_api import Browser

from e2e.stock_pyodide import run_in_worker
from kit.training_networks import convolutional, dense, digits, model, node
from kit.training_reports import MEMORY, check_reports
from pyruntime import LoraAdapter, TrainingSession

ROWS, EPOCHS = 64, 3
OPTIONS = {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": 0.01}}, "seed": 1}
HALVES = model(
    [node("MatMul", "x w", "y")], {"x": (TensorProto.FLOAT16, ["N", 2])}, {"y": (TensorProto.FLOAT16, ["N", 1])},
    {"w": np.array([[0.5], [0.25]], np.float16)},
)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    images, labels, held, held_labels = digits()
    rng, batches = np.random.default_rng(1), []
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        batches += [order[n : n + ROWS].tolist() for n in range(0, len(images) - ROWS, ROWS)]
    return {
        "images": np.concatenate([images, held]), "labels": np.concatenate([labels, held_labels]), "batches": batches,
        "held": list(range(len(images), len(images) + len(held))),
    }  # fmt: skip


@pytest.fixture(scope="module")
def found(
    built: None, browser: Browser, data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    models, page = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("page")
    (models / "digits.onnx").write_bytes(convolutional())
    (models / "dense.onnx").write_bytes(dense())
    (models / "halves.onnx").write_bytes(HALVES)
    (models / "images.bin").write_bytes(data["images"].tobytes())
    (models / "labels.bin").write_bytes(data["labels"].tobytes())
    given = json.dumps({"options": OPTIONS, "batches": data["batches"], "held": data["held"], "memory": MEMORY})
    return run_in_worker(browser, page, models, "train_in_pyodide.py", given)


def test_digits(found: dict[str, Any], data: dict[str, Any]) -> None:
    """The curve is the native one; checkpoints and models open natively."""
    ours, images, labels = found["digits"], data["images"], data["labels"]
    held, wanted = images[data["held"]], labels[data["held"]]
    with TrainingSession(convolutional(), **OPTIONS) as session:
        native = [session.step({"image": images[b], "target": labels[b]}).loss for b in data["batches"]]
        assert ours["parameters"] == [[p.name, list(p.shape)] for p in session.parameters()]
        session.load(base64.b64decode(ours["state"]))
        assert session.evaluate({"image": held, "target": wanted})["loss"] == pytest.approx(ours["loss"], rel=1e-4)
        next_losses = [session.step({"image": images[b], "target": labels[b]}).loss for b in data["batches"][:2]]
    np.testing.assert_allclose(ours["losses"], native, atol=1e-3)
    np.testing.assert_allclose(ours["first"], next_losses, atol=1e-3)
    assert ours["heard"] == ours["losses"] and ours["first"] == ours["again"] and ours["written"]
    (logits,) = onnxruntime.InferenceSession(base64.b64decode(ours["file"])).run(None, {"image": held})
    np.testing.assert_allclose(ours["logits"], logits, rtol=1e-4, atol=1e-4)
    assert (logits.argmax(1) == wanted).mean() > 0.9


def test_adapters(found: dict[str, Any], tmp_path: Path) -> None:
    ours = found["adapters"]
    assert ours["after"] < ours["before"] and ours["folder"] == ["adapter_config.json", "adapter_model.safetensors"]
    x = np.array([[0.1 * n for n in range(6)], [1.0] * 6, [-0.5] * 6, [0.0] * 6], np.float32)
    (y,) = onnxruntime.InferenceSession(base64.b64decode(ours["file"])).run(None, {"x": x})
    np.testing.assert_allclose(ours["y"], y, rtol=1e-4, atol=1e-5)
    files = {name: base64.b64decode(data) for name, data in ours["files"].items()}
    with TrainingSession(
        dense(), loss={"cross_entropy": "y"}, lora={"rank": 2, "alpha": 8, "targets": ["w1", "w2"]}
    ) as s:
        s.load(files["mine.safetensors"])
        np.testing.assert_allclose(s.evaluate({"x": x}, ["y"])["y"], y, rtol=1e-4, atol=1e-5)
        s.save_adapter(tmp_path / "mine.onnx_adapter")
    theirs = LoraAdapter(tmp_path / "mine.onnx_adapter").loaded().tensors
    for name, t in LoraAdapter(files["mine.onnx_adapter"]).loaded().tensors.items():
        assert np.array_equal(np.frombuffer(t.data, np.float32), np.frombuffer(theirs[name].data, np.float32))


def test_accumulated_gradients(found: dict[str, Any]) -> None:
    ours = found["accumulated"]
    assert ours["step"] == [1, True, 1] and ours["doubled"] and ours["zeros"] and ours["size"]
    np.testing.assert_allclose(ours["vector"], ours["other"], rtol=1e-5, atol=1e-6)


def test_float16(found: dict[str, Any]) -> None:
    """Steps whose gradients overflow change nothing and halve the scale."""
    ours = found["halves"]
    with TrainingSession(HALVES, loss={"mse": "y"}, optimizer={"sgd": 1e-3}) as session:
        feeds = {"x": np.array([[1, 2]], np.float16), "target": np.array([[300]], np.float32)}
        steps = [(session.loss_scale, session.step(feeds)) for _ in range(14)]
    assert ours["scales"] == [scale for scale, _ in steps] and ours["applied"] == [s.applied for _, s in steps]
    np.testing.assert_allclose(ours["losses"], [s.loss for _, s in steps], rtol=1e-3)
    assert not ours["applied"][0] and ours["applied"][-1] and ours["losses"][-1] < ours["losses"][0]
    (y,) = onnxruntime.InferenceSession(base64.b64decode(ours["file"])).run(None, {"x": feeds["x"]})
    np.testing.assert_allclose(y, feeds["x"] @ np.array(ours["w"]), rtol=2e-3)


def test_reports(found: dict[str, Any]) -> None:
    check_reports(found["reports"])


def test_what_is_refused(found: dict[str, Any]) -> None:
    texts = [
        "InvalidInput: training needs a loss", 'InvalidInput: no weight has a name like "q.*"',
        'InvalidInput: no product has a name like "q"', "OutOfMemory: ", "InvalidInput: no gradients wait for a step",
        'ShapeError: pyruntime.training.Loss "cross_entropy of y" (opset 1): the labels have shape', "ExecutionError: ",
        "InvalidInput: run_options cannot be of type object", "InvalidInput: this is no safetensors file",
        "InvalidInput: the vector has 1 numbers of float32", 'InvalidInput: "w1" has shape [6, 8], not [1]',
        "InvalidInput: this session trains no adapters", "SessionFailed: this session is released",
    ]  # fmt: skip
    *errors, last = found["errors"]
    assert last is None  # a batch without finite gradients changes nothing, and the session stays usable
    for text, error in zip(texts, errors, strict=True):
        assert error and error.startswith(text), error
