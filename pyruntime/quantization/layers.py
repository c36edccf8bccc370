"""Finds the nodes of a model whose constant weights can become codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F16, F32
from pyruntime.onnx.edit import FileGraph, FileModel, FileNode
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.write import INITIALIZER, INPUT

_WEIGHT_INPUT = {"MatMul": 1, "Gemm": 1, "Gather": 0, "Conv": 1, "ConvTranspose": 1}
_Spans = Mapping[str, tuple[int, int]]  # of the constants in the file, by name


@dataclass(frozen=True, slots=True)
class Layer:
    """A node and its weight.

    place: of the weight in the file; is_transposed: a Transpose node is between the weight and the node; is_top: the
    node is in the model's own graph, not in that of a branch or a loop's body
    """

    node: FileNode
    weight_name: str
    weight: Weight
    place: int
    is_transposed: bool
    is_top: bool

    @property
    def name(self) -> str:
        return self.node.name or self.node.outputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def has_columns(self) -> bool:
        """Whether the weight of a product is (K, N): a column for each column of the result."""
        return bool(self.node.attributes.get("transB", 0)) == self.is_transposed


def find_layers(model: FileModel, smallest: int) -> list[Layer]:
    """The layers with float weights of at least `smallest` elements."""
    overridable = {name for name, _ in model.graph.named(INPUT)} if model.ir_version >= 4 else set()
    return list(_layers(model.graph, {}, smallest, overridable, True))


def _layers(
    graph: FileGraph, outer: _Spans, smallest: int, overridable: set[str], is_top: bool
) -> Iterator[Layer]:  # fmt: skip
    constants = {**outer, **_constants(graph, overridable)}
    turned = {
        n.outputs[0]: n.inputs[0]
        for n in graph.nodes
        if n.op == "Transpose" and n.inputs[0] in constants and n.attributes.get("perm", [1, 0]) == [1, 0]
    }
    for node in graph.nodes:
        name = _weight_name(node)
        weight_name = turned.get(name, name)
        if weight_name in constants:
            span = constants[weight_name]
            weight = graph.file.weight(span)
            is_large = weight.dtype in (F32, F16) and prod(weight.shape) >= smallest
            if is_large and _is_supported(node, len(weight.shape), name in turned):
                yield Layer(node, weight_name, weight, span[0], name in turned, is_top)
        for inner in node.graphs:
            yield from _layers(inner, constants, smallest, overridable, False)


def _constants(graph: FileGraph, overridable: set[str]) -> _Spans:
    found = {name: (p.start, p.end) for name, p in graph.named(INITIALIZER) if name not in overridable}
    constants = {
        n.outputs[0]: n.attributes["value"] for n in graph.nodes if n.op == "Constant" and "value" in n.attributes
    }
    return found | constants


def _weight_name(node: FileNode) -> str:
    at = _WEIGHT_INPUT.get(node.op, -1)
    return node.inputs[at] if node.domain in ("", "ai.onnx") and 0 <= at < len(node.inputs) else ""


def _is_supported(node: FileNode, rank: int, is_transposed: bool) -> bool:
    match node.op:
        case "MatMul":
            return rank == 2
        case "Gemm":
            return rank == 2 and not node.attributes.get("transA", 0)
        case "Gather":
            return rank == 2 and node.attributes.get("axis", 0) in (0, -2) and not is_transposed
        case _:
            return rank >= 3 and not is_transposed


def without_kept(layers: list[Layer], keep: tuple[str, ...]) -> list[Layer]:
    """The layers whose name matches no pattern, such as "lm_head" or "*/attn/*". Errors: InvalidInput if a pattern
    matches none"""
    for pattern in keep:
        if not any(fnmatchcase(layer.name, pattern) for layer in layers):
            names = ", ".join(f'"{layer.name}"' for layer in layers[:8])
            raise InvalidInput(f'keep: no layer has a name like "{pattern}"', hint=f"the first names are {names}")
    return [layer for layer in layers if not any(fnmatchcase(layer.name, pattern) for pattern in keep)]
