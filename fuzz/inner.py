"""A model looked into: every inner value as an output, and the same model with every inner value moved a little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from fuzz.compare import nudged
from fuzz.draw import FLOATS
from fuzz.node import tensor

# Words in the names of operators whose error is that of their largest terms, and how many units of those it may be.
UNITS = 4
SUMS = "Conv MatMul Gemm Einsum FT Norm Attention Pool Reduce Resize Sum Mean RNN LSTM GRU Window".split()


def revealed(model: onnx.ModelProto) -> tuple[bytes, list[str]]:
    """The model with what every node gives as an output, and the outputs' names."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in made.graph.output}
    inner = dict.fromkeys(y for node in made.graph.node for y in node.output if y and y not in known)
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    return made.SerializeToString(), [o.name for o in made.graph.output]


def shaken(model: onnx.ModelProto, values: Mapping[str, Any], rng: np.random.Generator, ulps: float) -> bytes:
    """The model with each float that a node hands on moved by some units in its last place; by more, in that of the
    largest, where the node sums. values: what there is at every name, for types, shapes and magnitudes."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    nodes, moved = list(made.graph.node), dict[str, str]()
    del made.graph.node[:]
    for node in nodes:
        for n, name in enumerate(node.input):
            node.input[n] = moved.get(name, name)
        made.graph.node.append(node)
        op = "Add" if any(word in node.op_type for word in SUMS) else "Mul"
        for name in node.output:
            x = values.get(name)
            if isinstance(x, np.ndarray) and x.dtype in FLOATS:
                by, moved[name] = f"{name}/by", f"{name}/moved"
                factor = nudged(np.ones_like(x), rng, ulps)
                largest = np.abs(x[np.isfinite(x)]).max(initial=0)
                made.graph.initializer.append(tensor(factor if op == "Mul" else (factor - 1) * UNITS * largest, by))
                made.graph.node.append(onnx.helper.make_node(op, [name, by], [moved[name]]))
    return made.SerializeToString()
