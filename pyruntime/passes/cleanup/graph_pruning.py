"""Removes nodes of the graph that no output depends on, before lowering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyruntime.errors import InvalidInput
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


def with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these outputs alone, and the nodes and inputs on which they depend. Errors: InvalidInput for a
    name that is no output, or that is listed twice"""
    by_name = {v.name: v for v in graph.outputs}
    for name in names:
        if name not in by_name:
            raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {[*by_name]}")
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"outputs cannot be {list(names)}", hint="one or more names, each once")
    pruned = prune(replace(graph, outputs=tuple(by_name[name] for name in names)))
    used = {name for node in pruned.nodes for name in uses(node)} | set(names)
    inputs = tuple(v for v in graph.inputs if v.name in used)
    unused = tuple(v.name for v in graph.inputs if v.name not in used)
    return replace(pruned, inputs=inputs, unused=graph.unused + unused)


def inputs_of_outputs(graph: Graph) -> dict[str, list[str]]:
    """The inputs on which each output depends."""
    masks = {v.name: 1 << n for n, v in enumerate(graph.inputs)}  # of each value, a bit for each input
    for node in graph.nodes:  # in topological order
        mask = 0
        for name in uses(node):
            mask |= masks.get(name, 0)
        masks |= dict.fromkeys(node.outputs, mask)
    return {
        v.name: [i.name for n, i in enumerate(graph.inputs) if masks.get(v.name, 0) >> n & 1] for v in graph.outputs
    }


def partial_uses(graph: Graph) -> dict[str, list[str]]:
    """`inputs_of_outputs`, for outputs that do not need all inputs without a default."""
    required = {v.name for v in graph.inputs if v.name not in graph.weights}
    if len(graph.outputs) < 2 or not required:
        return {}
    return {name: used for name, used in inputs_of_outputs(graph).items() if not required <= set(used)}
