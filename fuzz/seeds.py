"""Valid nodes as seeds: the official cases, and a table of Microsoft's operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzz import suite
from fuzz.node import Node

# Operator, attributes, then inputs as "dims" (float32), "type dims", or "" for a scalar scale; `type dims <n` are
# integers below n, `type dims =n` all n.
MICROSOFT: list[tuple[str, dict[str, Any], Sequence[str]]] = [
    ("BiasGelu", {}, ["2 3 8", "8"]),
    ("BiasAdd", {}, ["2 3 320", "320", "2 3 320"]),
    ("BiasSplitGelu", {}, ["2 3 2560", "2560"]),
    ("FastGelu", {}, ["2 3 8", "8"]),
    ("Gelu", {}, ["2 3 8"]),
    ("QuickGelu", {"alpha": 1.702}, ["2 3 8"]),
    ("FusedMatMul", {"alpha": 0.5, "transA": 0, "transB": 1}, ["2 3 4", "2 5 4"]),
    ("FusedGemm", {"activation": "Relu", "transB": 1}, ["3 4", "5 4", "5"]),
    ("FusedConv", {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, ["1 4 7 7", "4 4 3 3", "4"]),
    ("LayerNormalization", {}, ["2 3 8", "8", "8"]),
    ("SimplifiedLayerNormalization", {"axis": -1, "epsilon": 1e-5}, ["2 3 8", "8"]),
    ("SkipLayerNormalization", {"epsilon": 1e-5}, ["2 3 8", "2 3 8", "8", "8", "8"]),
    ("SkipSimplifiedLayerNormalization", {"epsilon": 1e-5}, ["2 3 8", "2 3 8", "8"]),
    ("GroupNorm", {"groups": 2, "activation": 1, "channels_last": 1}, ["2 5 5 4", "4", "4"]),
    ("MultiHeadAttention", {"num_heads": 2}, ["2 3 8", "2 5 8", "2 5 8"]),
    ("MultiHeadAttention", {"num_heads": 2}, ["2 3 8", "2 5 8", "2 5 8", "24", "int32 2 5 <2", "2 2 3 5"]),
    ("Attention", {"num_heads": 2}, ["2 3 8", "8 24", "24", "int32 2 3 <2"]),
    ("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
     ["2 1 32", "2 1 16", "2 1 16", "2 2 4 8", "2 2 4 8", "int32 2 1 <4", "int32 1 =5"]),
    ("RotaryEmbedding", {"interleaved": 0}, ["2 2 3 8", "int64 2 3 <9", "9 4", "9 4"]),
    ("EmbedLayerNormalization", {}, ["int32 2 3 <5", "int32 2 3 <2", "5 8", "4 8", "2 8", "8", "8"]),
    ("MatMulNBits", {"K": 32, "N": 4, "bits": 4, "block_size": 16}, ["3 32", "uint8 4 2 8", "8", "uint8 4"]),
    ("MatMulNBits", {"K": 64, "N": 8, "bits": 4, "block_size": 32}, ["1 64", "uint8 8 2 16", "16"]),
    ("GatherBlockQuantized", {"block_size": 16, "quantize_axis": 1}, ["uint4 5 32", "int64 3 <5", "5 2"]),
    ("DynamicQuantizeMatMul", {}, ["3 8", "int8 8 5", "5", "int8 5"]),
    ("MatMulIntegerToFloat", {}, ["uint8 3 8", "int8 8 5", "", "5", "uint8 1", "int8 5"]),
    ("QuantizeLinear", {}, ["2 3 4", "", "uint8"]),
    ("DequantizeLinear", {"axis": 1}, ["uint8 2 3 4", "3", "uint8 3"]),
    ("QLinearAdd", {}, ["uint8 2 3", "", "uint8", "uint8 2 3", "", "uint8", "", "uint8"]),
    ("QLinearMul", {}, ["int8 2 3", "", "int8", "int8 2 3", "", "int8", "", "int8"]),
    ("QLinearAveragePool", {"kernel_shape": [2, 2]}, ["uint8 1 3 5 5", "", "uint8", "", "uint8"]),
    ("QLinearGlobalAveragePool", {}, ["uint8 1 3 5 5", "", "uint8", "", "uint8"]),
    ("QLinearLeakyRelu", {"alpha": 0.1}, ["uint8 2 3", "", "uint8", "", "uint8"]),
    ("QLinearSigmoid", {}, ["uint8 2 3", "", "uint8", "", "uint8"]),
    ("QLinearSoftmax", {"opset": 13, "axis": -1}, ["uint8 2 3", "", "uint8", "", "uint8"]),
    ("QLinearConcat", {"axis": 1}, ["", "uint8", "uint8 2 3", "", "uint8", "uint8 2 4", "", "uint8"]),
    ("QLinearWhere", {}, ["bool 2 3", "uint8 2 3", "", "uint8", "uint8 2 3", "", "uint8", "", "uint8"]),
    ("QLinearConv", {}, ["uint8 1 2 5 5", "", "uint8", "uint8 3 2 3 3", "", "uint8", "", "uint8", "int32 3"]),
    ("QGemm", {"transB": 0}, ["uint8 3 4", "", "uint8", "uint8 4 5", "", "uint8", "int32 5", "", "uint8"]),
    ("QAttention", {"num_heads": 2}, ["uint8 1 3 8", "int8 8 24", "24", "", "", "int32 1 3 <2", "uint8", "int8"]),
    ("NhwcMaxPool", {"kernel_shape": [2, 2]}, ["uint8 1 5 5 3"]),
    ("CausalConvWithState", {}, ["2 4 6", "4 1 3", "4", "2 4 2"]),
    ("LinearAttention", {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}, ["1 3 8", "1 3 8", "1 3 8"]),
]  # fmt: skip
SCALARS = ("MatMulIntegerToFloat", "QAttention")


@cache
def official() -> list[str]:
    """Names of official cases of one node."""
    found = []
    for case in suite.load().values():
        if case.category == "node":
            if len(onnx.load_from_string(case.model).graph.node) == 1:
                found.append(case.name)
    return found


def from_official(name: str) -> Node:
    """A new node of an official case."""
    case = suite.load()[name]
    model = onnx.load_from_string(case.model)
    proto, graph = model.graph.node[0], model.graph
    feeds = dict(case.data[0][0])
    feeds.update({t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer})
    declared = {i.name: i.type for i in graph.input}
    types = {
        n: declared[x] for n, x in enumerate(proto.input) if x and declared[x].WhichOneof("value") != "tensor_type"
    }
    inputs = [_value(feeds.get(x)) if x else None for x in proto.input]
    version = next((o.version for o in model.opset_import if o.domain == proto.domain), 21)
    attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    return Node(proto.op_type, proto.domain, version, attributes, inputs, [bool(y) for y in proto.output], types)


def _value(x: Any) -> Any:
    return x if x is None or isinstance(x, list) else np.asarray(x)


def from_microsoft(index: int, rng: np.random.Generator) -> Node:
    """A node of the table, with random values."""
    op, attributes, specs = MICROSOFT[index]
    inputs = [_parsed(spec, rng, absent=op in ("MatMulIntegerToFloat",) and not spec) for spec in specs]
    return Node(op, "com.microsoft", 21, dict(attributes), inputs, [True])


def _parsed(spec: str, rng: np.random.Generator, absent: bool) -> np.ndarray | None:
    words = spec.split()
    kind = words.pop(0) if words and not words[0].isdigit() else "float32"
    limit = next((w for w in words if w[0] in "<="), "")
    shape = [int(w) for w in words if w.isdigit()]
    if not spec:  # a scale
        return np.float32(rng.uniform(0.01, 0.2)).reshape(())
    if limit.startswith("="):
        return np.full(shape, int(limit[1:]), kind)
    if limit:
        return rng.integers(0, int(limit[1:]), shape).astype(kind)
    if kind == "float32":
        return np.asarray(rng.normal(size=shape), np.float32)
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "uint4":
        return rng.integers(0, 16, shape).astype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.UINT4))
    low, high = (-100, 100) if kind.startswith("int") else (0, 200)
    return np.asarray(rng.integers(low, high, shape)).astype(kind)
