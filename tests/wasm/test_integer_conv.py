"""Convolutions of codes (ConvInteger, QLinearConv, Conv between DequantizeLinear and QuantizeLinear), against onnx's
reference and onnxruntime without optimisation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from kit import zoo
from pyruntime import InferenceSession, SessionOptions
from tests.wasm.native import some_code  # noqa: F401
from tests.wasm.test_routines import model, node

RNG = np.random.default_rng(11)
U8, I8 = np.uint8, np.int8


def codes(kind: Any, *shape: int) -> np.ndarray:
    """The whole range, ends included."""
    info = np.iinfo(kind)
    x = RNG.integers(info.min, info.max, shape, kind, endpoint=True)
    x.reshape(-1)[: x.size // 4] = info.max
    x.reshape(-1)[-(x.size // 4) :] = info.min
    return x


# x, w, attributes: channels odd and even, positions around a panel of 8, filters around a tile of 4, every schedule
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    *[((2, c, 1, s), (m, c, 1, 1), {}) for c, s, m in itertools.product((1, 2, 5), (7, 8, 9), (3, 4, 5))],
    *[((1, c, 5, s), (m, c, 3, 3), {"pads": [1, 1, 1, 1]}) for c, s, m in ((3, 7, 4), (4, 8, 5), (1, 9, 1))],
    ((1, 3, 9, 8), (4, 3, 3, 2), {"strides": [2, 1], "pads": [2, 0, 1, 1], "dilations": [1, 2]}),
    ((2, 6, 5, 5), (4, 3, 3, 3), {"group": 2}),
    ((1, 8, 5, 5), (6, 4, 1, 1), {"group": 2}),
    ((2, 5, 7, 9), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ((1, 3, 11, 6), (6, 1, 5, 5), {"group": 3, "strides": [2, 2], "pads": [2, 2, 2, 2]}),
    ((1, 2, 20, 20), (2, 1, 17, 17), {"group": 2}),  # more products than float32 sums exactly
    ((2, 3, 9), (4, 3, 3), {"strides": [2]}),
    ((1, 3, 4, 5, 3), (2, 3, 2, 2, 2), {}),
    # by pairs of columns: begins and widths odd and even
    ((1, 3, 16, 16), (8, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 3, 17, 15), (5, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    ((1, 1, 9, 14), (4, 1, 3, 5), {"strides": [1, 2], "pads": [1, 2, 1, 1]}),
    ((2, 1, 8, 13), (5, 1, 2, 4), {"strides": [2, 2], "pads": [0, 1, 0, 2]}),
    ((1, 1, 4, 5, 9), (2, 1, 2, 2, 3), {"strides": [1, 1, 2], "pads": [0, 0, 1, 0, 0, 1]}),
    # by Winograd's form: tiles of 2x2, four of them side by side, filters around a block of 32
    ((1, 8, 6, 6), (8, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 9, 7, 13), (33, 9, 3, 3), {"pads": [1, 0, 2, 1]}),
    ((1, 16, 12, 17), (40, 16, 3, 3), {"pads": [0, 2, 2, 0]}),
    ((1, 11, 9, 16), (9, 11, 3, 3), {"pads": [3, 0, 0, 4]}),
    ((0, 3, 5, 5), (4, 3, 3, 3), {}),
    ((1, 70, 9, 9), (9, 70, 3, 3), {}),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("kinds", [(U8, U8), (U8, I8), (I8, I8)], ids=str)
@pytest.mark.parametrize(("x", "w", "attrs"), SHAPES, ids=str)
def test_conv_integer(x: Any, w: Any, attrs: dict[str, Any], kinds: Any, symbolic: bool) -> None:
    """Exact over the full ranges: every product and sum fits, so the values must be equal. Zero points at the ends."""
    feeds = {"x": codes(kinds[0], *x)}
    ends = np.iinfo(kinds[0]), np.iinfo(kinds[1])
    weights = {"w": codes(kinds[1], *w), "xz": np.array(ends[0].min, kinds[0]), "wz": np.array(ends[1].max, kinds[1])}
    data = model([node("ConvInteger", "x w xz wz", "y", **attrs)], feeds, weights, symbolic)
    (got,) = InferenceSession(data).run(None, feeds)
    moved = feeds["x"].astype(np.float64) - float(ends[0].min), weights["w"].astype(np.float64) - float(ends[1].max)
    (want,) = ReferenceEvaluator(float_conv(attrs)).run(None, dict(zip("xw", moved, strict=True)))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)


def float_conv(attrs: dict[str, Any]) -> onnx.ModelProto:
    """Conv in float64, in which integer sums are exact."""
    inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, None) for n in "xw"]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)
    graph = helper.make_graph([node("Conv", "x w", "y", **attrs)], "g", inputs, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("channels", "by_tiles"), [(917, True), (918, False)])
def test_winograd_where_int32_ends(channels: int, by_tiles: bool) -> None:
    """All products are 255², of one sign: four times a sum just fits, or the direct sums are taken. Machine code for
    bytes would come first."""
    x, w = np.full((1, channels, 6, 6), 255, U8), np.zeros((8, channels, 3, 3), U8)
    weights = {"w": w, "xz": np.array(0, U8), "wz": np.array(255, U8)}
    data = model([node("ConvInteger", "x w xz wz", "y", pads=[1] * 4)], {"x": x}, weights, False)
    session = InferenceSession(data, SessionOptions(native_code=False))
    assert any("winograd" in kernel for n in session.explain()["nodes"] for kernel in n.get("kernels", ())) == by_tiles
    (got,) = session.run(None, {"x": x})
    assert got.min() == got[0, 0, 3, 3] == -9 * channels * 255**2
    assert got[0, 0, 0, 0] == -4 * channels * 255**2


def scales(*shape: int) -> np.ndarray:
    return RNG.uniform(0.001, 0.02, shape).astype(np.float32)


def unsigned(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with int8 as uint8, 128 more: onnxruntime's products of int8 saturate on some processors."""
    return {k: v.view(U8) ^ 128 if v.dtype == I8 else v for k, v in values.items()}


