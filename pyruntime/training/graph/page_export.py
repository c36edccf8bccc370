"""What a page writes into the file of an exported model: weights, and products of adapters that it adds to them
(web/worker/models/merged_weights.js)."""

from __future__ import annotations

import json
from typing import Any

from pyruntime.onnx.edit import export_plan
from pyruntime.onnx.graph import Source, Weight
from pyruntime.onnx.sources import MEMORY
from pyruntime.training.adapters.side_nodes import side_nodes
from pyruntime.training.graph.training_graph import Training


def export_pieces(file: Source, training: Training) -> str:
    """JSON: the pieces of the file (pyruntime/onnx/write.py); a weight with products to add has these
    after it"""
    more = _merging(training)
    plan = export_plan(file, training.exported, *side_nodes(training.beside))
    return json.dumps([[*p.to_json(), *([more[p.weight]] if p.weight in more else [])] for p in plan])


def _merging(training: Training) -> dict[str, dict[str, Any]]:
    """By name of the weight, in JSON: where its numbers are, its shape, and the products of adapters to add."""
    found = {}
    for name, merges in training.merges.items():
        w = training.base.weights[name]
        products = [[m.a, m.b, m.scale, m.is_transposed] for m in merges]
        base = None if name in training.weights else _place(w)
        found[name] = {"base": base, "shape": list(w.shape), "products": products}
    return found


def _place(w: Weight) -> dict[str, Any]:
    assert w.source is not None
    is_decoded = w.source.name == MEMORY
    data = w.read().hex() if is_decoded else ""
    return {"start": w.offset, "size": w.size, "name": w.source.name, "data": data}
