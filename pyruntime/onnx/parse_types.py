"""Reads types: TypeProto and ValueInfoProto -> Type.

Spec: TypeProto of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from pyruntime.errors import InvalidModel
from pyruntime.onnx.graph import MapType, OptionalType, SequenceType, TensorType, Type
from pyruntime.onnx.parse_tensors import dtype_of
from pyruntime.onnx.protobuf import Fields, Wire, check_depth, signed, tags

TENSOR, SEQUENCE, MAP, OPAQUE, SPARSE, OPTIONAL = 1, 4, 5, 7, 8, 9
_TYPE = tags(length="1 4 5 6 7 8 9")
_TENSOR = tags(varint="1", length="2")
_ELEM = tags(length="1")
_MAP = tags(varint="1", length="2")
_SHAPE = tags(length="1")
_DIM = tags(varint="1", length="2 3")
VALUE_TAGS = tags(length="1 2 3 4")


class TypeReader:
    """Reads the types of one model. A model has few distinct types, each of which is read once: equal bytes are equal
    types."""

    __slots__ = ("_seen", "_wire")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._seen: dict[bytes, Type | None] = {}

    def value(self, start: int, end: int) -> tuple[str, Type | None]:
        """A ValueInfoProto."""
        found = self._wire.gather(start, end, VALUE_TAGS)
        name = self._wire.text(*found[1][-1][1:]) if 1 in found else ""
        return name, self.type(*found[2][-1][1:]) if 2 in found else None

    def type(self, start: int, end: int) -> Type | None:
        """A TypeProto."""
        key = self._wire.bytes(start, end)
        if key not in self._seen:
            self._seen[key] = _type(self._wire, start, end, 0)
        return self._seen[key]


def _type(wire: Wire, start: int, end: int, depth: int) -> Type | None:
    """None for an unknown or opaque type. A sparse tensor reads as a tensor."""
    check_depth(depth, start)
    found = wire.gather(start, end, _TYPE)
    for number in (TENSOR, SPARSE):
        if number in found:
            return _tensor(wire, *found[number][-1][1:])
    if MAP in found:
        _, a, b = found[MAP][-1]
        inner = wire.gather(a, b, _MAP)
        key = dtype_of(inner[1][-1][1] if 1 in inner else 0, f"the key of a map type at byte {a}")
        value = _type(wire, *inner[2][-1][1:], depth + 2) if 2 in inner else None
        return MapType(key, _known(value, a))
    for number, make in ((SEQUENCE, SequenceType), (OPTIONAL, OptionalType)):
        if number in found:
            _, a, b = found[number][-1]
            inner = wire.gather(a, b, _ELEM)
            elem = _type(wire, *inner[1][-1][1:], depth + 2) if 1 in inner else None
            return make(_known(elem, a))
    return None


def _known(elem: Type | None, at: int) -> Type:
    if elem is None:
        raise InvalidModel(f"a sequence, optional or map type has no element type, at byte {at}")
    return elem


def _tensor(wire: Wire, start: int, end: int) -> TensorType:
    found = wire.gather(start, end, _TENSOR)
    code = found[1][-1][1] if 1 in found else 0
    dtype = dtype_of(code, f"a tensor type at byte {start}") if code else None
    if 2 not in found:
        return TensorType(dtype, None)
    dims = wire.gather(*found[2][-1][1:], _SHAPE).get(1, ())
    found_dims = [wire.gather(a, b, _DIM) for _, a, b in dims]
    meanings = tuple(wire.text(*d[3][-1][1:]) if 3 in d else "" for d in found_dims)
    return TensorType(dtype, tuple(_dim(wire, d) for d in found_dims), meanings if any(meanings) else ())


def _dim(wire: Wire, found: Fields) -> int | str | None:
    """A dim. Some exporters write -1, an empty name, or "?" (for all of them) for unknown dims."""
    if 1 in found:
        value = signed(found[1][-1][1])
        return value if value >= 0 else None
    name = wire.text(*found[2][-1][1:]) if 2 in found else ""
    return name if name not in ("", "?") else None
