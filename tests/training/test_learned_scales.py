"""Scales of quantisation that are trained: beside LSQ's formulas (https://arxiv.org/abs/1902.08153), and above 0."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kit.training_networks import T, convolutional, digits, model, node
from pyruntime import InvalidInput, TrainingSession, quantize_static

RNG = np.random.default_rng(0)
N, K, M = 6, 5, 4
WEIGHT = RNG.normal(size=(K, M)).astype(np.float32)
X, Y = (RNG.normal(size=shape).astype(np.float32) for shape in ((N, K), (N, M)))
SCALES = {"s": np.float32(np.abs(X).max() / 60), "v": (np.abs(WEIGHT).max(0) / 115).astype(np.float32)}
ZERO = -100  # so that many values saturate


def product(name: str = "w") -> bytes:
    nodes = [
        node("QuantizeLinear", "x s z", "a"), node("DequantizeLinear", "a s z", "b"),
        node("QuantizeLinear", f"{name} v u", "c", axis=1), node("DequantizeLinear", "c v u", "d", axis=1),
        node("MatMul", "b d", "y"),
    ]  # fmt: skip
    weights = {name: WEIGHT, "z": np.int8(ZERO), "u": np.zeros(M, np.int8), **SCALES}
    return model(nodes, {"x": (T.FLOAT, ["N", K])}, {"y": (T.FLOAT, ["N", M])}, weights)  # type: ignore[arg-type]


def coded(x: Any, scale: Any, zero: int) -> tuple[Any, Any, Any]:
    """What codes tell, where they do not saturate, and the derivative by the scale."""
    codes = np.rint(x / scale) + zero
    inside = (codes >= -128) & (codes <= 127)
    codes = np.clip(codes, -128, 127) - zero
    return codes * scale, inside, np.where(inside, codes - x / scale, codes)


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_beside_the_formulas_of_lsq(provider: str) -> None:
    rate, options = 0.002, {"loss": {"mse": "y"}, "scales": "lsq"}
    w, s, v = (x.astype(np.float64) for x in (WEIGHT, SCALES["s"], SCALES["v"]))
    with TrainingSession(product(), optimizer={"sgd": {"rate": rate}}, providers=[provider], **options) as session:
        assert {p.name for p in session.parameters()} == {"w", "s", "v"}
        for _ in range(20):
            (a, a_in, a_by), (b, b_in, b_by) = coded(X, s, ZERO), coded(w, v, 0)
            loss = session.step({"x": X, "target": Y}).loss
            assert loss == pytest.approx(np.square(a @ b - Y).mean(), rel=1e-5)
            g = 2 * (a @ b - Y) / Y.size
            w = w - rate * (a.T @ g) * b_in
            v = v - rate * (a.T @ g * b_by).sum(0) / np.sqrt(K * 127)
            s = s - rate * (g @ b.T * a_by).sum() / np.sqrt(K * (127 - ZERO))
        for name, expected in {"w": w, "s": s, "v": v}.items():
            np.testing.assert_allclose(session.weights()[name], expected, rtol=1e-5, atol=1e-6)
        assert not a_in.all(), "some codes saturate"


@pytest.mark.parametrize(
    "optimizer", [{"sgd": {"rate": 1e3}}, {"adam": {"rate": 0.9}}, {"lion": {"rate": 2.0}}], ids=str
)
@pytest.mark.parametrize("named", [{"scales": "lsq"}, {"trainable": ["s", "v"]}], ids=str)
def test_scales_stay_above_zero(optimizer: Any, named: Any) -> None:
    with TrainingSession(product(), loss={"mse": "y"}, optimizer=optimizer, on_nan="go on", **named) as session:
        for _ in range(40):
            session.step({"x": X, "target": 1e4 * Y})
        found = session.weights()
        assert all((found[name] > 0).all() for name in SCALES)
        assert any((found[name] != SCALES[name]).any() for name in SCALES)


def test_a_net_is_quantised_trained_and_exported() -> None:
    """The exported file has codes and no floats but scales, and onnxruntime tells more digits than before."""
    images, labels, held, known = digits()
    with TrainingSession(
        convolutional(), loss={"cross_entropy": "logits"}, optimizer={"adam": {"rate": 3e-3}}
    ) as first:
        first.fit({"image": images, "target": labels}, epochs=1)
        data = first.export()
    prepared = quantize_static(data, [{"image": images[:64]}], trainable=True).to_bytes()
    options: Any = {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": 2e-3}}, "scales": "lsq"}
    with TrainingSession(prepared, **options) as session:
        reasons = {p.name: p.reason for p in session.parameters()}
        assert reasons["w1"].startswith("is a weight") and "lsq" in reasons["qdq/image.scale"]
        session.fit({"image": images, "target": labels}, epochs=3)
        scales = {name: w for name, w in session.weights().items() if name.endswith(".scale")}
        small = session.export()
        own = session.evaluate({"image": held}, ["logits"])["logits"]
    file = onnx.load_from_string(small)
    assert Counter(t.data_type for t in file.graph.initializer if t.dims and np.prod(t.dims) > 24) == {T.INT8: 3}
    exported = {t.name: onnx.numpy_helper.to_array(t) for t in file.graph.initializer}
    assert all((exported[name] == w).all() and (w > 0).all() for name, w in scales.items())
    theirs = onnxruntime.InferenceSession(small).run(None, {"image": held})[0]
    np.testing.assert_allclose(own, theirs, atol=0.05 * np.abs(theirs).max())
    before = onnxruntime.InferenceSession(data).run(None, {"image": held})[0]
    assert (theirs.argmax(1) == known).mean() > (before.argmax(1) == known).mean() + 0.02


def test_a_model_without_scales_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no QuantizeLinear.*trainable=True"):
        TrainingSession(convolutional(), loss={"cross_entropy": "logits"}, scales="lsq")
