"""What a file of torch.onnx tells of the module that it was made from.

The exporter of torch.export lists parameters and buffers, and says what a folded weight was computed from. Initializers
of the TorchScript exporter have the names of parameters and buffers, unless it folded them or they are constants.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property

from pyruntime.onnx.graph import Graph, Node
from pyruntime.training.graph.graph_names import DOMAIN

PARAMETER, BUFFER, CONSTANT = "PARAMETER", "BUFFER", "CONSTANT"
_ENTRY = re.compile(r"^\w+: (PARAMETER|BUFFER|CONSTANT)\w* target='([^']+)'", re.MULTILINE)
_GENERATED = re.compile(r"\d+|onnx::.*|/.*|val_\d+|_v_\d+")


_DETACHED = re.compile(r"detach(_\d+)?")


def with_detached(graph: Graph) -> Graph:
    """The graph without gradients through `detach()`, which files of torch.export have as Identity if not optimised."""
    if not TorchNotes(graph).kinds:
        return graph
    is_detached = [n.op == "Identity" and bool(_DETACHED.fullmatch(n.outputs[0])) for n in graph.nodes]
    pairs = zip(graph.nodes, is_detached, strict=True)
    return replace(graph, nodes=tuple(replace(n, op="Detach", domain=DOMAIN, opset=1) if d else n for n, d in pairs))


class TorchNotes:
    """is_torch: whether torch.onnx wrote the file"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.is_torch = graph.metadata.get("producer_name") == "pytorch"

    @cached_property
    def kinds(self) -> dict[str, str]:
        """PARAMETER, BUFFER or CONSTANT, by name in the module; empty if the file does not tell."""
        return {name: kind for kind, name in _ENTRY.findall(self._graph.notes.get("", ""))}

    def sources(self, name: str) -> list[str]:
        """What the exporter computed a weight from."""
        return re.findall(r"'([^']+)'", self._graph.notes.get(name, ""))

    def kind(self, name: str) -> str:
        """What a weight was in the module; "" if the file does not tell."""
        if not self.kinds:
            return ""
        if name in self.kinds:
            return self.kinds[name]
        found = {self.kinds.get(source, "") for source in self.sources(name)}
        return PARAMETER if PARAMETER in found else BUFFER if BUFFER in found else CONSTANT

    def is_named(self, name: str) -> bool:
        """Whether a weight has the name of a parameter or buffer of the module."""
        return self.is_torch and not _GENERATED.fullmatch(name)

    def module(self, node: Node) -> str:
        """The part of the module that a node computes: "layers.0.norm"; "" if the file does not tell."""
        if node.module or not node.name.startswith("/"):
            return node.module
        return node.name.rpartition("/")[0][1:].replace("/", ".")
