"""Products whose left operand is a transpose read it without a copy, against NumPy in double."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pyruntime import InferenceSession, SessionOptions
from tests.wasm.test_routines import floats, model, node

# batch, rows, k, columns: around tiles, blocks of k and of columns, no k at all
PRODUCTS = [
    ((), 9, 4, 1), ((), 10, 191, 8), ((3,), 11, 192, 7), ((2, 2), 12, 193, 9), ((), 193, 7, 513), ((), 200, 400, 20),
    ((), 9, 0, 3), ((0,), 9, 2, 3), ((2,), 13, 2, 5),
]  # fmt: skip
OPTIONS = {
    "machine code": {}, "WebAssembly": {"native_code": False}, "threads": {"intra_op_num_threads": 2},
}  # fmt: skip


def transposed(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def names(session: InferenceSession) -> list[str]:
    return [kernel for at in session.explain()["nodes"] for kernel in at["kernels"]]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("batch", "m", "k", "n"), PRODUCTS, ids=str)
@pytest.mark.parametrize("right", ["rows", "columns", "weight"])
def test_transposed_left_operand(
    batch: tuple[int, ...], m: int, k: int, n: int, right: str, options: dict[str, object]
) -> None:  # fmt: skip
    a, b, bias = floats(*batch, k, m), floats(*batch, *((n, k) if right == "columns" else (k, n))), floats(n)
    if a.size > 5:
        a.reshape(-1)[5] = np.nan  # of one row
    perm = transposed(a.ndim)
    nodes = [node("Transpose", "a", "at", perm=perm)]
    if right == "columns":
        nodes.append(node("Transpose", "b", "bt", perm=perm))
    nodes += [node("MatMul", f"at {'bt' if right == 'columns' else 'b'}", "c"), node("Add", "c bias", "s")]
    nodes.append(node("Relu", "s", "y"))
    feeds, weights = {"a": a, "b": b}, {"bias": bias}
    if right == "weight":
        weights["b"] = feeds.pop("b")
    wide = [x.astype(np.float64) for x in (a, b)]
    want = np.maximum(
        wide[0].swapaxes(-1, -2) @ (wide[1].swapaxes(-1, -2) if right == "columns" else wide[1]) + bias, 0
    )
    for symbolic in (False, True):
        session = InferenceSession(model(nodes, feeds, weights, symbolic), SessionOptions(**options), ["wasm"])
        got = session.run(None, feeds)[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * math.sqrt(max(k, 1)))
        assert any(name.startswith("matmul_left") for name in names(session))


@pytest.mark.parametrize("m", [1, 8, 9])
def test_few_rows_are_copied(m: int) -> None:
    """Few rows read B in place instead, as they would without the transpose."""
    a, b = floats(24, m), floats(24, 40)
    nodes = [node("Transpose", "a", "at", perm=[1, 0]), node("MatMul", "at b", "y")]
    session = InferenceSession(model(nodes, {"a": a, "b": b}, {}, False), providers=["wasm"])
    np.testing.assert_allclose(session.run(None, {"a": a, "b": b})[0], a.T @ b, rtol=1e-4, atol=1e-4)
    assert any("left" in name for name in names(session)) == (m == 9)
