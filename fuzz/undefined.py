"""Where the standard leaves results open: a short table, with reasons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

# Only types and shapes of models with these nodes are compared.
RANDOM = "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli".split()
REASONS = dict.fromkeys(RANDOM, "results are random")
# Inner roundings to integers: runtimes differ by a unit where a product falls on a tie.
QUANTISED = ("Quantize", "QLinear", "QGemm", "QAttention", "NBits", "Integer", "BlockQuantized")


def nodes(graph: Any) -> Iterable[Any]:
    """Of a graph and of those inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from nodes(inner)


def reason(model: onnx.ModelProto) -> str:
    """Why the values of this model's outputs cannot be compared; empty if they can."""
    for node in nodes(model.graph):
        if node.op_type in REASONS:
            return REASONS[node.op_type]
        if node.op_type == "Dropout" and len(node.input) > 2:
            return "results are random"
    return ""


def quantised(model: onnx.ModelProto) -> int:
    """Units by which integers may differ."""
    return int(any(word in node.op_type for node in nodes(model.graph) for word in QUANTISED))


def longest_sum(model: onnx.ModelProto, runs: list[Any]) -> int:
    """An upper bound of how many terms a sum in the model has: the elements of its largest input."""
    sizes = [int(np.prod(t.dims)) for t in model.graph.initializer]
    sizes += [int(np.size(v)) for feeds in runs for v in feeds.values() if isinstance(v, np.ndarray)]
    return max(sizes, default=1) + 1
