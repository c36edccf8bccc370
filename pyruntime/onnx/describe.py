"""Converts types of inputs and outputs, and a model's metadata, to JSON: for pages and for files of Programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import Graph, OptionalType, SequenceType, TensorType, Type


def describe(t: Type | None) -> dict[str, Any]:
    """{"kind": "tensor", "dtype", "dims"} | {"kind": "sequence" | "optional", "of"} | {"kind": "unknown"}."""
    if isinstance(t, TensorType):
        dims = None if t.shape is None else list(t.shape)
        return {"kind": "tensor", "dtype": t.dtype.name if t.dtype else None, "dims": dims}
    if isinstance(t, (SequenceType, OptionalType)):
        return {"kind": "sequence" if isinstance(t, SequenceType) else "optional", "of": describe(t.elem)}
    return {"kind": "unknown"}


def described_type(d: Mapping[str, Any]) -> Type | None:
    """The inverse of `describe`."""
    if d["kind"] == "tensor":
        return TensorType(BY_NAME.get(d["dtype"]), None if d["dims"] is None else tuple(d["dims"]))
    if d["kind"] in ("sequence", "optional"):
        inner = described_type(d["of"])
        assert inner is not None
        return SequenceType(inner) if d["kind"] == "sequence" else OptionalType(inner)
    return None


_TEXTS = {
    "producer_name": "producerName", "producer_version": "producerVersion", "domain": "domain",
    "description": "description", "graph_description": "graphDescription",
}  # fmt: skip


def describe_metadata(graph: Graph) -> dict[str, Any]:
    """What the author of a model wrote about it, by JavaScript's names; absent texts are "", an absent version null."""
    found = graph.metadata
    version = int(found["model_version"]) if "model_version" in found else None
    return {
        **{key: found.get(name, "") for name, key in _TEXTS.items()},
        "graphName": graph.name,
        "version": version,
        "irVersion": int(found.get("ir_version", 0)),
        "opsetImports": dict(graph.opsets),
        "customMetadataMap": dict(graph.props),
    }


def described_metadata(d: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `describe_metadata`: fields of a Graph."""
    if not d:
        return {}
    metadata = {name: d[key] for name, key in _TEXTS.items() if d[key]} | {"ir_version": str(d["irVersion"])}
    if d["version"] is not None:
        metadata["model_version"] = str(d["version"])
    return {"metadata": metadata, "props": d["customMetadataMap"], "opsets": d["opsetImports"]}
