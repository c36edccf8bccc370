"""Convolution and pooling: named dims, empty batches, attributes that the official suite leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime.errors import ShapeError, UnsupportedOp
from tests.ops.compare import by_session, same
from tests.ops.dynamic import Case, arrays, build, by_onnx, by_onnxruntime, check
from tests.ops.node import floats, node_model

ONE = ({"B": 2, "T": 9}, {"B": 1, "T": 4}, {"B": 0, "T": 5})
TWO = ({"B": 2, "T": 7, "U": 6}, {"B": 1, "T": 4, "U": 5})
X1, X2 = {"x": "B 4 T"}, {"x": "B 4 T U"}


def case(op: str, inputs: Any, sizes: Any, opset: int = 21, outputs: Any = ("y",), **attrs: Any) -> Case:
    return Case(op, attrs, inputs, sizes, opset=opset, outputs=outputs, domain="")


CASES = [
    case("Conv", {**X1, "w": "3 4 3", "b": "3"}, ONE, pads=[2, 1], strides=[2]),
    case("Conv", {**X1, "w": "6 2 2"}, ONE, group=2, dilations=[3]),
    case("Conv", {**X1, "w": "4 1 3", "b": "4"}, ONE, group=4, auto_pad="SAME_UPPER", strides=[2]),
    case("Conv", {**X2, "w": "3 4 3 2"}, TWO, auto_pad="SAME_LOWER", strides=[2, 3]),
    case("Conv", {**X2, "w": "3 4 1 1"}, TWO, auto_pad="VALID"),
    case("Conv", {"x": "B 2 T U 3", "w": "2 2 2 2 2"}, TWO, pads=[0, 1, 1, 1, 0, 1]),
    case("ConvTranspose", {**X1, "w": "4 3 3", "b": "3"}, ONE, strides=[2], pads=[1, 0], output_padding=[1]),
    case("ConvTranspose", {**X1, "w": "4 2 3"}, ONE, group=2, dilations=[2]),
    case("ConvTranspose", {**X2, "w": "4 1 3 3"}, TWO, auto_pad="SAME_UPPER", strides=[2, 3]),
    case("ConvTranspose", {**X2, "w": "4 1 3 2"}, TWO, auto_pad="SAME_LOWER", strides=[2, 2]),
    case("ConvTranspose", {"x": "B 4 5", "w": "4 1 3"}, ONE, output_shape=[10], strides=[2]),
    case("MaxPool", X2, TWO, outputs=("y", "i"), kernel_shape=[3, 2], pads=[1, 0, 0, 1], strides=[2, 1]),
    case("MaxPool", X2, TWO, outputs=("y", "i"), kernel_shape=[2, 2], storage_order=1, strides=[2, 2]),
    case("MaxPool", {"x": "B 2 T 3 U"}, TWO, outputs=("y", "i"), kernel_shape=[2, 2, 2], dilations=[2, 1, 1]),
    case("MaxPool", {"x": (np.int8, "B 4 T")}, ONE, kernel_shape=[3], ceil_mode=1, strides=[2]),
    case("MaxPool", {"x": (np.uint8, "B 4 T")}, ONE, kernel_shape=[3], auto_pad="SAME_UPPER", strides=[2]),
    case("MaxPool", X2, TWO, kernel_shape=[3, 3], ceil_mode=1, pads=[1, 0, 1, 0], strides=[1, 2]),
    case("MaxPool", {"x": (np.uint8, "B 4 T U")}, TWO, kernel_shape=[4, 3], auto_pad="SAME_LOWER", strides=[2, 3]),
    case("MaxPool", X2, TWO, kernel_shape=[2, 3], dilations=[1, 2], pads=[0, 2, 1, 2]),
    case("AveragePool", X2, TWO, kernel_shape=[3, 2], pads=[1, 0, 0, 1], strides=[2, 1]),
    case("AveragePool", X2, TWO, kernel_shape=[3, 2], pads=[1, 1, 1, 1], count_include_pad=1, ceil_mode=1,
         strides=[2, 2]),
    case("AveragePool", X1, ONE, kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2]),
    case("LpPool", X2, TWO, kernel_shape=[2, 2], p=3, pads=[1, 1, 0, 0]),
    case("LpPool", X1, ONE, kernel_shape=[3], p=1),
    case("GlobalAveragePool", X2, TWO), case("GlobalMaxPool", X2, TWO), case("GlobalLpPool", X2, TWO, p=1),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES, ids=str)
def test_against_onnxruntime(one: Case) -> None:
    check(one, by_onnxruntime)


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize(("side", "pads"), [("SAME_LOWER", [1, 2, 0, 1]), ("SAME_UPPER", [0, 1, 1, 2])])
def test_same_padding_of_dilated_windows(op: str, side: str, pads: list[int]) -> None:
    """Peers ignore the dilations, so onnxruntime gets explicit pads."""
    how: dict[str, Any] = {"kernel_shape": [2, 3], "dilations": [1, 2], "strides": [1, 2]}

    def padded(m: Any, feeds: Any) -> Any:
        return by_onnxruntime(node_model(op, [feeds["x"]], 22, pads=pads, **how)[0], {"x0": feeds["x"]})

    even = ({"B": 2, "T": 7, "U": 6}, {"B": 1, "T": 4, "U": 4})
    check(case(op, X2, even, 22, auto_pad=side, **how), padded)


def fused(op: str, inputs: Any, sizes: Any = TWO, **attrs: Any) -> Case:
    return Case(op, attrs, inputs, sizes)


FUSED = [
    fused("FusedConv", {**X2, "w": "3 4 3 3", "b": "3"}, activation="Relu", pads=[1, 1, 1, 1]),
    fused("FusedConv", {**X2, "w": "3 4 3 3", "b": "3", "z": "B 3 T U"}, activation="Relu", pads=[1, 1, 1, 1]),
    fused("FusedConv", {**X2, "w": "3 4 2 2"}, activation="Clip", activation_params=[-0.5, 0.5]),
    fused("FusedConv", {**X2, "w": "3 4 2 2"}, activation="LeakyRelu", activation_params=[0.3]),
    fused("FusedConv", {**X2, "w": "3 4 2 2"}, activation="HardSigmoid", activation_params=[0.3, 0.4]),
    fused("FusedGemm", {"a": "B 4", "b": "4 5", "c": "5"}, activation="Relu", alpha=0.5),
    fused("NhwcMaxPool", {"x": (np.uint8, "B T U 3")}, kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 1]),
]


@pytest.mark.parametrize("one", FUSED, ids=str)
def test_fused(one: Case) -> None:
    check(one, by_onnxruntime)


def test_nhwc_conv() -> None:
    """ONNX Runtime's CPU lacks it: compared with its FusedConv and transposes."""
    attrs = {"pads": [1, 0, 0, 1], "activation": "Relu"}
    plain = fused("FusedConv", {"x": "B 4 T U", "w": "3 4 2 2", "b": "3"}, **attrs)

    def peer(m: Any, feeds: Any) -> Any:
        first_ = {**feeds, "x": np.ascontiguousarray(feeds["x"].transpose(0, 3, 1, 2))}
        return [by_onnxruntime(build(plain, arrays(plain, TWO[0])), first_)[0].transpose(0, 2, 3, 1)]

    check(fused("NhwcFusedConv", {"x": "B T U 4", "w": "3 4 2 2", "b": "3"}, **attrs), peer)


