"""Checks the names of a graph (each defined once, each reference defined), and sorts its nodes topologically.

Spec: https://github.com/onnx/onnx/blob/main/docs/IR.md#graphs, "Names Within a Graph"
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pyruntime.errors import InvalidModel
from pyruntime.onnx.graph import Node, uses


def sort_nodes(nodes: Sequence[Node], known: set[str], outputs: Sequence[str], where: str, nested: bool) -> list[Node]:
    """The nodes in topological order; sorted nodes keep their order.

    known: names of inputs and weights; nested: other names may come from the enclosing scope.
    """
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.outputs:
            if name in maker or name in known:
                raise InvalidModel(f'"{name}" is already defined in {where}', node=node.label)
            if name:
                maker[name] = i
    ready = set(known)
    in_order = True
    needs = [uses(node) for node in nodes]
    for node, needed in zip(nodes, needs, strict=True):
        if not needed <= ready:
            for name in sorted(needed - ready):
                if name in maker:
                    in_order = False
                elif not nested:
                    raise InvalidModel(f'input "{name}" is not defined in {where}', node=node.label)
        ready.update(node.outputs)
    for name in outputs:
        if name not in ready and not nested:
            raise InvalidModel(f'no node makes output "{name}" of {where}')
    if in_order:
        return list(nodes)
    order = topological([{maker[name] for name in needed if name in maker} for needed in needs])
    if len(order) < len(nodes):
        stuck = nodes[min(set(range(len(nodes))) - set(order))]
        raise InvalidModel(f"the nodes of {where} form a cycle", node=stuck.label)
    return [nodes[i] for i in order]


def topological(needs: Sequence[set[int]]) -> list[int]:
    """Return indices sorted so that each follows the indices that it needs; ties are sorted by index. Omits indices in
    or after a cycle."""
    users: list[list[int]] = [[] for _ in needs]
    missing = [len(needed) for needed in needs]
    for i, needed in enumerate(needs):
        for j in needed:
            users[j].append(i)
    heap = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while heap:
        i = heapq.heappop(heap)
        order.append(i)
        for user in users[i]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(heap, user)
    return order
