"""Records for `explain` how nodes were compiled that have no calls in the Program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.trace_graph import TracedGraph
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.dtype import STRING
from pyruntime.ir.expr import is_view
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Leaf, Loops, Map, Reduce, Tensor
from pyruntime.onnx.graph import Graph, Node, enclosing, uses


class NodeReport:
    """Compares a traced graph before the passes with the kernels after them."""

    def __init__(self, graph: Graph, main: TracedGraph) -> None:
        self.graph = graph
        self.main = main
        self.views = {k.out.uid for k in main.block.kernels if isinstance(k, Map) and is_view(k.expr)}

    def after(self, init: Block, within: Mapping[int, str]) -> list[Any]:
        """For each node its label if it has steps, else [label, fate] or [label, fate, label of the node whose kernel
        contains it]. Fates: plan (evaluated by the compiler), constant, view (free), fused, unused.
        within: for kernels that run as part of another kernel, by id, the other kernel's node."""
        self.within = within
        self.makers: dict[int, str] = {}  # by uid of a tensor: the label of the node whose kernel makes it
        self.owners: set[str] = set()
        self._collect(init)
        self._collect(self.main.block)
        readers: dict[str, list[int]] = {}
        for n, node in enumerate(self.graph.nodes):
            for name in uses(node):
                readers.setdefault(name, []).append(n)
        out: list[Any] = [None] * len(self.graph.nodes)
        for n in range(len(out) - 1, -1, -1):
            node = self.graph.nodes[n]
            label = node.label
            later = [out[r] for o in node.outputs for r in readers.get(o, ())]
            out[n] = label if label in self.owners else [label, *self._became(node, later)]
        return out

    def _collect(self, block: Block) -> None:
        for kernel in block.kernels:
            if not isinstance(kernel, Alias):
                label = self.within.get(id(kernel), kernel.node)
                self.owners.update(enclosing(label))
                self.makers.update(dict.fromkeys([t.uid for t in kernel.outputs], label))
            for inner in kernel.blocks:
                self._collect(inner)

    def _became(self, node: Node, readers: list[Any]) -> list[str]:
        """The entries of `after` that follow the label."""
        values = [self.main.values[o] for o in node.outputs if o in self.main.values]
        tensors = [t for v in values for t in tensors_of(v)]
        if not values:
            return ["unused"]
        if tensors and all(isinstance(t.kernel, Leaf) and t.kernel.kind != "feed" for t in tensors):
            return ["constant"]
        if all(t.uid in self.main.known for t in tensors):
            return ["plan"]
        into = next((self.makers[t.uid] for t in tensors if t.uid in self.makers), "") or _into(readers)
        how = "view" if all(self._is_view(node, t) for t in tensors) else "fused"
        if how == "fused" and not into:
            how = "plan" if readers else "unused"
        return [how, into] if into else [how]

    def _is_view(self, node: Node, t: Tensor) -> bool:
        given = [self.main.values.get(name) for name in node.inputs]
        return isinstance(t.kernel, Alias) or t.uid in self.views or any(t is v for v in given)


def reasons(block: Block, found: Mapping[Kernel, str]) -> dict[str, str]:
    """For each node, why its kernels are not on the session's first provider."""
    return {k.node: found[k] for k in all_kernels(block) if k in found}


def revealed(block: Block) -> dict[str, Tensor]:
    """The results of the block's kernels in order, named "NUMBER.RESULT NODE": `verify` compares them."""
    kernels = [k for k in block.kernels if isinstance(k, (Map, Reduce, Loops, Call))]
    made = [(f"{n}.{i} {k.node}", t) for n, k in enumerate(kernels) for i, t in enumerate(k.outputs)]
    return {name: t for name, t in made if t.dtype is not STRING}


def _into(readers: list[Any]) -> str:
    """The node whose kernel contains the first reader."""
    for r in readers:
        if isinstance(r, str) or len(r) > 2:
            return r if isinstance(r, str) else r[2]
    return ""
