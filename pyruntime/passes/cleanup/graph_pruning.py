"""Dead code in the graph: nodes that no output needs, before anything is lowered."""

from __future__ import annotations

from pyruntime.onnx.graph import Graph, Node, uses


def prune(graph: Graph) -> Graph:
    """The graph with the nodes its outputs need. Nodes must be in topological order, as the reader leaves them."""
    needed = {v.name for v in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed |= uses(node)
    return graph if len(kept) == len(graph.nodes) else graph.with_nodes(tuple(kept[::-1]))
