"""Losses and gradients in float32 against those of JAX 0.10.2, which scripts/jax_gradients.py stored."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kit.gradients import TRAINING, gradient_node
from pyruntime import InferenceSession
from scripts.jax_gradients import NETWORKS, VECTORS


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_jax(name: str) -> None:
    data, feeds, labels = NETWORKS[name]()
    model = onnx.load_from_string(data)
    logits = "logits"
    if labels.ndim > 1:  # classes are axis 1
        model.graph.node.append(onnx.helper.make_node("Transpose", ["logits"], ["turned"], perm=[0, 2, 1]))
        logits = "turned"
    model.graph.node.append(onnx.helper.make_node("SoftmaxCrossEntropyLoss", [logits, "labels"], ["the.loss"]))
    model.graph.initializer.append(numpy_helper.from_array(labels, "labels"))
    with np.load(VECTORS) as vectors:
        want = {key.partition("/")[2]: vectors[key] for key in vectors if key.startswith(f"{name}/")}
    loss = want.pop("loss")
    model.graph.node.append(gradient_node(list(want), "the.loss"))
    model.opset_import.append(onnx.helper.make_opsetid(TRAINING, 1))
    del model.graph.output[:]
    names = ["the.loss", *[f"{w}/gradient" for w in want]]
    model.graph.output.extend(onnx.ValueInfoProto(name=output) for output in names)
    found = InferenceSession(model.SerializeToString(), providers=["wasm"]).run(None, feeds)
    np.testing.assert_allclose(found[0], loss, rtol=1e-5)
    assert len(want) == sum(w.data_type == 1 and bool(w.dims) for w in model.graph.initializer)
    for (key, gradient), got in zip(want.items(), found[1:], strict=True):
        assert np.abs(got - gradient).max() <= 1e-5 * np.abs(gradient).max(), key
