"""Sums over no elements, with sizes that are 0 at compile time or only at run time, on both providers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from tests.ops.compare import by_onnx, by_onnxruntime, same, value_info
from tests.ops.node import floats, ints, node_model

pytest.importorskip("wgpu")

REDUCTIONS = "Sum Prod L1 L2 LogSum LogSumExp SumSquare Max Min Mean".split()
ROWS = floats(2, 0), floats(0, 3)
CASES: list[tuple[Any, ...]] = [
    *[(f"Reduce{name}", [floats(2, 0), ints(1)], {"constants": (1,)}) for name in REDUCTIONS],
    ("Gemm", [*ROWS], {}),
    ("Gemm", [*ROWS, floats(3)], {}),
    ("MatMul", [floats(4, 2, 0), floats(4, 0, 3)], {}),
    ("MatMul", [floats(0), floats(0)], {}),
    ("MatMulInteger", [x.astype(np.uint8) for x in ROWS], {}),
    ("Einsum", [*ROWS], {"equation": "ij,jk->ik"}),
    ("Conv", [floats(1, 0, 4, 4), floats(3, 0, 3, 3)], {}),
    ("ConvTranspose", [floats(1, 0, 4), floats(0, 3, 3)], {}),
    ("GlobalAveragePool", [floats(1, 2, 0, 3)], {}),
    ("Softmax", [floats(2, 0)], {}),
    ("InstanceNormalization", [floats(1, 2, 0), floats(2), floats(2)], {}),
    ("LayerNormalization", [floats(2, 0), floats(0)], {}),
    ("RMSNormalization", [floats(2, 0), floats(0)], {}),
    ("LpNormalization", [floats(2, 0)], {}),
    ("Gather", [floats(2, 3), ints()], {}),
    ("Concat", [floats(0, 2), floats(3, 2)], {"axis": 0}),
]
LOSS = ("NegativeLogLikelihoodLoss", [floats(0, 3), ints()], {"reduction": "sum"})


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "names"])
@pytest.mark.parametrize("case", [*CASES, LOSS], ids=lambda c: f"{c[0]}-{len(c[1])}")
def test_nothing(case: tuple[Any, ...], symbolic: bool, provider: str) -> None:
    op, args, rest = case
    model, feeds = node_model(op, args, 23, **rest)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the reference's: means of nothing
        want = (by_onnxruntime if case is LOSS else by_onnx)(model, feeds)
    if symbolic:
        del model.graph.input[:]
        model.graph.input.extend(value_info(name, x, symbolic=True) for name, x in feeds.items())
    same(InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds), want)


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_attention_without_keys_gives_nothing(provider: str) -> None:
    model, feeds = node_model("Attention", [floats(1, 1, 2, 4), floats(1, 1, 0, 4), floats(1, 1, 0, 4)], 23)
    (found,) = InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)
    assert found.shape == (1, 1, 2, 4) and not found.any()
