"""One node with its values, and models built around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.draw import Draw

IR = 10


@dataclass
class Node:
    """inputs: an array each; a list for a sequence; None for an absent one. has_output: for each output, whether it has
    a name. types: declared types of inputs that are not arrays, by index."""

    op: str
    domain: str
    opset: int
    attributes: dict[str, Any]
    inputs: list[Any]
    has_output: list[bool]
    types: dict[int, onnx.TypeProto] = field(default_factory=dict)

    def proto(self) -> onnx.NodeProto:
        inputs = ["" if x is None and n not in self.types else f"x{n}" for n, x in enumerate(self.inputs)]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [f"y{n}" if named else "" for n, named in enumerate(self.has_output)]
        return helper.make_node(self.op, inputs, outputs, domain=self.domain, **self.attributes)


MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"


def full_name(node: Any) -> str:
    """Domain and operator: "Conv", "com.microsoft.QGemm"."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def operators(standard: str = "", microsoft: str = "", ml: str = "") -> frozenset[str]:
    """Full names of operators, from words by domain."""
    others = {f"{domain}.{name}" for domain, words in ((MICROSOFT, microsoft), (ML, ml)) for name in words.split()}
    return frozenset(standard.split()) | others


def nodes(graph: Any) -> Iterable[Any]:
    """Nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from nodes(inner)


def inner_names(node: Any) -> set[str]:
    """Names that the graphs inside a node use."""
    graphs = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
    used = {name for g in graphs for inner in g.node for name in {*inner.input, *inner_names(inner)}}
    return used | {output.name for g in graphs for output in g.output}


def code_of(x: np.ndarray) -> int:
    return code_of_dtype(x.dtype)


def code_of_dtype(dtype: np.dtype) -> int:
    return onnx.TensorProto.STRING if dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(dtype)


def tensor(x: np.ndarray, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(x).reshape(x.shape), name)


def opsets(opset: int, *domains: str, newest: int = 1) -> list[onnx.OperatorSetIdProto]:
    """Imports of ai.onnx at an opset, and of other domains at their newest version."""
    versions = {"ai.onnx.ml": min(5, max(1, newest)), "com.microsoft": 1}
    more = [helper.make_opsetid(d, versions.get(d, 1)) for d in dict.fromkeys(domains) if d]
    return [helper.make_opsetid("", opset), *more]


def declared(draw: Draw, name: str, x: np.ndarray, style: str, seen: dict[int, str]) -> onnx.ValueInfoProto:
    """style: static, symbolic (equal dims share a name), mixed, unknown (dims without names), or rankless."""
    dims: list[int | str | None] = list(x.shape)
    if style == "symbolic":
        dims = [seen.setdefault(d, f"d{d}") for d in x.shape]
    elif style == "mixed":
        dims = [d if draw.chance(0.5) else f"{name}_{n}" for n, d in enumerate(x.shape)]
    elif style == "unknown":
        dims = [None] * x.ndim
    return helper.make_tensor_value_info(name, code_of(x), None if style == "rankless" else dims)


STYLES = ["static", "static", "static", "symbolic", "mixed", "unknown", "rankless"]


def model_of(draw: Draw, node: Node, style: str | None = None, fixed: float = 0.4) -> tuple[bytes, dict[str, Any]]:
    """A model of one node, and its feeds. fixed: the share of models that have constants among their inputs."""
    style = style or draw.pick(STYLES)
    constants = draw.chance(fixed)
    inputs, weights, feeds, seen = [], [], {}, {}
    for n, x in enumerate(node.inputs):
        name = f"x{n}"
        if n in node.types:
            feeds[name] = x
            inputs.append(helper.make_value_info(name, node.types[n]))
        elif x is not None:
            parameter = x.dtype == np.int64 and x.ndim <= 1
            if constants and draw.chance(0.8 if parameter else 0.3) and x.size < 5000:
                weights.append(tensor(x, name))
            else:
                feeds[name] = x
                inputs.append(declared(draw, name, x, style, seen))
    proto = node.proto()
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = helper.make_graph([proto], "g", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=opsets(node.opset, node.domain), ir_version=IR)
    if node.domain == "ai.onnx.ml":
        made.opset_import[-1].version = node.opset
        made.opset_import[0].version = 21
    return made.SerializeToString(), feeds


def describe(node: Node) -> str:
    inputs = [f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__ for x in node.inputs]
    return f"{node.domain}{node.domain and '.'}{node.op}-{node.opset} {' '.join(inputs)} {node.attributes}"
