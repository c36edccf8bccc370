"""Resize and grids beyond the official cases, against ONNX Runtime; static and symbolic sizes must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

from kit.interpret import run
from pyruntime.errors import PyRuntimeError, ShapeError
from tests.ops.compare import by_onnx, by_onnxruntime, by_session, same
from tests.ops.node import check_node, f32, floats, ints, node_model, run_node

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
SCALES = [(1, 1, 2, 3), (1, 1, 0.5, 0.75), (1, 1, 1.5, 1), (1, 1, 0.6, 2.3)]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("how", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation_by_scales(scales: tuple[float, ...], how: str, mode: str) -> None:
    args = [floats(1, 2, 5, 6), None, f32(scales)]
    check_node("Resize", args, 19, by_onnx, 1e-4, constants=(2,), mode=mode, coordinate_transformation_mode=how)


@pytest.mark.parametrize("sizes", [(1, 2, 8, 12), (1, 2, 3, 7), (1, 2, 1, 1), (1, 2, 5, 6)])
@pytest.mark.parametrize("how", COORDINATES[:4])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_by_sizes(sizes: tuple[int, ...], how: str, mode: str) -> None:
    args = [floats(1, 2, 5, 6), None, None, ints(*sizes)]
    peer = by_onnxruntime if how == "pytorch_half_pixel" else by_onnx  # a single pixel is at 0, as specified
    check_node("Resize", args, 19, peer, 1e-4, mode=mode, coordinate_transformation_mode=how)
    check_node("Resize", args, 19, peer, 1e-4, constants=(3,), mode=mode, coordinate_transformation_mode=how)


@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 3, 4), (1, 1, 0.5, 0.25), (1, 1, 2, 0.5)])
@pytest.mark.parametrize("how", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(scales: tuple[float, ...], how: str, nearest: str) -> None:
    args = [floats(1, 2, 4, 8), None, f32(scales)]
    check_node(
        "Resize", args, 13, constants=(2,), mode="nearest", coordinate_transformation_mode=how, nearest_mode=nearest
    )


def test_coordinates_that_are_integers() -> None:
    """With a scale of 1.5, output 3 of 7 is at position 2, whose floor must not become 1."""
    attrs = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "half_pixel_symmetric"}
    check_node("Resize", [floats(1, 1, 3, 7), None, f32([1, 1, 1.7, 1.5])], 19, by_onnx, constants=(2,), **attrs)


@pytest.mark.parametrize("scale", [0.9999779, 1.0001, 0.33334, 1 / 3, 0.7])
def test_scales_that_are_no_simple_fraction(scale: float) -> None:
    for n in (2, 3, 10, 101):
        m, feeds = node_model("Resize", [floats(1, 1, n, n), None, f32([1, 1, scale, scale])], 19, constants=(2,))
        want = [1, 1, *[np.floor(np.float32(n) * np.float32(scale))] * 2]
        assert [*by_onnxruntime(m, feeds)[0].shape] == want
        for symbolic in (False, True):
            assert [*run(m.SerializeToString(), feeds, symbolic)[0].shape] == want


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_aspect_ratio(policy: str) -> None:
    args = [floats(1, 1, 4, 6), None, None, ints(7, 8)]
    check_node("Resize", args, 19, by_onnx, 1e-4, mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_filter_wider_than_its_axis(mode: str) -> None:
    """An extent of 0.6 elements is rounded to 1: the filter is wider than the 20 elements."""
    args = [floats(1, 1, 20, 200), None, None, ints(1, 6)]
    attrs = {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "antialias": 1}
    m, feeds = node_model("Resize", args, 19, constants=(3,), **attrs)
    same(by_session(m, feeds), by_onnxruntime(m, feeds), 1e-4)


@pytest.mark.parametrize("scales", [(0.4, 0.7), (2.0, 0.5), (0.25, 1.0)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialias(scales: tuple[float, float], mode: str, exclude: int) -> None:
    args = [floats(1, 1, 8, 9), None, f32(scales)]
    check_node(
        "Resize", args, 19, by_onnx, 1e-4, constants=(2,), mode=mode, axes=[2, 3], antialias=1, exclude_outside=exclude
    )


@pytest.mark.parametrize(
    ("mode", "more"), [("linear", "antialias"), ("cubic", "antialias"), ("cubic", "exclude_outside")]
)
def test_one_element_of_an_axis_of_any_extent(mode: str, more: str) -> None:
    """pytorch_half_pixel reads position 0 for an output of one element, whatever the extent."""
    args = [floats(1, 1, 4, 6), None, None, ints(1, 1, 3, 1)]
    attrs = {"mode": mode, more: 1, "coordinate_transformation_mode": "pytorch_half_pixel"}
    m, feeds = node_model("Resize", args, 19, constants=(3,), **attrs)
    m.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    m.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "w"
    same(by_session(m, feeds), by_onnxruntime(m, feeds), 1e-4)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize(("mode", "antialias"), [("linear", 1), ("cubic", 1), ("cubic", 0)])
def test_integers_are_rounded(dtype: Any, mode: str, antialias: int) -> None:
    """The linear mode without antialiasing truncates, as ONNX Runtime does."""
    x = np.random.default_rng(7).integers(0, 99, (1, 1, 7, 9)).astype(dtype) - (50 if dtype is np.int32 else 0)
    args = [x.astype(dtype), None, f32([0.6, 0.4])]
    check_node("Resize", args, 19, by_onnx, 0, constants=(2,), mode=mode, axes=[2, 3], antialias=antialias)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str) -> None:
    roi = f32([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7])
    args: list[Any] = [floats(1, 1, 4, 4), roi, None, ints(1, 1, 3, 3)]
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0, "mode": mode}
    check_node("Resize", args, 19, by_onnx, 1e-4, **attrs)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64, np.int32])
def test_types(dtype: Any) -> None:
    x = np.arange(24, dtype=dtype).reshape(1, 1, 4, 6)
    for symbolic in (False, True):
        got = run_node("Resize", [x, None, f32([1, 1, 2, 2])], 19, symbolic, constants=(2,), mode="linear")[0]
        assert got.dtype == dtype and got.shape == (1, 1, 8, 12)


@pytest.mark.parametrize("op,opset", [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_meanings(op: str, opset: int, mode: str) -> None:
    x = floats(1, 2, 3, 4)
    for scales in ([1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 1.5]):
        if opset == 7:
            check_node(op, [x], opset, mode=mode, scales=scales)
        else:
            check_node(op, [x, f32(scales)], opset, constants=(1,), mode=mode)


def test_upsample_1() -> None:
    x = floats(1, 1, 2, 3)
    got = run_node("Upsample", [x], 1, height_scale=2.0, width_scale=3.0, mode="nearest")[0]
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    grid = np.random.default_rng(1).uniform(-1.6, 1.6, (2, 3, 5, 2)).astype(np.float32)
    args = [floats(2, 2, 4, 5), grid]
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check_node("GridSample", args, 20, tolerance=1e-4, symbolic=(padding == "zeros",), **attrs)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_one_pixel_and_of_nan(padding: str, align: int, symbolic: bool) -> None:
    x = np.full((1, 1, 1, 1), 3, np.float32)
    args, attrs = [x, f32([[[[0, 0], [5, -5], [np.nan, 0]]]])], {"padding_mode": padding, "align_corners": align}
    got = run_node("GridSample", args, 20, symbolic, mode="nearest", **attrs)[0]
    assert got.shape == (1, 1, 1, 3) and got[0, 0, 0, 0] == 3


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_no_pixel(padding: str, symbolic: bool) -> None:
    args = [np.zeros((1, 1, 0, 2), np.float32), f32([[[[0, 0], [5, -5]]]])]
    if padding == "zeros":
        assert run_node("GridSample", args, 20, symbolic, padding_mode=padding)[0].tolist() == [[[[0, 0]]]]
        return
    with pytest.raises(ShapeError, match="needs spatial axes with elements"):
        run_node("GridSample", args, 20, symbolic, padding_mode=padding)


def test_grid_sample_of_what_is_no_float() -> None:
    grid = f32([[[[-1, -1], [0.9, 0.9], [5, 5]]]])
    large = np.array([[[[2**53 + 1, 2], [3, 2**60 + 1]]]])
    got = run_node("GridSample", [large, grid], 20, mode="nearest")[0]
    assert got.ravel().tolist() == [2**53 + 1, 2**60 + 1, 0]
    words = np.array([[[["a", "b"], ["c", "日本"]]]], object)
    assert run_node("GridSample", [words, grid], 20, mode="nearest")[0].ravel().tolist() == ["a", "日本", ""]
    with pytest.raises(PyRuntimeError, match="mode linear needs numbers"):
        run_node("GridSample", [words, grid], 20)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid(align: int) -> None:
    check_node("AffineGrid", [floats(2, 2, 3), ints(2, 3, 4, 5)], 20, by_onnx, constants=(1,), align_corners=align)
    check_node("AffineGrid", [floats(2, 3, 4), ints(2, 3, 4, 5, 2)], 20, by_onnx, align_corners=align)


@pytest.mark.parametrize("sizes", ["3, 3", "11, 3"])
def test_crops_are_summed(sizes: str) -> None:
    """In lanes that each read a different row, at positions that an inner loop advances."""
    text = """<ir_version: 10, opset_import: ["" : 19]>
        g (float[1, 1, 9, 7] x, float[4] roi) => (float[a, b, c] y) <int64[2] sizes = {%s}, int64[1] axis = {1}> {
        z = Resize <axes = [2, 3], coordinate_transformation_mode = "tf_crop_and_resize", mode = "linear">
            (x, roi, "", sizes)
        t = Transpose <perm = [0, 3, 1, 2]> (z) y = ReduceSum <keepdims = 0> (t, axis) }"""
    m = onnx.parser.parse_model(text % sizes)
    feeds = {"x": floats(1, 1, 9, 7), "roi": f32([0.1, -0.2, 1.2, 0.9])}
    same(by_session(m, feeds), by_onnxruntime(m, feeds), 1e-4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_of_strings(mode: str) -> None:
    words = np.array([["1", "日本"]], object)
    assert run_node("Resize", [words, None, f32([1, 2])], 19)[0].tolist() == [["1", "1", "日本", "日本"]]
    with pytest.raises(PyRuntimeError, match=f"mode {mode} needs numbers"):
        run_node("Resize", [words, None, f32([1, 2])], 19, mode=mode)


def test_infinity_outside_of_a_crop() -> None:
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    args = [floats(1, 1, 4, 4), f32([0, 0, 0.1, 0.2, 1, 1, 1.2, 1.5]), None, ints(1, 1, 3, 3)]
    check_node("Resize", args, 19, extrapolation_value=float("inf"), **crop)
