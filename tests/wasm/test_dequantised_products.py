"""MatMul, Gemm and Conv of dequantised codes: sums are those of the codes where int32 holds them
(docs/design/quantisation.md#dequantised-products)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from tests.wasm.native import some_code  # noqa: F401
from tests.wasm.test_byte_products import dots  # noqa: F401
from tests.wasm.test_integer_conv import I8, U8, codes, scales
from tests.wasm.test_routines import model, node

I16 = np.int16
# of the left codes: their type, shape and zero point; of the right ones: type, shape, axis of scales or None, zero
# points; attributes of Gemm, None for MatMul
CASES: list[tuple[Any, ...]] = [
    (U8, (2, 5, 12), 131, I8, (12, 9), 1, 0, None),
    (U8, (7, 13), 0, I8, (13, 8), None, 0, None),
    (I8, (6, 4), -128, I8, (4, 7), 1, 3, None),
    (I8, (6, 5), 5, U8, (5, 17), None, 128, None),
    (U8, (3, 2, 5), 255, U8, (1, 5, 6), None, 7, None),
    (U8, (5, 30), 12, I8, (9, 30), 0, 0, {"transB": 1}),
    (U8, (30, 5), 12, I8, (9, 30), None, 0, {"transA": 1, "transB": 1}),
]


def dequantised(x: np.ndarray, scale: np.ndarray, zero: int, axis: int | None) -> np.ndarray:
    shape = [-1 if n == axis else 1 for n in range(x.ndim)]
    return (x.astype(np.float64) - zero) * scale.astype(np.float64).reshape(shape)


def run(case: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    """What a session gives, and the sum in float64."""
    kind, shape, zero, other, size, axis, middle, gemm = case
    feeds = {"a": codes(kind, *shape)}
    step = scales(*([] if axis is None else [size[axis]]))
    b = codes(other, *size)
    weights = {"s": scales(), "z": np.array(zero, kind), "b": b, "t": step, "m": np.full(step.shape, middle, other)}
    nodes = [node("DequantizeLinear", "a s z", "af"), node("DequantizeLinear", "b t m", "bf", axis=axis or 0)]
    nodes += [node("MatMul", "af bf", "p") if gemm is None else node("Gemm", "af bf", "p", **gemm)]
    weights |= {"c": np.float32([0.5])}
    nodes += [node("Add", "p c", "y")]
    weights = {name: np.asarray(value) for name, value in weights.items()}
    (got,) = InferenceSession(model(nodes, feeds, weights, True)).run(None, feeds)
    left, right = dequantised(feeds["a"], weights["s"], zero, None), dequantised(b, step, middle, axis)
    attrs = gemm or {}
    left, right = left.T if attrs.get("transA") else left, right.T if attrs.get("transB") else right
    return got, left @ right + 0.5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case: tuple[Any, ...]) -> None:
    got, want = run(case)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)


def test_products_in_bytes(dots: str) -> None:  # noqa: F811
    for case in CASES:
        got, want = run(case)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5, err_msg=str(case))


def test_sums_beyond_int32_are_those_of_real_numbers() -> None:
    """Of int16 codes; all products have one sign."""
    k, microsoft = 4096, {"domain": "com.microsoft"}
    feeds = {"a": np.full((1, k, 1, 1), np.iinfo(I16).min, I16)}
    weights = {"s": np.float32(0.01), "b": np.full((2, k, 1, 1), -128, I8), "t": np.float32(0.01)}
    weights = {name: np.asarray(value) for name, value in weights.items()}
    nodes = [node("DequantizeLinear", f"{x} {step}", f"{x}f", **microsoft) for x, step in ("as", "bt")]
    data = model([*nodes, node("Conv", "af bf", "y")], feeds, weights, False)
    (got,) = InferenceSession(data).run(None, feeds)
    np.testing.assert_allclose(got.ravel(), [k * 327.68 * 1.28] * 2, rtol=1e-3)
    flat = [node("Flatten", "af", "al"), node("Flatten", "bf", "bl"), node("Gemm", "al bl", "y", transB=1)]
    (got,) = InferenceSession(model([*nodes, *flat], feeds, weights, False)).run(None, feeds)
    np.testing.assert_allclose(got.ravel(), [k * 327.68 * 1.28] * 2, rtol=1e-3)


@pytest.mark.parametrize("steps", [(1e20, 1e20), (1e-28, 1e-15)], ids=str)
def test_scales_whose_product_is_no_float(steps: tuple[float, float]) -> None:
    """Rows of 0 stay 0, and digits of what is small stay."""
    feeds = {"a": np.outer([0, 127, -100], np.ones(100)).astype(I8)}
    left, right = (np.array(step, np.float32) for step in steps)
    weights = {"s": left, "b": np.full((100, 2), 127, I8), "t": right}
    nodes = [node("DequantizeLinear", "a s", "af"), node("DequantizeLinear", "b t", "bf"), node("MatMul", "af bf", "y")]
    (got,) = InferenceSession(model(nodes, feeds, weights, True)).run(None, feeds)
    with np.errstate(over="ignore"):
        want = np.float32(steps[0] * steps[1] * 12700 * np.array([[0, 0], [127, 127], [-100, -100]]))
    np.testing.assert_allclose(got, want, rtol=1e-6)
