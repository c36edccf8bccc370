"""Shapes of inputs that disagree are refused, where a kernel would read outside one of them: when the model is compiled
if dims are known, else when they are bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from pyruntime.errors import InvalidModel, ShapeError
from tests.ops.node import floats, ints, node_model

QKV = [floats(3, 2, 4, 8), floats(3, 2, 6, 8), floats(3, 2, 6, 8)]
MS = "com.microsoft"
BY_HEADS = [floats(2, 2, 16), floats(2, 5, 16), floats(2, 5, 16)]
ROTATED = [floats(2, 3, 4, 8), floats(50, 4), floats(50, 4), ints(*range(8)).reshape(2, 4)]
CACHED = [*(floats(2, 1, 8 * n) for n in (4, 2, 2)), floats(2, 2, 4, 8), floats(2, 2, 4, 8)]
HEADS = {"domain": MS, "num_heads": 2}
SHARED = {"domain": MS, "num_heads": 4, "kv_num_heads": 2}
LINEAR = [floats(2, 4, 32), floats(2, 4, 32), floats(2, 4, 32)]
GATED = {"kv_num_heads": 4, "q_num_heads": 4}
SMALLER = {"keep_aspect_ratio_policy": "not_smaller"}
HALVES = [x.astype(np.float16) for x in CACHED[3:]]
LENGTHS = ints(4, 4, dtype=np.int32)
TOTAL = ints(5, dtype=np.int32)
MIXED = [*CACHED[:3], *HALVES, LENGTHS, TOTAL]
TARGET = ints(*[1] * 36).reshape(3, 3, 4)


@pytest.mark.parametrize("free", [False, True], ids=["dims", "named dims"])
@pytest.mark.parametrize(
    ("op", "args", "opset", "text", "rest"),
    [
        ("Attention", [*QKV, None, None, None, ints(5, 5)], 24, "nonpad_kv_seqlen", {}),
        ("AffineGrid", [floats(1, 2, 3), ints(2, 1, 4, 5)], 20, "theta", {}),
        ("AffineGrid", [floats(2, 2, 3), ints(2, 1, 4, 5, 6)], 20, "theta", {}),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 1, 4), TARGET], 13, "axis 1", {}),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 3), TARGET], 13, "rank", {}),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 3, 4), TARGET, floats(4)], 13, "weights", {}),
        ("SoftmaxCrossEntropyLoss", [floats(3, 5, 1, 4), TARGET], 13, "axis 1", {}),
        ("MultiHeadAttention", [*BY_HEADS, floats(24)], 1, "24", HEADS),
        ("MultiHeadAttention", [*BY_HEADS, floats(24), None, floats(1, 2, 2, 5)], 1, "24", HEADS),
        ("MultiHeadAttention", [floats(2, 3, 8), floats(2, 2, 5, 4), floats(2, 5, 8)], 1, "value 3", HEADS),
        ("RotaryEmbedding", [floats(2, 2, 3, 3), ints(0), floats(9, 1), floats(9, 1)], 1, "twice", {"domain": MS}),
        ("LinearAttention", [*LINEAR, None, floats(2, 4, 5), floats(2, 4, 1)], 27, "decay or beta has", GATED),
        ("LinearAttention", [*LINEAR, None, floats(2, 4, 4), floats(2, 4, 3)], 27, "decay or beta has", GATED),
        ("LinearAttention", [*LINEAR, floats(2, 4, 8, 7), floats(2, 4, 4), floats(2, 4, 1)], 27, "past state", GATED),
        (
            "LinearAttention",
            [floats(2, 4, 30), *LINEAR[1:], None, floats(2, 4, 4), floats(2, 4, 1)],
            27,
            "axis 2",
            GATED,
        ),
        ("InstanceNormalization", [floats(2, 1, 4), floats(5), floats(5)], 6, "channels", {}),
        ("BatchNormalization", [floats(5), *[floats(5)] * 4], 15, "channels", {}),
        ("BatchNormalization", [floats(2, 3, 4), floats(4), *[floats(3)] * 3], 15, "channels", {}),
        ("Resize", [floats(1, 1, 0, 4), None, None, ints(2, 3)], 18, "aspect", {"axes": [2, 3], **SMALLER}),
        ("GroupQueryAttention", MIXED, 1, "float32 and float16", SHARED),
        ("LinearAttention", [*LINEAR, floats(2, 1, 4, 8, 8), floats(2, 4, 4), floats(2, 4, 1)], 27, "rank 5", GATED),
        ("LinearAttention", [x[0] for x in LINEAR], 1, "rank 2", {**GATED, "domain": MS, "update_rule": "linear"}),
        ("CausalConvWithState", [floats(1, 2, 5), floats(2, 1, 4), None, floats(1, 2, 4)], 27, "less than the", {}),
        ("CausalConvWithState", [floats(1, 2, 5), floats(2, 1, 0)], 27, "without elements", {}),
        ("RotaryEmbedding", [*ROTATED[:2], floats(50, 3), ROTATED[3]], 23, "sin_cache", {}),
        ("RotaryEmbedding", [ROTATED[0], floats(50, 3), floats(50, 3), ROTATED[3]], 23, "pairs", {}),
        ("RotaryEmbedding", [*ROTATED[:3], ROTATED[3][:1]], 23, "too small|rank", {}),
        ("RotaryEmbedding", ROTATED, 23, "caches", {"rotary_embedding_dim": 10}),
        ("RotaryEmbedding", [ROTATED[0], floats(2, 3, 4), floats(2, 3, 4)], 23, "small", {}),
        ("GroupQueryAttention", [*CACHED, LENGTHS[:1], TOTAL], 1, "reshape", SHARED),
        ("Slice", [floats(4, 5), ints(0, 0), ints(2, 2), ints()], 13, "2 starts, 2 ends, 0 axes", {}),
        ("Slice", [floats(4, 5), ints(0, 0), ints(2, 2), ints(1, -1)], 13, "repeat", {}),
    ],
)
def test_refused(op: str, args: list[Any], opset: int, text: str, rest: dict[str, Any], free: bool) -> None:
    constants = tuple(n for n, a in enumerate(args) if op == "Slice" and n)
    model, feeds = node_model(op, args, opset, constants=constants, **rest)
    if free:
        for value in model.graph.input:
            for n, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}_{n}"
    with pytest.raises((ShapeError, InvalidModel), match=text):
        InferenceSession(model.SerializeToString()).run(None, feeds)
