"""Start-up makes what becomes of a constant before the next ones are loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kit import small_models, zoo
from pyruntime import InferenceSession, inspect
from pyruntime.emit import start_order


@pytest.mark.parametrize("name", ["mobilenet_v2.qdq", "gpt2_tiny", "lstm_tagger", "llama_mini.nb4", "vit_tiny"])
def test_results_do_not_depend_on_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, feeds = zoo.materialize(name), zoo.inputs(name)
    before = InferenceSession(path).run(None, feeds)
    monkeypatch.setattr(start_order, "PORTION", 0)
    session = InferenceSession(path)
    assert len(session._native.latest().header["blocks"][0]["steps"]) > 3
    for a, b in zip(session.run(None, feeds), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_raw_weights_do_not_lie_beside_all_packed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_order, "PORTION", 1 << 20)
    layers, width = 16, 512
    made = small_models.products(layers, width)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((width, width), np.float32) / width**0.5 for _ in range(layers)]
    for place, weight in zip(made.graph.initializer, weights, strict=False):
        place.CopyFrom(numpy_helper.from_array(weight, place.name))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    x = rng.standard_normal((3, width), np.float32)
    session = InferenceSession(tmp_path / "m.onnx")
    (y,) = session.run(None, {"x": x})
    for weight in weights:
        x = x @ weight
    np.testing.assert_allclose(y, x, atol=1e-4)
    packed = 4 * layers * width * width
    assert inspect(str(tmp_path / "m.onnx"))["memory"]["loading"] < packed + (2 << 20)
    assert session.memory().arena < 1.2 * packed
