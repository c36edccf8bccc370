"""Weights of few bits on the GPU: they lie there as codes, and results equal those of float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from kit.gpu import GPU
from kit.low_bits import CASES, ROWS, Case, K, N
from pyruntime import InferenceSession

pytest.importorskip("wgpu")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_codes_stay(case: Case) -> None:
    data, weights = case.build()
    session = InferenceSession(data, providers=["webgpu"])
    assert session.memory().providers["webgpu"].weights <= case.most * K * N + 1024
    for rows in (1, 33):
        x = case.feed(rows)
        case.check(session.run(None, {"x": x})[0], x, weights)


@pytest.mark.parametrize("assume", [[], ["subgroups"]], ids=str)
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_few_rows_on_gpus(case: Case, assume: list[str]) -> None:
    data, weights = case.build()
    check_few_rows(data, weights, case, assume)


def check_few_rows(data: bytes, weights: Any, case: Case, assume: Sequence[str] = ()) -> None:
    """A Program for GPUs has a kernel for few rows and one for many, and a run uses one of them."""
    program = InferenceSession(data).export(weights=True, providers=["webgpu"], assume=assume)
    session = InferenceSession(program, providers=[GPU])
    used = []
    for rows in (1, 4, 5, 33):
        x = case.feed(rows)
        case.check(session.run(None, {"x": x})[0], x, weights)
        used.append([call.kernel for call in session.profile({"x": x})])
    assert used[0] == used[1] != used[2] == used[3]
    assert all(len(calls) == 1 for calls in used)


@pytest.mark.parametrize("node", ["Gemm <transB = 1> (x, w, b)", "Gemm <transB = 1, alpha = 2.0> (x, w)"])
def test_few_rows_by_floats(node: str) -> None:
    """The same for a matrix of float32 whose rows are columns of the product."""
    text = f"""<ir_version: 9, opset_import: ["" : 17]> g (float[m, {K}] x) => (float[m, {N}] y) {{ y = {node} }}"""
    model = onnx.parser.parse_model(text)
    w = np.random.default_rng(2).standard_normal((N, K), np.float32)
    for name, values in {"w": w, "b": np.zeros(N, np.float32)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    check_few_rows(model.SerializeToString(), w * (2 if "alpha" in node else 1), Case(32, False, 4))
