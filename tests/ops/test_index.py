"""Gather, scatter, sorting and selection beyond the official cases: old meanings, bounds, ties, NaN, symbolic dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import ExecutionError, ShapeError
from tests.ops.node import check_node, f32, floats, ints, only, rng, run_node

INDICES = [
    np.int64(1),
    np.int64(-1),
    ints(0, 2),
    ints(2, 1, 0),
    ints(1, 1),
    np.array([[0, -3], [2, 1]]),
    np.zeros((0,), np.int64),
]


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("constant", [True, False])
def test_gather(indices: Any, axis: int, constant: bool) -> None:
    check_node("Gather", [floats(3, 4, 3), indices], 13, constants=(1,) if constant else (), axis=axis)


def test_gather_out_of_range() -> None:
    x = floats(3)
    with pytest.raises(ShapeError, match="out of range"):
        run_node("Gather", [x, ints(3)], 13, constants=(1,))


OUTSIDE = {  # operator, feeds without the indices, indices just inside and just outside, attributes
    "Gather": ("Gather", [floats(3)], [[2], [-3]], [[3], [-4]], {}),
    "GatherElements": ("GatherElements", [floats(2, 3)], [[[0, 2]], [[-3, 1]]], [[[0, 3]], [[-4, 1]]], {"axis": 1}),
    "GatherElements, one axis": ("GatherElements", [floats(3)], [[2], [-3]], [[3], [-4]], {"axis": 0}),
    "GatherND": ("GatherND", [floats(2, 3)], [[[1, 2]], [[-2, -3]]], [[[2, 0]], [[0, 3]], [[-3, 0]], [[0, -4]]], {}),
    "ScatterElements": ("ScatterElements", [floats(3), floats(1)], [[2], [-3]], [[3], [-4]], {"axis": 0}),
    "ScatterND": ("ScatterND", [floats(2, 3), floats(1)], [[[1, 2]], [[-2, -3]]], [[[2, 0]], [[0, -4]]], {}),
}


@pytest.mark.parametrize("case", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_indices_known_at_compile_time_are_checked(case: Any) -> None:
    """The error names the node; the last valid index causes no error."""
    name, (data, *rest), inside, outside, attributes = case
    for indices in inside:
        check_node(name, [data, np.array(indices), *rest], 13, constants=(1,), **attributes)
    for indices in outside:
        with pytest.raises(ShapeError, match=rf"{name} .*out of range"):
            run_node(name, [data, np.array(indices), *rest], 13, constants=(1,), **attributes)


def test_gather_of_any_type() -> None:
    check_node("Gather", [np.array(["a", "b", "c"], object), ints(2, 0)], 13)
    check_node("Gather", [np.array([True, False]), ints(1)], 13)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    check_node("GatherElements", [floats(3, 3), rng.integers(-3, 3, (2, 3))], 13, axis=axis)


@pytest.mark.parametrize(
    "batch,shape", [(0, (2, 3)), (0, (2, 2)), (0, (1,)), (1, (2, 4, 1)), (1, (2, 2)), (2, (2, 3, 1))]
)
def test_gather_nd(batch: int, shape: tuple[int, ...]) -> None:
    indices = rng.integers(-2, 2, shape)
    m = floats(2, 3, 4)
    check_node("GatherND", [m, indices], 13, batch_dims=batch, constants=(1,))
    check_node("GatherND", [m, indices], 13, batch_dims=batch, symbolic=(False,))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_scatter_elements(reduction: str, axis: int, dtype: Any) -> None:
    x, updates = (floats(4, 3, 2) * 10).astype(dtype), (floats(2, 2, 2) * 10).astype(dtype)
    size = x.shape[axis]
    indices = rng.integers(-size, size, (2, 2, 2))
    if reduction == "none":
        indices = np.indices((2, 2, 2))[axis % 3]  # no duplicates: their order is not defined
    check_node("ScatterElements", [x, indices, updates], 18, axis=axis, reduction=reduction)


def test_scatter_is_scatter_elements() -> None:
    check_node("Scatter", [floats(3, 3), np.array([[1, 0, 2], [0, 2, 1]]), floats(2, 3)], 9, axis=0)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("last", [1, 2, 3])
def test_scatter_nd(reduction: str, last: int) -> None:
    x = floats(3, 2, 2)
    indices = np.array([[0, 1, 1], [-1, 0, 0], [1, -1, 0]])[:, :last]
    check_node("ScatterND", [x, indices, floats(3, *x.shape[last:])], 18, constants=(1,), reduction=reduction)
    check_node("ScatterND", [x, indices, floats(3, *x.shape[last:])], 18, symbolic=(False,), reduction=reduction)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("flags", [[True, False, True], [False], [], [False, True, True, False]])
def test_compress(axis: int | None, flags: list[bool]) -> None:
    x = floats(4, 5)
    check_node("Compress", [x, np.array(flags, bool)], 11, **only(axis=axis))


SPARSE = [
    f32([[1, 0, -2], [0, 0, np.nan]]), np.zeros((2, 2), np.int64), np.array([True, False]),
    np.zeros((0, 3), np.float32), np.ones((2, 1, 2), np.uint8),
]  # fmt: skip


@pytest.mark.parametrize("x", SPARSE)
def test_nonzero(x: Any) -> None:
    for symbolic in (False, True):
        np.testing.assert_array_equal(run_node("NonZero", [x], 13, symbolic)[0], np.array(np.nonzero(x)))


# ── TopK ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("k", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k(k: int, largest: int, axis: int) -> None:
    x = rng.integers(0, 6, (2, 9) if axis else (9, 2, 2)).astype(np.float32)  # many ties
    check_node("TopK", [x, ints(k)], 11, outputs=2, axis=axis, largest=largest)
    check_node("TopK", [x, ints(k)], 11, outputs=2, axis=axis, largest=largest, constants=(1,))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float64, np.float16])
def test_top_k_types(dtype: Any) -> None:
    x = rng.integers(0, 100, (3, 20)).astype(dtype)
    values, places = run_node("TopK", [x, ints(7)], 24, outputs=2)
    order = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_top_k_puts_nan_first() -> None:
    x = f32([3, np.nan, 5, np.nan, -np.inf])
    for k in (1, 3):
        values, places = run_node("TopK", [x, ints(k)], 11, outputs=2)
        np.testing.assert_array_equal(places, [1, 3, 2][:k])
        small = run_node("TopK", [x, ints(k)], 11, outputs=2, largest=0)[1]
        np.testing.assert_array_equal(small, [4, 0, 2][:k])


def test_top_k_1_and_bounds() -> None:
    check_node("TopK", [floats(3, 5)], 9, outputs=2, k=2, axis=1)
    with pytest.raises(ShapeError, match="k = 4"):
        run_node("TopK", [floats(3), ints(4)], 11, outputs=2, constants=(1,))


# ── Unique ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sorted_", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
def test_unique(sorted_: int, axis: int | None, dtype: Any) -> None:
    x = rng.integers(0, 2, (5, 3, 2)).astype(dtype)
    check_node("Unique", [x], 11, outputs=4, sorted=sorted_, **only(axis=axis))


def test_unique_of_one_kind() -> None:
    check_node("Unique", [np.full(17, 3, np.float32)], 11, outputs=4)
    check_node("Unique", [np.arange(33, dtype=np.float32)[::-1].copy()], 11, outputs=4)


# ── running sums, determinants ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_cum_sum(exclusive: int, reverse: int, axis: int, dtype: Any) -> None:
    x = (floats(3, 4, 2) * 5).astype(dtype)
    check_node("CumSum", [x, np.int64(axis)], 14, constants=(1,), exclusive=exclusive, reverse=reverse)


def test_cum_sum_of_nothing() -> None:
    check_node("CumSum", [floats(2, 0), np.int64(1)], 14, constants=(1,))
    check_node("CumSum", [floats(2, 3), np.int64(0)], 14)  # the session specialises on the axis


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_det(n: int) -> None:
    check_node("Det", [floats(3, 2, n, n)], 11, tolerance=1e-4)


def test_det_of_singular_and_permuted_matrices() -> None:
    check_node("Det", [f32([[0, 1], [1, 0]])], 11)
    check_node("Det", [f32([[1, 2], [2, 4]])], 11)
    check_node("Det", [np.zeros((3, 3), np.float32)], 11)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    starts = ints(1, 3) if mode == "linear" else ints(3, 7)
    past, update = floats(2, 3, 5, 2), floats(2, 3, 2, 2)
    want = past.copy()
    for b, s in enumerate(starts):
        want[b][:, [(s + n) % 5 for n in range(2)]] = update[b]
    for symbolic in (False, True):
        got = run_node("TensorScatter", [past, update, starts], 24, symbolic, mode=mode)[0]
        np.testing.assert_array_equal(got, want)
        first = run_node("TensorScatter", [past, update], 24, symbolic, mode=mode)[0]
        np.testing.assert_array_equal(first, np.concatenate([update, past[:, :, 2:]], 2))
    with pytest.raises(ExecutionError, match="TensorScatter"):
        run_node("TensorScatter", [past, update, ints(4, 0)], 24, mode="linear")
