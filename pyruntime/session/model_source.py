"""What a session takes as a model, the files of its weights, and what pages and files of Programs tell about it."""

from __future__ import annotations

import os
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel, not_found
from pyruntime.onnx.describe import describe_metadata
from pyruntime.onnx.graph import Graph, Source
from pyruntime.passes.cleanup.graph_pruning import partial_uses


def check_model(model: Any) -> None:
    """Errors: ModelNotFound, InvalidModel for a path that cannot be read; InvalidInput for another object"""
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb"):
                return
        except FileNotFoundError:
            raise not_found(model) from None
        except (OSError, ValueError) as e:  # ValueError: a null character
            raise InvalidModel(f'"{os.fspath(model)}" cannot be read: {e}') from None
    is_source = hasattr(model, "read") and hasattr(model, "size")  # an open file has no size
    if not isinstance(model, (bytes, bytearray, memoryview)) and not is_source:
        hint = "model.SerializeToString() gives its bytes" if hasattr(model, "SerializeToString") else ""
        raise InvalidInput(f"a model is given by its path or its bytes, not as {type(model).__name__}", hint=hint)


def weight_sources(graph: Graph) -> dict[str, Source]:
    """The files (or bytes) that hold the weights, by the names that Programs have for them."""
    weights = [*graph.weights.values()]
    nodes = [*graph.nodes, *[n for f in graph.functions.values() for n in f.nodes]]
    while nodes:
        for a in nodes.pop().attrs.values():
            for x in a if isinstance(a, tuple) and a and not isinstance(a[0], (int, float, str, bytes)) else (a,):
                if isinstance(x, Graph):
                    weights += x.weights.values()
                    nodes += x.nodes
                elif hasattr(x, "source"):
                    weights.append(x)
    return {w.source.name: w.source for w in weights if w.source is not None}


def about(graph: Graph) -> dict[str, Any]:
    """What is known of a model besides the types of its inputs and outputs. uses: of outputs that do not need all
    inputs, the inputs that they need; unused: names of inputs that no output needs"""
    return {"uses": partial_uses(graph), "unused": list(graph.unused), "metadata": describe_metadata(graph)}
