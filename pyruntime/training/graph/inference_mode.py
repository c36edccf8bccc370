"""Nodes in training mode, as exporters write them for training, in inference: for evaluation and for exported files.

Dropout then drops nothing, and BatchNormalization uses its running statistics. Opsets before 12 have no such Dropout.
Spec: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html and onnx__Dropout.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyruntime.errors import InvalidModel
from pyruntime.onnx.edit import FileModel, FileNode, NodeWriter, NodeWriters, new_node, renamed
from pyruntime.onnx.graph import Graph, Node, subgraphs, uses

_TRAINING = 2  # the input of Dropout that says whether it drops
_STATISTICS = 3, 4, 3, 4  # the inputs of BatchNormalization that its further outputs are in inference


def in_inference(graph: Graph) -> Graph:
    """The graph with its nodes in inference, also those of branches and loops. Errors: InvalidModel if a function has
    nodes in training mode"""
    for function in graph.functions.values():
        for node in function.nodes:
            if _is_training(node, _read(function.nodes, function.outputs)):
                hint = "inline its functions first, for example by onnx.inliner.inline_local_functions"
                raise InvalidModel("in a function it cannot be in training mode", node=node.label, hint=hint)
    return _in_inference(graph)


def inference_writers(graph: Graph) -> NodeWriters:
    """Writers of the nodes that replace those in training mode in the model's file, by name of the first output."""
    read = _read_in(graph)
    found: dict[str, NodeWriter] = {n.outputs[0]: _WRITERS[n.op] for n in graph.nodes if _is_training(n, read)}
    for node in graph.nodes:
        for inner in subgraphs(node):
            found |= inference_writers(inner)
    return found


def _in_inference(graph: Graph) -> Graph:
    def inner(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(inner, value))
        return _in_inference(value) if isinstance(value, Graph) else value

    read, nodes = _read_in(graph), list[Node]()
    for node in graph.nodes:
        if any(subgraphs(node)):
            node = replace(node, attrs={k: inner(v) for k, v in node.attrs.items()})
        nodes += _changed(node) if _is_training(node, read) else [node]
    return replace(graph, nodes=tuple(nodes))


def _read_in(graph: Graph) -> set[str]:
    return _read(graph.nodes, [v.name for v in graph.outputs])


def _read(nodes: Sequence[Node], outputs: Sequence[str]) -> set[str]:
    return {*outputs, *(name for node in nodes for name in uses(node))}


def _is_training(node: Node, read: set[str]) -> bool:
    """read: names of the values that nodes and outputs of its graph read"""
    if node.domain == "" and node.op == "Dropout":
        return node.opset >= 12 and any(node.inputs[_TRAINING:])
    if node.domain != "" or node.op != "BatchNormalization" or node.attrs.get("is_test"):
        return False
    return node.attrs.get("training_mode") == 1 if node.opset >= 14 else not read.isdisjoint(node.outputs[1:])


def _changed(node: Node) -> list[Node]:
    if node.op == "Dropout":
        return [replace(node, inputs=node.inputs[:_TRAINING])]
    attrs = {k: v for k, v in node.attrs.items() if k != "training_mode"}
    same = [
        Node("Identity", "", node.opset, name, (node.inputs[n],), (name,))
        for n, name in zip(_STATISTICS, node.outputs[1:], strict=False)
        if name
    ]
    return [replace(node, outputs=node.outputs[:1], attrs=attrs), *same]


def _dropout(model: FileModel, node: FileNode) -> list[FileNode]:
    return [renamed(model.wire, node, {_TRAINING: ""}, {})]


def _batch_normalization(model: FileModel, node: FileNode) -> list[FileNode]:
    attributes = {k: v for k, v in node.attributes.items() if k != "training_mode"}
    made = new_node(node.op, node.inputs, node.outputs[0], node.name, attributes=attributes)
    same = zip(_STATISTICS, node.outputs[1:], strict=False)
    return [made, *(new_node("Identity", [node.inputs[n]], name, name) for n, name in same if name)]


_WRITERS = {"Dropout": _dropout, "BatchNormalization": _batch_normalization}
