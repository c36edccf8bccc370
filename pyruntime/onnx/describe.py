"""Converts types of inputs and outputs to JSON, for pages and for files of Programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import OptionalType, SequenceType, TensorType, Type


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
