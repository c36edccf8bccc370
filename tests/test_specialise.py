"""What a Program must be compiled for is found alike by the native session and by the browser's model."""

from __future__ import annotations

import json

import numpy as np
import onnx.parser
import pytest

from pyruntime import InferenceSession, browser

# Two values that decide ranks, the second computed with the first: axes of Unsqueeze.
MODEL = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 2] x) => (float y) {
        most = ReduceMax <keepdims = 0> (x)
        axis = Cast <to = 7> (most)
        flat = Constant <value = int64[1] {-1}> ()
        first = Reshape (axis, flat)
        up = Unsqueeze (x, first)
        total = ReduceSum <keepdims = 0> (up)
        other = Cast <to = 7> (total)
        second = Reshape (other, flat)
        y = Unsqueeze (up, second)
    }""")
MODEL.graph.output[0].ClearField("type")
CHAIN = MODEL.SerializeToString()


@pytest.mark.parametrize("values", [[[0, 1]], [[2, 0]], [[0, 0], [0, 0]]])
def test_values_that_follow_from_values(values: list[list[float]]) -> None:
    x = np.array(values, np.float32)
    up = np.expand_dims(x, int(x.max()))
    want = np.expand_dims(up, int(x.sum()))
    session = InferenceSession(CHAIN)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want, strict=True)
    assert session._needs.inner == {"first", "second"}

    model = browser.create(lambda at, size, name="": CHAIN[at : at + size], len(CHAIN), "{}")
    assert model.main is None
    feeds = json.dumps({"x": {"dtype": "float32", "dims": x.shape, "data": x.ravel().tolist()}})
    compiled = next(filter(None, (model.specialise(feeds) for _ in range(3))))
    assert model.asked == session._needs
    dims = json.loads(compiled.json)["outputs"][0]["value"]["dims"]
    assert [d for d in dims if d != "s0"] == [d for axis, d in enumerate(want.shape) if dims[axis] != "s0"]
    assert len(dims) == want.ndim
