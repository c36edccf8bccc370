"""Nodes of operators that have no other case in double for the table of gradients, most of them Microsoft's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

MICROSOFT = "com.microsoft"


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


_BLOB = np.random.default_rng(1).integers(0, 255, (5, 1, 20)).astype(np.uint8)
_BLOB[..., :4] = np.full((5, 1, 1), 0.1, np.float32).view(np.uint8)
_LAYOUT = [np.array(rows, np.int32) for rows in ([[0, 1, 3]], [[0, 0, 1]])]

# name -> operator, attributes, inputs (a shape of random numbers, constants, or None), number of outputs
TABLE: dict[str, tuple[str, dict[str, Any], list[Any], int]] = {
    "BiasAdd": ("BiasAdd", {}, [(2, 3, 4), (4,), (2, 3, 4)], 1),
    "BiasDropout": ("BiasDropout", {}, [(2, 3), (3,), (2, 3)], 1),
    "BiasSoftmax": ("BiasSoftmax", {"axis": 2, "is_inner_broadcast": 1}, [(2, 3, 4), (2, 1, 4)], 1),
    "outer BiasSoftmax": ("BiasSoftmax", {"axis": 2, "is_inner_broadcast": 0}, [(2, 3, 4), (3, 4)], 1),
    "BiasSplitGelu": ("BiasSplitGelu", {}, [(2, 3, 8), (8,)], 1),
    "CausalConvWithState": ("CausalConvWithState", {"activation": "silu"}, [(2, 3, 5), (3, 1, 4), (3,), (2, 3, 3)], 2),
    "GemmaRotaryEmbedding": ("GemmaRotaryEmbedding", {}, [(2, 3, 4), *[(2, 2, 3, 4)] * 4], 2),
    "GroupNorm": ("GroupNorm", {"groups": 2, "activation": 1}, [(2, 3, 3, 4), (4,), (4,)], 1),
    "SkipGroupNorm": (
        "SkipGroupNorm", {"groups": 2, "activation": 0}, [(2, 3, 3, 4), (4,), (4,), (2, 4), (4,)], 2,
    ),
    "LinearAttention": (
        "LinearAttention", {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated"},
        [(1, 4, 6), (1, 4, 6), (1, 4, 6), (1, 2, 3, 3), (1, 4, 2)], 2,
    ),
    "long LinearAttention": (
        "LinearAttention", {"q_num_heads": 2, "kv_num_heads": 1, "update_rule": "gated_delta"},
        [(1, 130, 6), (1, 130, 3), (1, 130, 2), None, (1, 130, 1), (1, 130, 1)], 1,
    ),
    "LinearAttentionGate": ("LinearAttentionGate", {}, [(2, 3, 4), (4,), (4,), (2, 3, 4)], 2),
    "MatMulFpQ4": ("MatMulFpQ4", {"blk_quant_type": 0}, [(3, 32), _BLOB.ravel(), _ints(32, 5)], 1),
    "NhwcConv": ("NhwcConv", {"pads": [1, 1, 1, 1], "strides": [2, 1]}, [(1, 5, 4, 2), (3, 2, 3, 3), (3,)], 1),
    "NhwcFusedConv": (
        "NhwcFusedConv", {"activation": "Relu", "group": 2}, [(1, 5, 4, 2), (4, 1, 3, 3), (4,), (1, 3, 2, 4)], 1,
    ),
    "NhwcMaxPool": ("NhwcMaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, [(1, 5, 4, 3)], 1),
    "RelativePositionBias": (
        "RelativePositionBias", {"max_distance": 8, "is_bidirectional": 1}, [(8, 2), _ints(5), _ints(6)], 1,
    ),
    "SparseAttention": (
        "SparseAttention", {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 4},
        [(1, 6, 16), (1, 6, 8), (1, 6, 8), (1, 2, 8, 4), (1, 2, 8, 4), *_LAYOUT, np.array([6], np.int32),
         np.array([6], np.int32)], 3,
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
        [(2, 1, 32), (2, 1, 16), (2, 1, 16), (2, 2, 4, 8), (2, 2, 4, 8), np.array([3, 4], np.int32),
         np.array([5], np.int32)], 3,
    ),
    "SparseToDenseMatMul": ("SparseToDenseMatMul", {"transB": 1}, [(3, 4), (5, 4)], 1),
    "AttnLSTM": (
        "AttnLSTM", {"hidden_size": 4, "direction": "bidirectional"},
        [(3, 2, 3), (2, 16, 8), (2, 16, 4), (2, 32), None, (2, 2, 4), (2, 2, 4), (2, 12), (2, 4, 6), (2, 5, 6), (2, 6),
         (2, 4, 5)], 3,
    ),
    "reverse AttnLSTM": (
        "AttnLSTM", {"hidden_size": 4, "direction": "reverse", "input_forget": 1},
        [(3, 2, 3), (1, 16, 9), (1, 16, 4), None, np.array([3, 2], np.int32), None, None, None, (1, 4, 6), (1, 5, 6),
         (1, 6), (2, 4, 5), np.array([4, 3], np.int32), (1, 9, 6)], 3,
    ),
}  # fmt: skip


def nodes() -> Iterator[tuple[str, onnx.NodeProto, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(11)
    for name, (op, attributes, inputs, outputs) in TABLE.items():
        values = {
            f"x{n}": rng.normal(size=x) * 0.5 if isinstance(x, tuple) else x
            for n, x in enumerate(inputs) if x is not None
        }  # fmt: skip
        names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
        results = [f"y{n}" for n in range(outputs)]
        yield name, helper.make_node(op, names, results, domain=MICROSOFT, **attributes), values
    x = {"x": rng.normal(size=(3, 4))}
    imputer = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": 9.0}
    yield "Imputer", helper.make_node("Imputer", [*x], ["y"], domain="ai.onnx.ml", **imputer), x
    slices = {"x": rng.normal(size=(3, 4)), "starts": _ints(1, 0), "ends": _ints(3, -1)}
    yield "DynamicSlice", helper.make_node("DynamicSlice", [*slices], ["y"]), slices
