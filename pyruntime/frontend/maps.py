"""Maps as inputs and outputs of a graph: the Program has tensors in their place, and the session converts.

At the inputs and outputs of a graph, converters of scikit-learn pipelines put operators of ai.onnx.ml that take or make
maps. This module replaces each by an Identity. In the middle of a graph they are not supported.

Spec: ZipMap, DictVectorizer and CastMap of https://onnx.ai/onnx/operators/#ai-onnx-ml
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir.dtype import F32, I64, STRING, DType
from pyruntime.onnx.graph import Graph, MapType, Node, TensorType, Value, uses

Classes = tuple[int | str, ...]
_CASTS: dict[str, DType] = {"TO_FLOAT": F32, "TO_INT64": I64, "TO_STRING": STRING}


@dataclass(frozen=True, slots=True)
class Column:
    """A tensor input in place of a map input. `node` converts the map to a row with the values of some keys."""

    source: str  # the graph's map input
    kind: MapType
    node: Node

    @property
    def keys(self) -> Sequence[Any] | None:
        """The key of each column; None for a CastMap, which takes all keys."""
        if self.node.op == "CastMap":
            return None
        found = self.node.attrs.get("string_vocabulary") or self.node.attrs.get("int64_vocabulary") or ()
        assert isinstance(found, (tuple, list))
        return found

    @property
    def length(self) -> int | None:
        """Length of a CastMap's row if keys are column numbers; None if keys are only sorted."""
        if self.node.op != "CastMap" or self.node.attrs.get("map_form", "DENSE") == "DENSE":
            return None
        found = self.node.attrs.get("max_map", 1)
        assert isinstance(found, int)
        return found

    @property
    def dtype(self) -> DType:
        if self.node.op == "CastMap":
            return _CASTS[str(self.node.attrs.get("cast_to", "TO_FLOAT"))]
        value = self.kind.value
        return value.dtype if isinstance(value, TensorType) and value.dtype is not None else F32

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, (1, self.length if self.keys is None else len(self.keys)))


@dataclass(frozen=True, slots=True)
class Border:
    """graph: with tensors in place of maps; columns: by tensor input, its conversion from a map; scores: by output,
    the ZipMap that converts its tensor to maps."""

    graph: Graph
    columns: dict[str, Column]
    scores: dict[str, Node]


def classes(node: Node) -> Classes:
    """The class labels of a ZipMap's columns."""
    found = node.attrs.get("classlabels_int64s") or node.attrs.get("classlabels_strings") or ()
    assert isinstance(found, (tuple, list))
    return tuple(found)


def without_maps(graph: Graph) -> Border:
    """The graph with tensors in place of the maps among its inputs and outputs."""
    scores, columns = _zip_maps(graph), dict[str, Column]()
    maps = {v.name: v.type for v in graph.inputs if isinstance(v.type, MapType)}
    nodes = []
    for node in graph.nodes:
        if node.outputs and scores.get(node.outputs[0]) is node:
            node = _identity(node, node.inputs[0])
        elif node.domain == "ai.onnx.ml" and node.op in ("DictVectorizer", "CastMap") and node.inputs[0] in maps:
            name = f"{node.inputs[0]} as {node.outputs[0]}"
            columns[name] = Column(node.inputs[0], maps[node.inputs[0]], node)
            node = _identity(node, name)
        nodes.append(node)
    if not scores and not columns:
        return Border(graph, {}, {})
    taken = {column.source for column in columns.values()}
    inputs = [v for v in graph.inputs if v.name not in taken] + [Value(n, c.type) for n, c in columns.items()]
    outputs = [Value(v.name, None) if v.name in scores else v for v in graph.outputs]
    values = {name: t for name, t in graph.values.items() if name not in scores}
    changed = replace(graph, inputs=tuple(inputs), outputs=tuple(outputs), nodes=tuple(nodes), values=values)
    return Border(changed, columns, scores)


def _zip_maps(graph: Graph) -> dict[str, Node]:
    """The ZipMaps whose results no node reads, by the graph's output that each makes."""
    used = {name for node in graph.nodes for name in uses(node)}
    given = {value.name for value in graph.outputs} - used
    found = [node for node in graph.nodes if node.domain == "ai.onnx.ml" and node.op == "ZipMap"]
    return {node.outputs[0]: node for node in found if node.outputs and node.outputs[0] in given}


def _identity(node: Node, source: str) -> Node:
    """An Identity of `source` that replaces a node."""
    return replace(node, op="Identity", domain="", opset=13, inputs=(source,), attrs={})
