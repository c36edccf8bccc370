"""What a page adds to the weights of an exported model (web/worker/models/merged_weights.js)."""

from __future__ import annotations

from typing import Any

from pyruntime.learning.graph import Training
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.sources import MEMORY


def merging(training: Training) -> dict[str, dict[str, Any]]:
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
