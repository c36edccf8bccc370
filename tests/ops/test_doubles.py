"""Operators that interpolate between elements, and products, compute doubles in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

from pyruntime import InferenceSession
from tests.ops.compare import by_onnxruntime
from tests.ops.node import check_node, ints, run_node


def doubles(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


IMAGE, GRID = doubles(1, 2, 5, 6), doubles(1, 3, 4, 2) * 0.7
REGIONS = np.array([[0.1, 0.2, 3.3, 4.1], [1.7, 0.4, 2.9, 2.2]])
CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("DeformConv", [IMAGE, doubles(3, 2, 2, 2), doubles(1, 8, 4, 5), None, doubles(1, 4, 4, 5)], 22, {}),
    ("RoiAlign", [IMAGE, REGIONS, ints(0, 0)], 16, {"output_height": 2, "output_width": 2}),
    *[
        ("GridSample", [IMAGE, GRID], 20, {"mode": mode, "padding_mode": padding})
        for mode in ("linear", "cubic", "nearest")
        for padding in ("zeros", "border", "reflection")
    ],
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n][0]}")
def test_doubles_keep_their_digits(case: int) -> None:
    op, args, opset, attrs = CASES[case]
    check_node(op, args, opset, by_onnxruntime, tolerance=1e-13, **attrs)


@pytest.mark.parametrize("align", [0, 1])
def test_a_grid(align: int) -> None:
    """onnx.reference returns float32."""
    theta = doubles(1, 2, 3)
    ends = (1 - 1 / 4, 1 - 1 / 5) if not align else (1, 1)
    rows, columns = (np.linspace(-end, end, n) for end, n in zip(ends, (4, 5), strict=True))
    places = np.stack([np.tile(columns, (4, 1)), np.tile(rows[:, None], 5), np.ones((4, 5))], -1)
    got = run_node("AffineGrid", [theta, ints(1, 1, 4, 5)], 20, align_corners=align)[0]
    np.testing.assert_allclose(got[0], places @ theta[0].T, rtol=1e-13, atol=1e-14)


def test_the_largest_of_a_region_is_an_element() -> None:
    regions = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 5, 4]], np.float64)
    pooled = run_node("MaxRoiPool", [IMAGE, regions], 22, pooled_shape=[2, 2])[0]
    assert pooled.dtype == np.float64 and np.isin(pooled, IMAGE).all()


@pytest.mark.parametrize("after", [(), ("Neg", "Neg"), ("Transpose", "Transpose")])
@pytest.mark.parametrize("kind", ["float", "float16", "int32"])
def test_products_that_are_cast(kind: str, after: tuple[str, ...]) -> None:
    """The cast must not become the epilogue of a product that writes doubles."""
    moves = " ".join(f"c{n + 1} = {op}(c{n})" for n, op in enumerate(after))
    code = {"float": 1, "float16": 10, "int32": 6}[kind]
    body = f"c0 = MatMul(a, b) {moves} y = Cast<to = {code}>(c{len(after)})"
    graph = f"g (double[M, 16] a, double[16, 30] b) => ({kind}[M, 30] y) {{ {body} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 20]> {graph}').SerializeToString()
    a, b = doubles(40, 16) * 4, doubles(16, 30) * 4
    got = InferenceSession(model).run(None, {"a": a, "b": b})[0]
    np.testing.assert_allclose(got, (a @ b).astype(got.dtype), rtol=1e-6)
