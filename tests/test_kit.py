"""The models that the tests lean on see what they are there to see; the tiers of tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kit import light_models, tiers, zoo
from kit.conformance.cases import light_data
from kit.models import MODELS

PRODUCTS = ("Conv", "Gemm", "MatMul")


@pytest.mark.parametrize("path", sorted(light_models.LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_light_models_are_constant(path: Path) -> None:
    """Why no test rests on them: products with one number, and one number as the answer."""
    model = onnx.load(path)
    weights = {node.input[1] for node in model.graph.node if node.op_type in PRODUCTS}
    varied = weights - light_models.constant_weights(model).keys()
    assert len(varied) == (1 if path.stem == "light_inception_v1" else 0), varied
    _, (answer,) = light_data(path)
    assert len(np.unique(answer)) == 1


@pytest.mark.parametrize("name", light_models.NAMES)
def test_drawn_models_see_a_permutation(name: str) -> None:
    """With the filters of one convolution in another order, and nothing else, the check fails."""
    model = onnx.load(light_models.materialize(name))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    filters = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    tensor = weights[filters[len(filters) // 2]]
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.roll(array, 1, axis=0), tensor.name))
    with pytest.raises(AssertionError):
        MODELS[name].check(zoo.oracle(model.SerializeToString(), light_models.inputs(name)))


def test_tiers() -> None:
    """A case of a network that only `make test-all` runs; entries that name no test are found."""
    name = "e2e/test_webgpu.py::test_model"
    assert tiers.is_later(f"{name}[whisper_tiny_encoder]") and not tiers.is_later(f"{name}[digits]")
    assert tiers.is_later("e2e/test_make_demo.py::test_it") and not tiers.is_later("e2e/test_dots.py::test_it")
    assert tiers.unmatched([f"{name}[digits]"]) == [f"{name}[whisper_tiny_encoder]"]
    assert tiers.unmatched([f"{name}[whisper_tiny_encoder]", "e2e/test_dots.py::test_it"]) == []
