"""GPUs that stop an invocation after a number of loop iterations: for larger sizes nodes run on WebAssembly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, UnsupportedOp
from pyruntime.session.specialisation import FOR_ALL
from tests.ops.compare import by_onnxruntime

pytest.importorskip("wgpu")

from pyruntime.providers.webgpu import wgpu_device

LIMIT = 500
NODES = {
    "ReduceSum": "ReduceSum <keepdims = 0> (x, last)", "ReduceMax": "ReduceMax <keepdims = 0> (x, last)",
    "ReduceMean over both": "ReduceMean <keepdims = 0> (x)", "ArgMax": "ArgMax <axis = 1> (x)",
    "Softmax": "Softmax (x)", "CumSum": "CumSum (x, last1)", "MatMul": "MatMul (x, xt)",
    "LayerNormalization": "LayerNormalization (x, one)",
}  # fmt: skip


def model(node: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[r, n] x) => (y) <int64[1] last = {{1}}, int64 last1 = {{1}}, float[1] one = {{1}}> {{
            xt = Transpose (x)  y = {node}
        }}""")


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    describe = wgpu_device._describe
    monkeypatch.setattr(wgpu_device, "_describe", lambda adapter: replace(describe(adapter), iterations=LIMIT))
    monkeypatch.setattr(wgpu_device, "_devices", {})


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("node", NODES)
def test_sizes_beyond_the_limit(node: str) -> None:
    made = model(NODES[node])
    session = InferenceSession(made.SerializeToString(), providers=["webgpu"])
    for rows, columns in ((3, 20), (3, LIMIT + 100), (2, 20), (3, 40 * LIMIT), (3, 21)):
        feeds = {"x": np.random.default_rng(0).random((rows, columns), np.float32)}
        np.testing.assert_allclose(session.run(None, feeds)[0], by_onnxruntime(made, feeds)[0], 1e-4, 1e-5)
    assert FOR_ALL in session._native.programs.table and session.metrics()["recovered"] == 0  # it is no fault
    assert 2 <= len(session._native.programs.table) <= 3


@pytest.mark.usefixtures("limited")
def test_sizes_beyond_the_limit_without_fallback() -> None:
    session = InferenceSession(model("ReduceSum (x)").SerializeToString(), providers=["webgpu"])
    session.disable_fallback()
    with pytest.raises(UnsupportedOp, match="loop iterations"):
        session.run(None, {"x": np.zeros((3, 40 * LIMIT), np.float32)})