@pytest.mark.parametrize("filters", [False, True], ids=["one-scale", "by-filter"])
@pytest.mark.parametrize("kinds", [(U8, U8), (U8, I8), (I8, I8)], ids=str)
@pytest.mark.parametrize(("x", "w", "attrs"), SHAPES[::4] + SHAPES[27:], ids=str)
def test_qlinear_conv(x: Any, w: Any, attrs: dict[str, Any], kinds: Any, filters: bool) -> None:
    feeds = {"x": codes(kinds[0], *x)}
    m = (w[0],) if filters else ()
    zero = RNG.integers(-3, 3, m) if kinds[1] is U8 else np.zeros(m)
    weights = {
        "xs": scales(), "xz": codes(kinds[0], 4)[1].reshape(()), "w": codes(kinds[1], *w), "ws": scales(*m),
        "wz": (zero + (128 if kinds[1] is U8 else 0)).astype(kinds[1]), "ys": np.float32(0.4 * np.prod(w[1:]) ** 0.5),
        "yz": np.array(100, kinds[0]), "b": RNG.integers(-9000, 9000, w[0], np.int32),
    }  # fmt: skip
    weights = {k: np.asarray(v) for k, v in weights.items()}
    nodes = [node("QLinearConv", "x xs xz w ws wz ys yz b", "y", **attrs)]
    (got,) = InferenceSession(model(nodes, feeds, weights, False)).run(None, feeds)
    assert got.dtype == kinds[0]
    feeds, weights = unsigned(feeds), unsigned(weights)
    (want,) = zoo.oracle(model(nodes, feeds, weights, False), feeds)
    got = unsigned({"y": got})["y"]
    apart = np.abs(got.astype(int) - want.astype(int))
    assert apart.max(initial=0) <= 1 and (apart > 0).mean() < 0.001 if apart.size else got.shape == want.shape


@pytest.mark.parametrize("after", ["", "Relu"])
@pytest.mark.parametrize(("x", "w", "attrs"), SHAPES[26:-2], ids=str)
def test_conv_of_dequantised_codes(x: Any, w: Any, attrs: dict[str, Any], after: str) -> None:
    """Real numbers and codes; two readers of the real numbers keep both."""
    feeds = {"x": codes(U8, *x)}
    weights = {
        "xs": scales(), "xz": np.array(131, U8), "w": codes(I8, *w), "ws": scales(w[0]), "wz": np.zeros(w[0], I8),
        "b": RNG.uniform(-1, 1, w[0]).astype(np.float32), "ys": np.float32(0.02 * np.prod(w[1:]) ** 0.5),
        "yz": np.array(120, U8),
    }  # fmt: skip
    weights = {k: np.asarray(v) for k, v in weights.items()}
    nodes = [node("DequantizeLinear", "x xs xz", "xf"), node("DequantizeLinear", "w ws wz", "wf", axis=0)]
    nodes += [node("Conv", "xf wf b", "y0", **attrs)] + ([node(after, "y0", "y1")] if after else [])
    real = "y1" if after else "y0"
    (got,), (want,) = _both(nodes, feeds, weights)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(initial=0))
    (got,), (want,) = _both([*nodes, node("QuantizeLinear", f"{real} ys yz", "q")], feeds, weights)
    assert got.dtype == U8
    apart = np.abs(got.astype(int) - want.astype(int))
    assert apart.max(initial=0) <= 1 and (apart > 0).mean() < 0.01


def _both(nodes: list[Any], feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> Any:
    data = model(nodes, feeds, weights, False)
    return InferenceSession(data).run(None, feeds), zoo.oracle(data, feeds)
