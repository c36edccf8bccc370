"""ONNX Runtime's own operators in Chromium, on WebAssembly, against ONNX Runtime (on the GPU: tests/webgpu); and
packed weights on both."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from kit.chromium import ROOT, Engine
from kit.conformance.chromium import run
from kit.conformance.compare import assert_equal


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Of the tables in tests/ops: name, model, feeds, tolerance, answers."""
    path: Path = tmp_path_factory.mktemp("operators") / "examples"
    subprocess.run([sys.executable, "-m", "tests.ops.one_of_each", str(path)], cwd=ROOT, check=True, timeout=120)
    found: list[Any] = pickle.loads(path.read_bytes())
    return found


def test_operators(engine: Engine, examples: list[Any]) -> None:
    """Half of them in isolated pages, half in others."""
    half = examples[engine.page.evaluate("Number(crossOriginIsolated)") :: 2]
    assert len(half) > 25
    for name, model, feeds, tolerance, expected in half:
        tolerance = max(tolerance, 1e-4)
        assert_equal(expected, run(engine, "wasm", model, feeds)[0], tolerance, tolerance, name)


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_weights_of_four_bits(engine: Engine, provider: str, kind: int) -> None:
    """A table that is both an embedding and a product's weights; its elements share the file's bytes."""
    words, width = 520, 160
    rng = np.random.default_rng(kind)
    table = TensorProto(name="w", data_type=kind, dims=[words, width], raw_data=rng.bytes(words * width // 2))
    steps = numpy_helper.from_array(rng.uniform(0.01, 0.02, (words, width // 32)).astype(np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=32),
        helper.make_node("Gather", ["d", "ids"], ["rows"]),
        helper.make_node("Transpose", ["d"], ["turned"]),
        helper.make_node("MatMul", ["rows", "turned"], ["logits"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    sizes = {"rows": width, "logits": words}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", d]) for name, d in sizes.items()]
    graph = helper.make_graph(nodes, "g", [ids], outputs, [table, steps])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    feeds = {"ids": np.array([0, 519, 7], np.int64)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # rows stay floats
    expected = onnxruntime.InferenceSession(model, options).run(None, feeds)
    assert_equal(expected, run(engine, provider, model, feeds)[0], 1e-4, 1e-4, provider)


@pytest.mark.parametrize("shape", [None, ["n"]])
def test_bits_of_a_type_that_javascript_lacks(engine: Engine, shape: list[str] | None) -> None:
    """They are of the type that the model declares, also where it is compiled for what is fed."""
    x = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)])
    values = np.array([1.5, -2.0, 0.0078125], np.float32)
    (got,) = run(engine, "wasm", model.SerializeToString(), {"x": values.astype(ml_dtypes.bfloat16)})[0]
    assert got.tolist() == values.tolist()
