"""Named dims whose size the model fixes: exporters name the head size of a cache, and its Concat or attention needs the
size that the weights have."""

from __future__ import annotations

from pyruntime.errors import PyRuntimeError
from pyruntime.frontend.trace_graph import declared_specs, trace_graph
from pyruntime.ir import shape as sh
from pyruntime.ir.symbol import DIM
from pyruntime.onnx.graph import Graph, TensorType
from pyruntime.onnx.weight_values import elements
from pyruntime.passes.cleanup.graph_pruning import prune

FREE = 2  # dims of a cache that differ between runs: the batch and the positions


def with_fixed_dims(graph: Graph) -> Graph:
    """Return the graph with a size for each named dim that its operators require to have that size. Only inputs with
    more free dims than a batch and positions are a reason to look."""
    shapes = [v.type.shape or () for v in graph.inputs if isinstance(v.type, TensorType)]
    specs = declared_specs(graph.inputs)
    if specs is None or all(sum(isinstance(d, str) for d in shape) <= FREE for shape in shapes):
        return graph
    try:
        traced = trace_graph(prune(graph), specs, elements, {})
    except PyRuntimeError:  # the compilation reports it
        return graph
    found = [sh.required_size(condition) for condition, *_ in traced.guards]
    return graph.with_dims({symbol.name: size for symbol, size in filter(None, found) if symbol.origin == DIM})
