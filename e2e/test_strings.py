"""Values cross to Python and back exactly, those too that JSON's numbers cannot hold."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from kit.chromium import Engine
from kit.small_models import model

CASES = {
    "float32": [np.nan, np.inf, -np.inf, -0.0, 0.1, 3e38],
    "float64": [np.nan, np.inf, -np.inf, -0.0, 0.1, 1e300],
    "int64": [2**53 + 1, -(2**63), 2**63 - 1, 0, -1, 7],
    "uint64": [2**53 + 1, 2**64 - 1, 0, 1, 2, 3],
}


def test_dims_that_follow_from_named_ones(engine: Engine) -> None:
    """Host steps get the values of dims that the Program computes, beside those of the model's dims."""
    nodes = [helper.make_node("Slice", ["x", "start", "end", "axes", "steps"], ["y"])]
    text = TensorProto.STRING
    weights = {
        "start": np.array([-1, 100]),
        "end": np.array([-100, -9]),
        "axes": np.array([0, 1]),
        "steps": np.array([-1, -2147483647]),
    }
    made = model(nodes, [("x", text, ["d0", "d1"])], [("y", text, ["a", "b"])], weights)
    session = engine.open(made.SerializeToString())
    x = np.array([f"{n}" for n in range(12)], object).reshape(3, 4)
    (y,) = session.run(None, {"x": x})
    session.release()
    np.testing.assert_array_equal(y, x[::-1, -1:])


@pytest.mark.parametrize("dtype", CASES)
def test_a_cast_to_text_and_back(dtype: str, engine: Engine) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["y"], to=kind),
    ]
    made = model(nodes, [("x", kind, [6])], [("text", TensorProto.STRING, [6]), ("y", kind, [6])])
    session = engine.open(made.SerializeToString())
    x = np.array(CASES[dtype], dtype)
    text, y = session.run(None, {"x": x})
    session.release()
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))
    if dtype.endswith("int64"):
        assert list(text) == [str(value) for value in CASES[dtype]]
