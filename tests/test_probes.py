"""The table of probes, natively; and weights that lie in another file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kit.conformance.compare import assert_equal
from kit.probes import PROBES
from tests.conftest import Open


@pytest.mark.parametrize("name", PROBES)
def test_probe(name: str, open_session: Open) -> None:
    probe = PROBES[name]
    session = open_session(probe.model)
    for i, (feeds, expected) in enumerate(probe.runs):
        assert_equal(expected, session.run(None, feeds), probe.rtol, probe.atol, f"run {i}")


def test_external_data(tmp_path: Path, open_session: Open) -> None:
    weights = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 64]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", info[:1], info[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert path.stat().st_size < 1024
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    assert_equal([x @ weights], open_session(path).run(None, {"x": x}), 1e-5, 1e-5)