def test_places_of_maxima_in_another_order() -> None:
    """With a batch of one, views replace the transpose."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 22]>
      g (float[1, 2, 5, 6] x) => (int64[h, w, c] r) <int64[1] first = {0}> {
        y, i = MaxPool <kernel_shape = [2, 3]> (x)  t = Transpose <perm = [0, 2, 3, 1]> (i)  r = Squeeze (t, first)
      }""")
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 2, 5, 6)).astype(np.float32)}
    same(by_session(model, feeds), by_onnxruntime(model, feeds), 0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
@pytest.mark.parametrize("order", [0, 1])
def test_padding_is_no_place_of_a_maximum(dtype: Any, order: int) -> None:
    """No element of a window is larger than the padding."""
    x = np.full((1, 2, 6, 7), np.iinfo(dtype).min if dtype != np.float32 else -np.inf, dtype)
    x[0, 1, 2, 3] = 5
    how: dict[str, Any] = {"kernel_shape": [3, 2], "pads": [2, 1, 1, 1], "strides": [2, 1], "dilations": [2, 1]}
    model, feeds = node_model("MaxPool", [x], 22, outputs=2, storage_order=order, **how)
    values, places = by_session(model, feeds)
    for (_, c, i, j), place in np.ndenumerate(places):
        row, column = np.unravel_index(place - 42 * c, (6, 7), order="CF"[order])
        assert values[0, c, i, j] == x[0, c, row, column]
        assert row - 2 * i + 2 in (0, 2, 4) and column - j + 1 in (0, 1)


def test_deform_conv_with_named_dims() -> None:
    inputs = {"x": "B 2 T 5", "w": "3 2 2 2", "o": "B 8 T 4"}

    def peer(m: Any, feeds: Any) -> Any:
        return by_onnx(m, feeds)

    check(case("DeformConv", inputs, ({"B": 1, "T": 5}, {"B": 2, "T": 4}), 22, pads=[1, 0, 0, 0]), peer)


def rois(shape: Any, sizes: Any, rng: Any) -> Any:
    corners = rng.uniform(0, 3, (*shape[:-1], 2))
    return np.concatenate([corners, corners + rng.uniform(0.5, 4, corners.shape)], -1)


def first(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(0, sizes["B"], shape)


REGIONS = {"x": "B 2 6 7", "rois": (rois, np.float32, "R 4"), "items": (first, np.int64, "R")}
ROI = ({"B": 2, "R": 3}, {"B": 1, "R": 1}, {"B": 2, "R": 0})


@pytest.mark.parametrize("opset", [10, 16, 22])
@pytest.mark.parametrize("attrs", [{"sampling_ratio": 2}, {"mode": "max"}, {"spatial_scale": 0.5}], ids=str)
def test_roi_align(opset: int, attrs: dict[str, Any]) -> None:
    peer = by_onnx if opset == 22 or attrs.get("mode") == "max" and opset != 10 else by_onnxruntime
    check(case("RoiAlign", REGIONS, ROI, opset, output_height=2, output_width=3, **attrs), peer)


def boxes(shape: Any, sizes: Any, rng: Any) -> Any:
    corners = rng.integers(0, 3, (shape[0], 2))
    return np.concatenate([first((shape[0], 1), sizes, rng), corners, corners + rng.integers(0, 6, corners.shape)], 1)


def test_max_roi_pool() -> None:
    inputs = {"x": "B 2 6 7", "rois": (boxes, np.float32, "R 5")}
    check(case("MaxRoiPool", inputs, ROI[:2], pooled_shape=[2, 3]), by_onnxruntime)


@pytest.mark.parametrize(
    ("attrs", "shape", "error", "text"),
    [
        ({"auto_pad": "SAME"}, "B 4 T", UnsupportedOp, 'auto_pad "SAME"'),
        ({}, "B 3 T", ShapeError, "input channels"),
        ({"pads": [1]}, "B 4 T", ShapeError, "pads has 1 entries"),
        ({}, "B 4 2", ShapeError, "does not fit"),
    ],
)
def test_refused(attrs: dict[str, Any], shape: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        check(case("Conv", {"x": shape, "w": "3 4 3"}, ONE, **attrs), None)


@pytest.mark.parametrize(("out", "extra", "fits"), [(13, 0, 1), (16, 0, 1), (16, 2, 1), (17, 0, 0), (17, 2, 0)])
@pytest.mark.parametrize("open_dims", [False, True])
def test_output_shapes_that_a_conv_takes_to_this_input(out: int, extra: int, fits: bool, open_dims: bool) -> None:
    """5 windows of 2 with a stride of 3 end at 14; onnxruntime refuses other shapes, too."""
    attrs: dict[str, Any] = {"strides": [3], "output_shape": [out], "output_padding": [extra]}
    m, feeds = node_model("ConvTranspose", [floats(1, 2, 5), floats(2, 1, 2)], 22, constants=(1,), **attrs)
    if open_dims:
        m.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "n"
    if fits:
        same(by_session(m, feeds), by_onnxruntime(m, feeds), 1e-5)
        return
    with pytest.raises(Exception, match="output_shape is inconsistent"):
        by_onnxruntime(m, feeds)
    with pytest.raises(ShapeError, match="last window ends at"):
        by_session(m, feeds)


@pytest.mark.parametrize(("x", "w", "attrs"), [
    ((2, 3, 4, 5), (3, 2, 33, 35), {}),
    ((2, 3, 4, 5), (3, 2, 33, 35), {"pads": [1, 2, 3, 0]}),
    ((2, 3, 4, 40), (3, 2, 33, 35), {"auto_pad": "SAME_LOWER"}),
    ((1, 4, 7), (4, 1, 1100), {"group": 2}),
    ((1, 2, 7), (2, 3, 1100), {"strides": [2]}),
    ((1, 1, 3, 4, 5), (1, 2, 11, 11, 11), {"pads": [0, 1, 2, 3, 4, 5]}),
])  # fmt: skip
def test_transposed_filters_that_are_larger_than_the_input(x: Any, w: Any, attrs: dict[str, Any]) -> None:
    """Filters and input are exchanged if that is permitted, even if both are feeds."""
    args = [floats(*x), floats(*w)]
    m, feeds = node_model("ConvTranspose", args, 22, **attrs)
    want = by_onnxruntime(m, feeds)
    for fixed in ((1,), ()):
        m, feeds = node_model("ConvTranspose", args, 22, constants=fixed, **attrs)
        for value in m.graph.input:
            for n, d in enumerate(value.type.tensor_type.shape.dim):
                d.dim_param = f"{value.name}_{n}"
        same(by_session(m, feeds), want, 1e-4)


@pytest.mark.parametrize("dims", ["n, c, h, w", "2, 4, 7, 6"])
@pytest.mark.parametrize("size", [1, 3])
def test_no_filters(size: int, dims: str) -> None:
    head = '<ir_version: 10, opset_import: ["": 21]>'
    m = onnx.parser.parse_model(f"{head} g (float[{dims}] x) => (y) {{ y = Conv (x, k) }}")
    m.graph.initializer.append(onnx.numpy_helper.from_array(floats(0, 4, size, size), "k"))
    assert by_session(m, {"x": floats(2, 4, 7, 6)})[0].shape == (2, 0, 8 - size, 7 - size)
