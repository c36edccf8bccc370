"""Reductions and softmax beyond the official cases: old meanings, empty sets, types, symbolic dims."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession, SessionOptions
from tests.ops.compare import by_onnx, by_session
from tests.ops.node import check_node, f32, floats, ints, node_model, only, run_node

NAMES = "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axes", [None, [0], [1, -1], [0, 1, 2]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_as_attribute(name: str, axes: list[int] | None, keepdims: int) -> None:
    x = np.abs(floats(2, 3, 4)) + 0.1
    check_node(f"Reduce{name}", [x], 11, **only(keepdims=keepdims, axes=axes))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axes,noop", [(None, 0), (None, 1), ([], 1), ([], 0), ([-1], 0), ([0, 2], 1)])
def test_axes_as_input(name: str, axes: list[int] | None, noop: int) -> None:
    x = np.abs(floats(2, 3, 4)) + 0.1
    args = [x] if axes is None else [x, ints(*axes)]
    check_node(
        f"Reduce{name}", args, 20, by_onnx, constants=(1,) if axes is not None else (), noop_with_empty_axes=noop
    )


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "SumSquare"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(name: str, dtype: Any) -> None:
    check_node(f"Reduce{name}", [np.arange(1, 13, dtype=dtype).reshape(3, 4)], 13 if name != "Sum" else 11, axes=[1])


@pytest.mark.parametrize(
    "name,want", [("Sum", 0), ("Prod", 1), ("Max", -np.inf), ("Min", np.inf), ("LogSumExp", -np.inf)]
)
def test_empty_sets(name: str, want: float) -> None:
    for symbolic in (False, True):
        got = run_node(f"Reduce{name}", [floats(2, 0, 3), ints(1)], 20, symbolic, constants=(1,))[0]
        np.testing.assert_array_equal(got, np.full((2, 1, 3), want, np.float32))


def test_nan_wins() -> None:
    x = f32([[1, np.nan, 3], [4, 5, 6]])
    assert np.isnan(run_node("ReduceMax", [x], 13, axes=[1])[0][0, 0])
    assert np.isnan(run_node("ReduceMin", [x], 13, axes=[1])[0][0, 0])


@pytest.mark.parametrize("relaxed", [True, False])
@pytest.mark.parametrize("name,extreme", [("Max", np.max), ("Min", np.min)])
@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.int8])
def test_extremes_in_lanes(name: str, extreme: Any, kind: Any, relaxed: bool) -> None:
    """Along a row and across rows; NaN in any lane, first and last, must not spread to others."""
    options = SessionOptions(relaxed_simd=relaxed)
    for axis, width in itertools.product((0, 1), (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 70)):
        shape = (width, 5) if axis == 0 else (5, width)
        x = np.random.default_rng(width).integers(0, 256, shape).astype(kind)
        model, feeds = node_model(f"Reduce{name}", [x], 13, axes=[axis], keepdims=0)
        session = InferenceSession(model.SerializeToString(), options)
        places = range(x.size) if kind is np.float32 else ()
        for place in (None, *places):
            filled = feeds["x0"].copy()
            if place is not None:
                filled.reshape(-1)[place] = (np.nan, np.inf, -np.inf)[place % 3]
            np.testing.assert_array_equal(session.run(None, {"x0": filled})[0], extreme(filled, axis))


def test_log_sum_exp_does_not_overflow() -> None:
    x = f32([[1000, 1000], [-1000, -1000], [-np.inf, -np.inf], [np.inf, 0]])
    want = [[1000 + np.log(2)], [-1000 + np.log(2)], [-np.inf], [np.inf]]
    np.testing.assert_allclose(run_node("ReduceLogSumExp", [x], 13, axes=[1])[0], want, rtol=1e-6)


def test_halves_are_summed_wide() -> None:
    x = np.full((1, 4096), 1.0009765625, np.float16)
    assert abs(run_node("ReduceMean", [x], 13, axes=[1])[0][0, 0] - x[0, 0]) == 0


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_means_whose_sums_leave_the_type(dtype: Any) -> None:
    """Rounds towards 0, like integer division."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    small = [[-1, -1, -3], [-1, 3, 0], [1, -3, 0], [7, 1, 0], [-7, 0, 1], [-2, -1, 0]] if low else [[7, 1, 0]]
    rows = [[high] * 3, [low] * 3, [low, low, 1], [high, high, low], [high, low, 0], *small]
    want = [[abs(sum(row)) // 3 * (1 if sum(row) > 0 else -1)] for row in rows]
    x = np.array(rows, dtype)
    for [got] in (run_node("ReduceMean", [x], 13, axes=[1]), by_session(*node_model("ReduceMean", [x], 13, axes=[1]))):
        np.testing.assert_array_equal(got, np.array(want, dtype), strict=True)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_arg(op: str, last: int, keepdims: int) -> None:
    x = f32([[1, 3, 3, 1], [2, 2, 2, 2]])
    check_node(op, [x], 13, axis=-1, select_last_index=last, keepdims=keepdims)
    check_node(op, [x], 11, axis=0, keepdims=keepdims)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_nan_is_the_extreme_of_which_the_first_or_last_counts(op: str, last: int) -> None:
    """Compared with NumPy; onnxruntime's choice depends on the position."""
    x = f32([[1, np.nan, 3, np.nan, 0], [np.inf, -np.inf, np.nan, 5, 6], [1, 2, 3, 4, 5]])
    first = getattr(np, op.lower())
    want = 4 - first(x[:, ::-1], -1) if last else first(x, -1)
    attrs = {"axis": -1, "select_last_index": last, "keepdims": 0}
    for [got] in (run_node(op, [x], 13, **attrs), by_session(*node_model(op, [x], 13, **attrs))):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("opset", [1, 11, 13])
def test_softmax(op: str, axis: int, opset: int) -> None:
    if axis < 0 and opset == 1:
        return
    check_node(op, [floats(2, 3, 4)], max(opset, 8), axis=axis)


def test_softmax_of_large_numbers() -> None:
    check_node("Softmax", [f32([[1e30, 1e30], [-1e30, 0]])], 13)
    check_node("Softmax", [floats(2, 0)], 13)


@pytest.mark.parametrize("dtype,least", [(np.float32, -87), (np.float64, -708)], ids=["float32", "float64"])
def test_softmax_has_no_subnormal_weights(dtype: Any, least: int) -> None:
    """Each costs 150 cycles on Intel. Masks of -100, -1e4 and -inf are usual."""
    x = np.zeros((3, 32), dtype)
    x[0, 1:] = -np.arange(31, dtype=dtype) * 30
    x[1, ::2] = -np.inf
    x[2, :5] = least, least - 0.4, -1e4, -np.finfo(dtype).max, np.nextafter(-np.inf, 0, dtype=dtype)
    (y,) = by_session(*node_model("Softmax", [x], 13))
    assert (y[0, 1:] > 0).sum() == 1 + -least // 30
    assert y[2, 0] >= np.finfo(dtype).tiny / 32 and not y[2, 1:5].any()
    wide = np.exp(x.astype(np.longdouble))
    np.testing.assert_allclose(y, wide / wide.sum(-1, keepdims=True), rtol=1e-5, atol=np.finfo(dtype).tiny)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_of_zeros(p: int) -> None:
    x = f32([[3, 4], [0, 0]])
    want = x / (np.array([[7], [1]]) if p == 1 else np.array([[5], [1]]))
    np.testing.assert_allclose(run_node("LpNormalization", [x], 22, p=p, axis=1)[0], want, rtol=1e-6)
