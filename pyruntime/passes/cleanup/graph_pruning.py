"""Removes nodes of the graph that no output depends on, before lowering."""

from __future__ import annotations

from pyruntime.onnx.graph import Graph, Node, uses


def prune(graph: Graph) -> Graph:
    """The graph with only the nodes that its outputs depend on. Nodes are in topological order, as the reader leaves
    them."""
    needed = {v.name for v in graph.outputs}
    live: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            live.append(node)
            needed |= uses(node)
    return graph if len(live) == len(graph.nodes) else graph.with_nodes(tuple(live[::-1]))
