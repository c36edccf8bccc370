"""The artifacts of onnxruntime-training, with its names: the curves, parameters and checkpoints that it computes itself
(tests/training/artifacts/make.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pyruntime
from pyruntime import InvalidInput
from pyruntime.api.ort_value import OrtValue
from pyruntime.api.training import CheckpointState, LinearLRScheduler, Module, Optimizer

HERE = Path(__file__).with_name("artifacts")
NAMES = ["classifier", "clipped", "frozen", "normalised"]


def opened(
    name: str, checkpoint: str | Path = "checkpoint", **options: Any
) -> tuple[CheckpointState, Module, Optimizer]:
    folder = HERE / name
    state = CheckpointState.load_checkpoint(folder / checkpoint)
    evaluation = folder / "eval_model.onnx"
    module = Module(folder / "training_model.onnx", state, evaluation if evaluation.exists() else None, **options)
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    assert optimizer.get_learning_rate() == pytest.approx(state._checkpoint.rate or 0.001)
    optimizer.set_learning_rate(0.05)
    return state, module, optimizer


def check_parameters(name: str, module: Module, file: str) -> None:
    """A bias before a normalisation has only noise as its gradient, which Adam makes as large as others."""
    noise = range(36, 40) if name == "normalised" else range(0)
    found, expected = module.get_contiguous_parameters().numpy(), np.load(HERE / name / file)["parameters"]
    np.testing.assert_allclose(np.delete(found, noise), np.delete(expected, noise), rtol=1e-3, atol=1e-5)


def first(outputs: Any) -> Any:
    return outputs[0] if isinstance(outputs, tuple) else outputs


@pytest.mark.parametrize("name", NAMES)
def test_curves_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    expected = np.load(HERE / name / "expected.npz")
    state, module, optimizer = opened(name)
    losses, evaluated = [], []
    for n, (x, y) in enumerate(zip(expected["batches"], expected["targets"], strict=True)):
        losses.append(first(module(x, y)))
        if n % 2:
            optimizer.step()
            module.lazy_reset_grad()
        evaluated.append(first(module.eval()(x, y)))
        module.train()
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-4)
    if expected["evaluated"].size:
        np.testing.assert_allclose(evaluated, expected["evaluated"], rtol=1e-4)
    check_parameters(name, module, "expected.npz")
    CheckpointState.save_checkpoint(state, tmp_path / "ours", include_optimizer_state=True)
    for checkpoint in (HERE / name / "trained", tmp_path / "ours"):  # theirs and ours go on alike
        _, other, step = opened(name, checkpoint)
        other(expected["batches"][0], expected["targets"][0])
        step.step()
        check_parameters(name, other, "next.npz")


def test_gradients_add_up_until_they_are_reset() -> None:
    expected = np.load(HERE / "classifier/expected.npz")
    x, y = expected["batches"][0], expected["targets"][0]
    state, module, optimizer = opened("classifier")
    assert state.parameters["w1"].grad is None
    grads = []
    for n in range(4):
        if n == 3:
            module.lazy_reset_grad()
        module(x, y)
        grads.append(state.parameters["w1"].grad)
        if n == 1:
            optimizer.set_learning_rate(0.0)
            optimizer.step()
    for n, times in enumerate((1, 2, 3, 1)):
        np.testing.assert_allclose(grads[n], times * grads[0], rtol=1e-5)


def test_values_names_and_parameters() -> None:
    expected = np.load(HERE / "classifier/expected.npz")
    x, y = expected["batches"][0], expected["targets"][0]
    state, module, _ = opened("classifier")
    assert module.input_names() == ["image", "labels"] and module.output_names()[1:] == ["logits"]
    loss, logits = module(*map(OrtValue.ortvalue_from_numpy, (x, y)))
    assert isinstance(loss, OrtValue) and logits.numpy().shape == (4, 3)
    assert [n for n, _ in state.parameters] == ["w1", "b1", "w2", "b2"] and len(state.parameters) == 4
    state.parameters["b2"] = np.array([9, -9, -9])
    assert (module(x, y)[1].argmax(1) == 0).all()
    with pytest.raises(InvalidInput, match="shape"):
        state.parameters["b2"] = np.zeros(2)
    with pytest.raises(KeyError, match="w9"):
        state.parameters["w9"]
    with pytest.raises(InvalidInput, match="2 inputs, 1 were given"):
        module(x)


def test_a_frozen_parameter_changes_in_the_middle() -> None:
    expected = np.load(HERE / "frozen/expected.npz")
    x, y = expected["batches"][0], expected["targets"][0]
    state, module, optimizer = opened("frozen")
    assert not state.parameters["w1"].requires_grad and state.parameters["w1"].grad is None
    module(x, y)
    optimizer.step()
    trained, w1 = state.parameters["w2"].data, state.parameters["w1"].data
    state.parameters["w1"].data = w1 + 1
    assert np.array_equal(state.parameters["w2"].data, trained)
    changed = first(module.eval()(x, y))
    state.parameters["w1"] = w1
    assert first(module(x, y)) != changed


def test_a_nominal_checkpoint_gets_its_values_later() -> None:
    expected = np.load(HERE / "frozen/expected.npz")
    x, y = expected["batches"][0], expected["targets"][0]
    _, whole, _ = opened("frozen")
    vector = whole.get_contiguous_parameters(trainable_only=False)
    assert (whole.get_parameters_size(), whole.get_parameters_size(False)) == (27, 83)
    _, nominal, _ = opened("frozen", "nominal_checkpoint")
    with pytest.raises(InvalidInput, match="has no values"):
        nominal(x, y)
    nominal.copy_buffer_to_parameters(vector, trainable_only=False)
    assert first(nominal(x, y)) == first(whole(x, y))


def test_the_rate_goes_up_and_down() -> None:
    expected = np.load(HERE / "frozen/expected.npz")
    _, module, optimizer = opened("frozen")
    scheduler, rates = LinearLRScheduler(optimizer, 2, 6, 0.4), []
    for _ in range(6):
        module(expected["batches"][0], expected["targets"][0])
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.get_learning_rate())
    assert rates == pytest.approx([0.2, 0.4, 0.3, 0.2, 0.1, 0.0])


def test_the_inference_model_has_the_new_parameters(tmp_path: Path) -> None:
    expected = np.load(HERE / "classifier/expected.npz")
    x, y = expected["batches"][0], expected["targets"][0]
    _, module, optimizer = opened("classifier")
    module(x, y)
    optimizer.step()
    file = tmp_path / "model.onnx"
    module.export_model_for_inferencing(file, ["logits"])
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert [i.name for i in onnx.load(file).graph.input] == ["image"]
    for engine in (onnxruntime, pyruntime):
        (logits,) = engine.InferenceSession(file).run(None, {"image": x})
        np.testing.assert_allclose(logits, module.eval()(x, y)[1], atol=1e-5)
    with pytest.raises(InvalidInput, match='no node of the model computes "labels"'):
        module.export_model_for_inferencing(file, ["labels"])
    with pytest.raises(InvalidInput, match="evaluation model"):
        opened("normalised")[1].export_model_for_inferencing(file, ["logits"])


def test_properties_are_in_the_file(tmp_path: Path) -> None:
    state = CheckpointState.load_checkpoint(HERE / "frozen/checkpoint")
    for name, value in {"epoch": 3, "best": 0.5, "who": "é"}.items():
        state.properties[name] = value
    CheckpointState.save_checkpoint(state, tmp_path / "new")
    again = CheckpointState.load_checkpoint(tmp_path / "new")
    assert dict(again.properties) == {"epoch": 3, "best": 0.5, "who": "é"} and len(again.properties) == 3
    assert np.array_equal(again.parameters["w2"].data, state.parameters["w2"].data)
    with pytest.raises(InvalidInput, match="cannot be list"):
        state.properties["list"] = []  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: shutil.copy(f / "eval_model.onnx", f / "training_model.onnx"), "has no gradients"),
        (lambda f: shutil.copy(HERE / "frozen/checkpoint", f / "checkpoint"), "shape|to train"),
        (lambda f: shutil.copy(f / "eval_model.onnx", f / "optimizer_model.onnx"), "optimiser is not known"),
        (lambda f: (f / "checkpoint").write_bytes(b"12345678901"), "no checkpoint of onnxruntime-training"),
        (lambda f: (f / "checkpoint").write_bytes((f / "checkpoint").read_bytes()[:-40]), "damaged|cut off"),
    ],
    ids=["training", "other", "optimiser", "checkpoint", "cut"],
)
def test_artifacts_that_do_not_fit(change: Any, text: str, tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / "classifier", tmp_path / "copy")
    change(folder)
    expected = np.load(folder / "expected.npz")
    with pytest.raises(pyruntime.PyRuntimeError, match=text):
        opened(folder)[1](expected["batches"][0], expected["targets"][0])


def test_programs_for_onnxruntime_training_run_unchanged(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import numpy as np\nfrom onnxruntime.training.api import CheckpointState, Module, Optimizer\n"
        f"state = CheckpointState.load_checkpoint({str(HERE / 'frozen/checkpoint')!r})\n"
        f"module = Module({str(HERE / 'frozen/training_model.onnx')!r}, state)\n"
        f"optimizer = Optimizer({str(HERE / 'frozen/optimizer_model.onnx')!r}, module)\n"
        "for n in range(2):\n    print(module(np.ones((4, 6), np.float32), np.ones((4, 3), np.float32)))\n"
        "    optimizer.step()\n    module.lazy_reset_grad()\n"
    )
    command = [sys.executable, "-m", "pyruntime.onnxruntime", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after = map(float, done.stdout.split())
    assert after < before
