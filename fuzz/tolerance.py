"""The tolerance of a model's answers, from its operators, its number formats and the lengths of its sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from fuzz.compare import Tolerance, epsilon
from fuzz.draw import FLOATS
from fuzz.node import full_name, nodes, operators
from fuzz.node_values import NodeValues
from fuzz.sums import longest_sum

# Some runtimes compute these by polynomials, by e^x - 1, by 1 + erf(x) or 1 + tanh(x), by log(1 + e^x), or as sums of
# cosines: their error is absolute, some units in the last place of 1.
APPROXIMATE = operators(
    "RNN LSTM GRU Elu Selu Celu Gelu BlackmanWindow HannWindow HammingWindow ParametricSoftplus",
    "AttnLSTM DynamicQuantizeLSTM Gelu BiasGelu FastGelu BiasSplitGelu LinearAttentionGate",
)
# Parts are computed in float32 whatever the type is: by the standard if `stash_type` is not given, by the reference.
# HardSwish's 1/6 is an attribute of the function that defines it, and attributes are float32.
# Resize's coordinates are float32, as DeformConv's; FastGelu's constants have six digits, as Gelu's where it is a tanh.
IN_FLOAT32 = operators(
    """DeformConv Gelu GroupNormalization HardSwish LayerNormalization Resize RMSNormalization
    ai.onnx.preview.FlexAttention""",
    "FastGelu Gelu",
)
# These round to integers inside: runtimes differ by a unit where a product falls on a tie, or by cutting off.
QUANTISED = operators(
    "ConvInteger DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear",
    """DynamicQuantizeLSTM DynamicQuantizeMatMul GatherBlockQuantized MatMulInteger16 MatMulIntegerToFloat MatMulNBits
    QAttention QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu
    QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear""",
)


def tolerance(model: onnx.ModelProto, values: Mapping[str, Any], fed: Mapping[str, Any]) -> Tolerance:
    """values: what is known by name in a run; fed: inputs and weights."""
    every = list(nodes(model.graph))
    names = {full_name(node) for node in every}
    types = {x.dtype for x in fed.values() if isinstance(x, np.ndarray)}
    types |= set() if IN_FLOAT32.isdisjoint(names) else {np.dtype("float32")}
    return Tolerance(
        terms=max((longest_sum(NodeValues(node, values, fed)) for node in every), default=1),
        step=int(any(map(_rounds, every))),
        floor=float(not APPROXIMATE.isdisjoint(names)),
        epsilon=max((epsilon(d) for d in types if d in FLOATS), default=0.0),
        nodes=len(every),
    )


def _rounds(node: Any) -> bool:
    """Whether results may be integers that were not before."""
    between = any(a.name == "mode" and a.s != b"nearest" for a in node.attribute)
    return full_name(node) == "Resize" and between or full_name(node) in QUANTISED
