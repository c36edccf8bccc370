"""Shapes of inputs that disagree are refused, where a kernel would read outside one of them: when the model is compiled
if dims are known, else when they are bound."""

from __future__ import annotations

from typing import Any

import pytest

from pyruntime import InferenceSession
from pyruntime.errors import ShapeError
from tests.ops.node import floats, ints, node_model

QKV = [floats(3, 2, 4, 8), floats(3, 2, 6, 8), floats(3, 2, 6, 8)]
TARGET = ints(*[1] * 36).reshape(3, 3, 4)


@pytest.mark.parametrize("free", [False, True], ids=["dims", "named dims"])
@pytest.mark.parametrize(
    ("op", "args", "opset", "text"),
    [
        ("Attention", [*QKV, None, None, None, ints(5, 5)], 24, "nonpad_kv_seqlen"),
        ("AffineGrid", [floats(1, 2, 3), ints(2, 1, 4, 5)], 20, "theta"),
        ("AffineGrid", [floats(2, 2, 3), ints(2, 1, 4, 5, 6)], 20, "theta"),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 1, 4), TARGET], 13, "axis 1"),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 3), TARGET], 13, "rank"),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 3, 4), TARGET, floats(4)], 13, "weights"),
        ("SoftmaxCrossEntropyLoss", [floats(3, 5, 1, 4), TARGET], 13, "axis 1"),
    ],
)
def test_refused(op: str, args: list[Any], opset: int, text: str, free: bool) -> None:
    model, feeds = node_model(op, args, opset)
    if free:
        for value in model.graph.input:
            for n, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}_{n}"
    with pytest.raises(ShapeError, match=text):
        InferenceSession(model.SerializeToString()).run(None, feeds)
