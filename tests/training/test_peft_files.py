"""PEFT's files as PEFT reads them: results against NumPy, refusals, and the table of fields in the documentation."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T

import pyruntime
from kit.training_networks import model, node
from pyruntime import InvalidInput, LoraAdapter, RunOptions, SessionOptions, TrainingSession
from pyruntime.runtime import adapter_config
from pyruntime.training.adapters.adapter_file import read_adapter
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored

RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(6, 4)).astype(np.float32), RNG.normal(size=(2, 4)).astype(np.float32)
A, B = RNG.normal(size=(2, 4)).astype(np.float32), RNG.normal(size=(6, 2)).astype(np.float32)
PREFIX = "base_model.model.blocks.0.fc1.lora_"
PAIR = {PREFIX + "A.weight": A, PREFIX + "B.weight": B}
BASE = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}


def file(tensors: dict[str, np.ndarray]) -> bytes:
    return safetensors.write({n: Stored("float32", x.shape, np.ascontiguousarray(x)) for n, x in tensors.items()}, {})


def answer(tensors: dict[str, np.ndarray], config: dict[str, Any], weight: str = "blocks.0.fc1.weight") -> Any:
    inputs, outputs = {"x": (T.FLOAT, ["N", 4])}, {"y": (T.FLOAT, ["N", 6])}
    data = model([node("Gemm", f"x {weight}", "y", transB=1)], inputs, outputs, {weight: W})
    return adapted(data, tensors, config)


def adapted(data: bytes, tensors: dict[str, np.ndarray], config: dict[str, Any], x: np.ndarray = X) -> Any:
    options, run = SessionOptions(), RunOptions()
    options.adapters = {"a": LoraAdapter(file(tensors), json.dumps(config))}
    run.add_active_adapter("a")
    return pyruntime.InferenceSession(data, options).run(None, {"x": x}, run)[0]


# configuration -> the factor of the product B · A, as PEFT's documentation of LoraConfig has it
FACTORS: list[tuple[dict[str, Any], float]] = [
    ({}, 2.0), ({"use_rslora": True}, 4 / sqrt(2)), ({"lora_alpha": 0}, 0.0), ({"lora_alpha": -3}, -1.5),
    ({"alpha_pattern": {"^blocks.0.fc1": 8}}, 4.0), ({"alpha_pattern": {"^fc1": 8}}, 2.0),
    ({"alpha_pattern": {r"^blocks\.\d+\.fc1$": 8}}, 4.0), ({"alpha_pattern": {"fc1": 8}}, 4.0),
    ({"alpha_pattern": {r"blocks\.[1-9].*": 6, "0.fc1": 10}}, 5.0), ({"alpha_pattern": {"c1": 8}}, 2.0),
    ({"alpha_pattern": {"fc1": 8}, "use_rslora": True}, 8 / sqrt(2)), ({"rank_pattern": {"fc1": 2}, "r": 64}, 2.0),
    ({"fan_in_fan_out": True}, 2.0), ({"layers_to_transform": [0], "layers_pattern": "blocks"}, 2.0),
    ({"init_lora_weights": "gaussian", "bias": "lora_only", "modules_to_save": ["head"]}, 2.0),
]  # fmt: skip


@pytest.mark.parametrize(("config", "factor"), FACTORS)
def test_products_count_as_in_peft(config: dict[str, Any], factor: float) -> None:
    want = X @ W.T + factor * X @ A.T @ B.T
    np.testing.assert_allclose(answer(PAIR, {**BASE, **config}), want, rtol=1e-5, atol=1e-5)


def test_the_default_of_alpha_is_pefts() -> None:
    want = X @ W.T + 8 / 2 * X @ A.T @ B.T
    np.testing.assert_allclose(answer(PAIR, {"peft_type": "LORA", "r": 2}), want, rtol=1e-5, atol=1e-5)


REFUSED: list[tuple[dict[str, np.ndarray], dict[str, Any], str]] = [
    (PAIR, {"lora_bias": True}, "bias of B"), ({**PAIR, PREFIX + "B.bias": B[:, 0]}, {}, "biases that are trained"),
    ({**PAIR, "base_model.model.blocks.0.fc1.bias": B[:, 0]}, {"bias": "all"}, "biases that are trained"),
    ({**PAIR, "base_model.model.e.token_adapter.trainable_tokens_delta": A}, {}, "trained tokens"),
    ({**PAIR, "base_model.model.head.weight": A}, {"modules_to_save": ["head"]}, "modules_to_save"),
    ({**PAIR, PREFIX + "A.other.weight": A}, {}, "a file has one adapter"),
    (PAIR, {"init_lora_weights": "PiSSA"}, "weights that init_lora_weights"),
    (PAIR, {"use_dora": True}, "lora_magnitude_vector"),
    (PAIR, {"layer_replication": [[0, 2], [1, 3]]}, "replicated layers"),
]  # fmt: skip


@pytest.mark.parametrize(("tensors", "config", "text"), REFUSED)
def test_what_is_not_plain_lora_is_refused(tensors: Any, config: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        answer(tensors, {**BASE, **config})
    assert text in f"{error.value}"


def test_two_modules_for_one_product_are_refused() -> None:
    parts = {n.replace("model.blocks", f"model.{part}.blocks"): x for n, x in PAIR.items() for part in ("en", "de")}
    with pytest.raises(InvalidInput, match="belong to the same product"):
        answer(parts, BASE)


def test_fields_that_are_not_known_are_named_in_one_warning() -> None:
    config = json.dumps({**BASE, "tomorrow": {"x": 1}, "later": None, "never": False, "use_dora": False})
    with pytest.warns(RuntimeWarning, match="count for nothing: tomorrow$") as found:
        assert len(read_adapter(file(PAIR), config).pairs()) == 1
    assert len(found) == 1


def test_the_documentation_has_all_fields() -> None:
    text = (Path(__file__).parents[2] / "docs" / "use" / "adapters.md").read_text()
    fields = [*adapter_config.APPLIED, *adapter_config.WITHOUT_EFFECT, *adapter_config.REFUSED]
    assert len(fields) == len(set(fields))
    assert not [name for name in fields if f"`{name}`" not in text]


def test_modules_in_the_metadata_of_nodes() -> None:
    """torch.onnx.export(dynamo=True) folds the transposed weight of a Linear into "val_0"."""
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    product = node("MatMul", "x val_0", "linear")
    entry = product.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'blocks.0', 'blocks.0.fc1', 'linear']"
    inputs, outputs = {"x": (T.FLOAT, ["N", 3, 4])}, {"linear": (T.FLOAT, ["N", 3, 6])}
    data = model([product], inputs, outputs, {"val_0": np.ascontiguousarray(W.T)})
    want = x @ W.T + 2 * x @ A.T @ B.T
    np.testing.assert_allclose(adapted(data, PAIR, BASE, x), want, rtol=1e-5, atol=1e-5)
    with TrainingSession(data, loss={"mse": "linear"}, lora={"rank": 2, "targets": ["fc1"]}) as session:
        assert [p.name for p in session.parameters()] == [PREFIX + "A.weight", PREFIX + "B.weight"]
