"""Indices from data that are out of range, in Chromium: an error that names node, index and extent, and the session
stays usable. The whole table of operators runs natively (tests/ops/test_indices_from_data.py)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from kit.chromium import BrowserError, Engine

MODELS = {
    "Gather": ("float[N, 4] x, int64[K] i", "y = Gather <axis = 0> (x, i)"),
    "fused": ("float[N, 4] x, int64[K] i", "g = Gather <axis = 0> (x, i)  e = Exp (g)  y = Add (e, g)"),
    "ScatterElements": ("float[N, 4] x, int64[K, 4] i", "y = ScatterElements <axis = 0> (x, i, x)"),
}


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("name", MODELS)
def test_an_index_out_of_range(name: str, provider: str, engine: Engine) -> None:
    inputs, nodes = MODELS[name]
    text = f'<ir_version: 10, opset_import: ["" : 20]> g ({inputs}) => (float[M, 4] y) {{ {nodes} }}'
    session = engine.open(onnx.parser.parse_model(text).SerializeToString(), executionProviders=[provider])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    good = np.array([1, -2], np.int64)
    bad = np.array([1, 7], np.int64)
    if name == "ScatterElements":
        good, bad = (np.repeat(i[:, None], 4, axis=1) for i in (good, bad))
    before = session.run(None, {"x": x, "i": good})[0]
    node = "ScatterElements" if name == "ScatterElements" else "Gather"
    with pytest.raises(BrowserError, match=f'ExecutionError.*{node} ".*index 7 is out of range for 2 elements'):
        session.run(None, {"x": x, "i": bad})
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": good})[0], before)
    session.release()
