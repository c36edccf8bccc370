"""Gradients through rounding to codes: as if nothing were rounded, and 0 where codes saturate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime import GraphOptimizationLevel, InferenceSession, NotDifferentiable, SessionOptions
from tests.ops.compare import parsed

TRAINING = "ai.onnx.preview.training"
LEVELS = (GraphOptimizationLevel.ORT_ENABLE_ALL, GraphOptimizationLevel.ORT_DISABLE_ALL)
CONSTANTS = """float s = {0.05}, float t = {0.2}, uint8 z = {120}, int8 zero = {0}, float half = {0.5},
    int8[4, 2] b = {1, -2, 3, 4, 5, -6, 7, 8}, int8[2, 1, 2, 2] w = {1, 2, -3, 4, 5, -6, 7, 8}, int64[2] flat = {6, 2},
    int64[4] image = {1, 1, 4, 3}, int64[1] last = {-1}"""
W = """bf = Cast<to = 1>(b)
    wf = Cast<to = 1>(w)
    bw = Mul(bf, half)
    ww = Mul(wf, half)"""

# x (4, 3) -> y, with rounding and without.
TABLE: dict[str, tuple[str, str]] = {
    "codes are moved": (
        """q = QuantizeLinear(x, s, z)
        m = Reshape(q, flat)
        n = Transpose(m)
        r = DequantizeLinear(n, s, z)
        y = Sin(r)""",
        """m = Reshape(x, flat)
        n = Transpose(m)
        y = Sin(n)""",
    ),
    "MatMulInteger": (
        """xt = Transpose(x)
        q, qs, qz = DynamicQuantizeLinear(xt)
        p = MatMulInteger(q, b, qz, zero)
        f = Cast<to = 1>(p)
        ss = Mul(qs, half)
        y = Mul(f, ss)""",
        """xt = Transpose(x)
        y = MatMul(xt, bw)""",
    ),
    "DynamicQuantizeMatMul": (
        """xt = Transpose(x)
        y = com.microsoft.DynamicQuantizeMatMul(xt, b, half)""",
        """xt = Transpose(x)
        y = MatMul(xt, bw)""",
    ),
    "QLinearMatMul": (
        """xt = Transpose(x)
        q = QuantizeLinear(xt, s, z)
        p = QLinearMatMul(q, s, z, b, half, zero, t, z)
        y = DequantizeLinear(p, t, z)""",
        """xt = Transpose(x)
        y = MatMul(xt, bw)""",
    ),
    "QLinearConv": (
        """xi = Reshape(x, image)
        q = QuantizeLinear(xi, s, z)
        p = QLinearConv<pads = [1, 1, 1, 1]>(q, s, z, w, half, zero, t, z)
        y = DequantizeLinear(p, t, z)""",
        """xi = Reshape(x, image)
        y = Conv<pads = [1, 1, 1, 1]>(xi, ww)""",
    ),
    "QLinearAdd": (
        """q = QuantizeLinear(x, s, z)
        p = com.microsoft.QLinearAdd(q, s, z, q, s, z, t, z)
        y = DequantizeLinear(p, t, z)""",
        """y = Add(x, x)""",
    ),
}


def gradient(text: str, x: np.ndarray, level: GraphOptimizationLevel) -> np.ndarray:
    """Of the sum of u·y, u = 1, 2, 3, …, so that each output counts."""
    model = parsed(
        f"""g (float[4, 3] x) => (float[4, 3] d) <{CONSTANTS}> {{
        {W}
        {text}
        y1 = Reshape(y, last)
        size = Size(y)
        first = Constant<value_int = 0>()
        one = Constant<value_int = 1>()
        u64 = Range(first, size, one)
        u = Cast<to = 1>(u64)
        uy = Mul(u, y1)
        d = {TRAINING}.Gradient<xs = ["x"], y = "uy">(x) }}""",
        21, **{TRAINING: 1, "com.microsoft": 1},
    )  # fmt: skip
    options = SessionOptions()
    options.graph_optimization_level = level
    (found,) = InferenceSession(model.SerializeToString(), options, providers=["wasm"]).run(None, {"x": x})
    return found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TABLE)
def test_gradients_pass_through_rounding(name: str, level: GraphOptimizationLevel) -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (4, 3)).astype(np.float32)
    rounded, plain = (gradient(text, x, level) for text in TABLE[name])
    # by the rounding of y in Sin, and of the range of x in dynamic quantisation
    np.testing.assert_allclose(rounded, plain, rtol=0.03, atol=0.03 * np.abs(plain).max())


def test_nothing_flows_where_codes_saturate() -> None:
    x = np.array([[-20, -6.1, -1], [0.1, 0.3, 1], [6.7, 6.9, 20], [0, 0, 0]], np.float32)
    text = """q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z)"""
    weights = np.arange(12.0).reshape(4, 3)
    want = np.where((x > -6.025) & (x < 6.775), weights, 0.0)  # z = 120: codes 0 … 255
    np.testing.assert_allclose(gradient(text, x, LEVELS[0]), want, rtol=1e-6)


STOPPED = """g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {0.3, -0.2, 0.1, 0.4}, float[2] v = {1, 2},
    float[2] unused = {1, 2}> {
    a = MatMul(x, w)
    b = Floor(a)
    c = Mul(unused, v)
    y = Mul(b, v) }"""


def test_what_is_piecewise_constant_is_told_once() -> None:
    model = parsed(STOPPED, 21).SerializeToString()
    x = np.ones((3, 2), np.float32)
    with pytest.warns(UserWarning, match="not trained") as told:
        session = pyruntime.TrainingSession(model, loss={"mse": "y"}, providers=["wasm"])
        for n in (3, 2, 3):
            session.step({"x": x[:n], "target": x[:n]})
    texts = [str(w.message) for w in told if "not trained" in str(w.message)]
    assert texts == ['"w" is not trained: Floor "b" (opset 21) is piecewise constant; '
                     '"unused" is not trained: the loss does not depend on it']  # fmt: skip
    with pytest.raises(NotDifferentiable, match='no weight gets a gradient: "w" is not trained: Floor "b"'):
        pyruntime.TrainingSession(model, loss={"mse": "y"}, providers=["wasm"], trainable=["w"])


def test_steps_train_through_fake_quantisation() -> None:
    """The weight and its scale learn; the codes do not hide them from the optimiser."""
    model = parsed(
        """g (float[8, 3] x) => (float[8, 2] y) <float[3, 2] w = {0.3, -0.2, 0.1, 0.4, -0.5, 0.2}, float s = {0.05},
        int8 zero = {0}> {
        q = QuantizeLinear(w, s, zero)
        r = DequantizeLinear(q, s, zero)
        y = MatMul(x, r) }""",
        21,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    settings: dict[str, Any] = {"loss": {"mse": "y"}, "optimizer": {"sgd": {"rate": 0.5}}, "trainable": ["w"]}
    session = pyruntime.TrainingSession(model.SerializeToString(), providers=["wasm"], **settings)
    x = rng.normal(size=(8, 3)).astype(np.float32)
    target = x @ np.array([[0.5, 0.5], [-0.5, 0.2], [0.1, 0.9]], np.float32)
    losses = [session.step({"x": x, "target": target}).loss for _ in range(60)]
    assert losses[-1] < 0.02 * losses[0]
