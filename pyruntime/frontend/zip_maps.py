"""ZipMap at the end of a graph: the Program gives its scores, and whoever runs the Program makes maps of them.

Spec: https://onnx.ai/onnx/operators/onnx_aionnxml_ZipMap.html
"""

from __future__ import annotations

from dataclasses import replace

from pyruntime.onnx.graph import Graph, Node, Value, uses

Classes = tuple[int | str, ...]


def zip_maps(graph: Graph) -> dict[str, Node]:
    """The ZipMaps whose results are outputs of the graph and nothing else, by those."""
    used = {name for node in graph.nodes for name in uses(node)}
    given = {value.name for value in graph.outputs} - used
    found = [node for node in graph.nodes if node.domain == "ai.onnx.ml" and node.op == "ZipMap"]
    return {node.outputs[0]: node for node in found if node.outputs and node.outputs[0] in given}


def classes(node: Node) -> Classes:
    """What the columns of a ZipMap's scores are called."""
    found = node.attrs.get("classlabels_int64s") or node.attrs.get("classlabels_strings") or ()
    assert isinstance(found, tuple | list)
    return tuple(found)


def identity(node: Node, source: str) -> Node:
    """An Identity of `source` in the node's place."""
    return replace(node, op="Identity", domain="", opset=13, inputs=(source,), attrs={})


def with_scores(graph: Graph) -> tuple[Graph, dict[str, Classes]]:
    """The graph with scores in the place of those maps, and their classes by output."""
    found = zip_maps(graph)
    if not found:
        return graph, {}
    nodes = tuple(identity(n, n.inputs[0]) if n.outputs and found.get(n.outputs[0]) is n else n for n in graph.nodes)
    outputs = tuple(Value(v.name, None) if v.name in found else v for v in graph.outputs)
    values = {name: t for name, t in graph.values.items() if name not in found}
    return replace(graph, outputs=outputs, nodes=nodes, values=values), {k: classes(n) for k, n in found.items()}


__all__ = ["Classes", "classes", "identity", "with_scores", "zip_maps"]
