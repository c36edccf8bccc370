"""What a session in a page compiles to train a model or to run it with adapters, and how it writes the model's file
with new weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.onnx.edit import export_plan
from pyruntime.onnx.graph import Graph, Source, Weight
from pyruntime.onnx.sources import MEMORY
from pyruntime.training.adapters.adapted_graph import AdaptedGraph, adapted_graph
from pyruntime.training.adapters.adapter_file import Adapter, checked_config
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.graph.artifacts import artifact_training
from pyruntime.training.graph.recipe import from_javascript, recipe_of
from pyruntime.training.graph.training_graph import Training, training_graph


def changed(
    graph: Graph, options: Mapping[str, Any], open_file: Callable[[str], Source]
) -> tuple[Training | AdaptedGraph, Callable[[], str]]:
    """The model as the session trains it, or runs it with adapters, and what makes the plan of its export. open_file:
    opens a file beside the model; the name of the model's own is empty"""
    if not options.get("training"):
        return _adapted(graph, json.loads(options["adapting"])), lambda: "[]"
    training = from_javascript(json.loads(options["training"]))
    if files := training.pop("artifacts", None):
        made, plan = artifact_training(graph, files, training, open_file)
        return made, lambda: json.dumps([piece.to_json() for piece in plan()])
    made = training_graph(graph, recipe_of(training))
    return made, lambda: _export_pieces(open_file(""), made)


def _adapted(graph: Graph, adapters: Mapping[str, Any]) -> AdaptedGraph:
    """adapters: by name types and shapes of an adapter's tensors, whose numbers the page has, and its configuration"""
    found = {}
    for name, one in adapters.items():
        tensors = {n: Stored(dtype, tuple(shape), b"") for n, (dtype, shape) in one["tensors"].items()}
        found[name] = Adapter(tensors, checked_config(one["config"]))
    return adapted_graph(graph, found)


def _export_pieces(file: Source, training: Training) -> str:
    """JSON: the pieces of the file (pyruntime/onnx/write.py). After a weight to which products of adapters are added
    comes what web/worker/models/merged_weights.js reads: where its numbers are, its shape, and the products"""
    plan = export_plan(file, training.exported, *training.written)
    merges, weights = training.merges, training.base.weights

    def merged(name: str) -> dict[str, Any]:
        products = [[m.a, m.b, m.scale, m.is_transposed, m.magnitudes] for m in merges[name]]
        base = None if name in training.weights else _place(weights[name])
        return {"base": base, "shape": list(weights[name].shape), "products": products}

    return json.dumps([[*p.to_json(), *([merged(p.weight)] if p.weight in merges else [])] for p in plan])


def _place(w: Weight) -> dict[str, Any]:
    assert w.source is not None
    data = w.read().hex() if w.source.name == MEMORY else ""
    return {"start": w.offset, "size": w.size, "name": w.source.name, "data": data}
