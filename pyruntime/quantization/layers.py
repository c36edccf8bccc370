"""Finds the nodes of a model whose constant weights can become codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from pyruntime.errors import InvalidInput
from pyruntime.quantization.codes import Array

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_WEIGHT_INPUT = {"MatMul": 1, "Gemm": 1, "Gather": 0, "Conv": 1, "ConvTranspose": 1}
_Constants = Mapping[str, TensorProto]


@dataclass(frozen=True, slots=True)
class Layer:
    """A node, the graph that contains it (the model's or that of a branch or a loop's body), and its weight.

    is_transposed: a Transpose node is between the weight and the node
    """

    node: NodeProto
    graph: GraphProto
    weight_name: str
    weight: TensorProto
    is_transposed: bool
    is_top: bool

    @property
    def name(self) -> str:
        return self.node.name or self.node.output[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.weight.dims)

    @property
    def size(self) -> int:
        """Bytes of the weight as it is in the model."""
        return int(len(self.weight.raw_data)) or self.values().nbytes

    def values(self) -> Array:
        return onnx.numpy_helper.to_array(self.weight)

    @property
    def has_columns(self) -> bool:
        """Whether the weight of a product is (K, N): a column for each column of the result."""
        return bool(attribute(self.node, "transB", 0)) == self.is_transposed


def find_layers(model: ModelProto, smallest: int) -> list[Layer]:
    """The layers with float weights of at least `smallest` elements."""
    overridable = {i.name for i in model.graph.input} if model.ir_version >= 4 else set()
    return list(_layers(model.graph, {}, smallest, overridable, True))


def _layers(
    graph: GraphProto, outer: _Constants, smallest: int, overridable: set[str], is_top: bool
) -> Iterator[Layer]:  # fmt: skip
    constants = {**outer, **_constants(graph, overridable)}
    turned = {
        n.output[0]: n.input[0]
        for n in graph.node
        if n.op_type == "Transpose" and n.input[0] in constants and list(attribute(n, "perm", [1, 0])) == [1, 0]
    }
    for node in graph.node:
        name = _weight_name(node)
        weight_name = turned.get(name, name)
        weight = constants.get(weight_name)
        if weight is not None and _is_large(weight, smallest) and _is_supported(node, weight, name in turned):
            yield Layer(node, graph, weight_name, weight, name in turned, is_top)
        for part in node.attribute:
            for inner in [part.g] * part.HasField("g") + list(part.graphs):
                yield from _layers(inner, constants, smallest, overridable, False)


def _constants(graph: GraphProto, overridable: set[str]) -> _Constants:
    found = {t.name: t for t in graph.initializer if t.name not in overridable}
    for node in graph.node:
        if node.op_type == "Constant" and (value := attribute(node, "value", None)) is not None:
            found[node.output[0]] = value
    return found


def _weight_name(node: NodeProto) -> str:
    at = _WEIGHT_INPUT.get(node.op_type, -1)
    return node.input[at] if node.domain in ("", "ai.onnx") and 0 <= at < len(node.input) else ""


def _is_large(weight: TensorProto, smallest: int) -> bool:
    count = 1
    for dim in weight.dims:
        count *= dim
    return weight.data_type in FLOATS and count >= smallest


def _is_supported(node: NodeProto, weight: TensorProto, is_transposed: bool) -> bool:
    rank = len(weight.dims)
    match node.op_type:
        case "MatMul":
            return rank == 2
        case "Gemm":
            return rank == 2 and not attribute(node, "transA", 0)
        case "Gather":
            return rank == 2 and attribute(node, "axis", 0) in (0, -2) and not is_transposed
        case _:
            return rank >= 3 and not is_transposed


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    found = [a for a in node.attribute if a.name == name]
    return onnx.helper.get_attribute_value(found[0]) if found else default


def without_kept(layers: list[Layer], keep: tuple[str, ...]) -> list[Layer]:
    """The layers whose name matches no pattern, such as "lm_head" or "*/attn/*". Errors: InvalidInput if a pattern
    matches none"""
    for pattern in keep:
        if not any(fnmatchcase(layer.name, pattern) for layer in layers):
            names = ", ".join(f'"{layer.name}"' for layer in layers[:8])
            raise InvalidInput(f'keep: no layer has a name like "{pattern}"', hint=f"the first names are {names}")
    return [layer for layer in layers if not any(fnmatchcase(layer.name, pattern) for pattern in keep)]
