"""Matrix products and Einsum: old and fused forms, broadcast batches, named and empty dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.compare import by_onnx as by_reference
from tests.ops.dynamic import Case, by_onnx, by_onnxruntime, check
from tests.ops.node import check_node

SIZES = ({"B": 2, "M": 3, "K": 4}, {"B": 1, "M": 1, "K": 1}, {"B": 3, "M": 2, "K": 0}, {"B": 0, "M": 2, "K": 3})
AB = {"a": "B M K", "b": "B K 5"}

FUSED = [
    Case("FusedMatMul", {"alpha": 0.5}, AB, SIZES),
    Case("FusedMatMul", {"transA": 1}, {"a": "B K M", "b": "K 5"}, SIZES[:2]),
    Case("FusedMatMul", {"transB": 1, "transA": 1}, {"a": "B K M", "b": "B 5 K"}, SIZES[:2]),
    Case("FusedMatMul", {"transBatchA": 1, "transBatchB": 1}, {"a": "M B K", "b": "K B 5"}, SIZES[:2]),
    Case("FusedMatMul", {"transBatchA": 1, "transA": 1}, {"a": "K B M", "b": "B K 5"}, SIZES[:2]),
]  # fmt: skip


@pytest.mark.parametrize("case", FUSED, ids=str)
def test_fused(case: Case) -> None:
    check(case, by_onnxruntime)


@pytest.mark.parametrize(
    ("a", "b"),
    [("B M K", "K 5"), ("M K", "B K 5"), ("B 1 M K", "2 K 5"), ("K", "B K 5"), ("B M K", "K"), ("K", "K")],
)
def test_matmul_broadcasts(a: str, b: str) -> None:
    check(Case("MatMul", {}, {"a": a, "b": b}, SIZES, domain=""), by_onnx)


@pytest.mark.parametrize("opset", [1, 6, 7, 13])
@pytest.mark.parametrize("c", ["M 5", "5", "1"])
def test_gemm(opset: int, c: str) -> None:
    attrs: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "transA": 1}
    if opset < 7 and c != "M 5":
        attrs["broadcast"] = 1

    def by_definition(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        return [np.float32(0.5) * (feeds["a"].T @ feeds["b"]) + np.float32(2) * feeds["c"]]

    check(Case("Gemm", attrs, {"a": "K M", "b": "K 5", "c": c}, SIZES[:3], opset=opset, domain=""), by_definition)


EQUATIONS = [
    ("bmk,bkn->bmn", AB), ("bmk,bkn->nmb", AB), ("...mk,kn->...mn", {"a": "B M K", "b": "K 5"}),
    ("bhmk,bhnk->bhmn", {"a": "B 2 M K", "b": "B 2 3 K"}), ("mk,kn", {"a": "M K", "b": "K 5"}),
    ("bii->bi", {"a": "B 3 3"}), ("bm->b", {"a": "B M"}), ("bm,bn->bmn", {"a": "B M", "b": "B K"}),
    ("bk,bk->", {"a": "B K", "b": "B K"}), ("a,b,c->cab", {"a": "B", "b": "M", "c": "K"}),
    ("b...,...->b...", {"a": "B M K", "b": "M K"}), ("bmk,bk->m", {"a": "B M K", "b": "B K"}),
    ("...ij->...ji", {"a": "B M K"}), ("mk,kn,bn->mb", {"a": "M K", "b": "K 5", "c": "B 5"}),
    ("bk,m,bm->", {"a": "B K", "b": "M", "c": "B M"}),
    ("iik,kb,b,m->ki", {"a": "3 3 K", "b": "K B", "c": "B", "d": "M"}),
    ("ai,bj,abij->", {"a": "B K", "b": "M 5", "c": "B M K 5"}),
    ("...k,k,...->...", {"a": "B M K", "b": "K", "c": "B M"}),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "inputs"), EQUATIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_einsum(equation: str, inputs: dict[str, str]) -> None:
    check(Case("Einsum", {"equation": equation}, inputs, SIZES, domain=""), by_onnx)


@pytest.mark.parametrize(
    "attrs", [{"alpha": 0.25, "beta": 0.35}, {"alpha": 2.0, "beta": 0.5}, {"beta": 1.5}, {"alpha": 0.3}], ids=str
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_fractions_of_integers(attrs: dict[str, float], dtype: type[np.integer]) -> None:
    """Earlier, alpha and beta were truncated before the product: 0.25 times anything was 0."""
    whole = [np.arange(n, dtype=dtype).reshape(shape) for n, shape in ((12, (3, 4)), (8, (4, 2)), (2, (1, 2)))]
    check_node("Gemm", whole[: 3 if "beta" in attrs else 2], 13, by_reference, **attrs)
