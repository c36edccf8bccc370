"""What a session in a page compiles to train a model or to run it with adapters, and how it writes the model with new
weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.onnx.graph import Graph, Source
from pyruntime.training.adapters.adapted_graph import AdaptedGraph, adapted_graph
from pyruntime.training.adapters.adapter_file import Adapter, checked_config
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.graph.artifacts import artifact_training
from pyruntime.training.graph.page_export import export_pieces
from pyruntime.training.graph.recipe import from_javascript, recipe_of
from pyruntime.training.graph.training_graph import Training, training_graph


def changed(
    graph: Graph, options: Mapping[str, Any], open_file: Callable[[str], Source]
) -> tuple[Training | AdaptedGraph, Callable[[], str]]:
    """The model as the session trains it, or runs it with adapters, and what makes the plan of its export."""
    if options.get("training"):
        return page_training(graph, json.loads(options["training"]), open_file)
    return _adapted(graph, json.loads(options["adapting"])), lambda: "[]"


def _adapted(graph: Graph, given: Mapping[str, Any]) -> AdaptedGraph:
    """given: by name of the adapter types and shapes of its tensors, whose numbers the page keeps, and its
    configuration"""
    found = {}
    for name, one in given.items():
        tensors = {n: Stored(dtype, tuple(shape), b"") for n, (dtype, shape) in one["tensors"].items()}
        found[name] = Adapter(tensors, checked_config(one["config"]))
    return adapted_graph(graph, found)


def page_training(
    graph: Graph, given: Mapping[str, Any], open_file: Callable[[str], Source]
) -> tuple[Training, Callable[[], str]]:
    """given: the options of the page; open_file: opens a file beside the model, or the model's own by the name ""."""
    options = from_javascript(given)
    if files := options.pop("artifacts", None):
        trained, plan = artifact_training(graph, files, options, open_file)
        return trained, lambda: json.dumps([piece.to_json() for piece in plan()])
    made = training_graph(graph, recipe_of(options))
    return made, lambda: export_pieces(open_file(""), made)
