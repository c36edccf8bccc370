"""Writes messages of ONNX's format, and files as a list of pieces: new bytes, spans of existing files, and values that
the host adds, so that weights are never decoded or copied.

Spec: https://protobuf.dev/programming-guides/encoding/, https://onnx.ai/onnx/api/classes.html
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from math import prod

from pyruntime.ir.dtype import DType
from pyruntime.onnx.protobuf import FIXED32, LENGTH, VARINT

NODE, INITIALIZER, INPUT, OUTPUT, VALUE_INFO = 1, 5, 11, 12, 13  # fields of GraphProto
NODE_INPUT, NODE_OUTPUT, NODE_NAME, OP_TYPE, ATTRIBUTE, NODE_DOMAIN = 1, 2, 3, 4, 5, 7
IR_VERSION, GRAPH, OPSETS = 1, 7, 8  # fields of ModelProto
_DIMS, _DATA_TYPE, _TENSOR_NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 9, 13, 14
_FLOAT, _INT, _STRING, _GRAPH, _INTS, _TYPE = 2, 3, 4, 6, 8, 20  # fields of AttributeProto
Value = int | float | str | bytes | Sequence[int]  # of an attribute; bytes: a GraphProto


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the new file: bytes, or `size` bytes of the old file (or of the one of this name) from `start`, or the
    new values of a weight in this type."""

    size: int
    start: int = 0
    data: bytes = b""
    weight: str = ""
    dtype: str = ""
    file: str = ""

    def to_json(self) -> list[object]:
        return [self.size, self.start, self.data.hex(), self.weight, self.dtype, self.file]

    @property
    def is_copy(self) -> bool:
        return not self.data and not self.weight


def copy(start: int, end: int) -> Piece:
    return Piece(end - start, start)


def literal(data: bytes) -> Piece:
    return Piece(len(data), data=data)


def size_of(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same bytes in fewer pieces: neighbouring spans of a file are one, and neighbouring new bytes."""
    out: list[Piece] = []
    for is_new, run in groupby(pieces, lambda piece: bool(piece.data)):
        if is_new:  # at once: bytes that are appended one by one are copied each time
            out.append(literal(b"".join(piece.data for piece in run)))
            continue
        for piece in run:
            last = out[-1] if out else None
            if last and piece.is_copy and last.is_copy and _follows(piece, last):
                out[-1] = replace(last, size=last.size + piece.size)
            elif piece.size:
                out.append(piece)
    return out


def _follows(piece: Piece, last: Piece) -> bool:
    return (last.file, last.start + last.size) == (piece.file, piece.start)


def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(number: int, payload: bytes, size: int | None = None) -> bytes:
    """A field with this payload; size: of a payload that follows"""
    return varint(number << 3 | LENGTH) + varint(len(payload) if size is None else size) + payload


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def integer(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def around(number: int, inner: Sequence[Piece]) -> list[Piece]:
    """A field whose payload is these pieces."""
    return [literal(message(number, b"", size_of(inner))), *inner]


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", domain: str | None = None,
    attributes: Mapping[str, Value] | None = None,
) -> bytes:  # fmt: skip
    """A NodeProto, with its attributes by name."""
    texts = [(NODE_INPUT, x) for x in inputs] + [(NODE_OUTPUT, x) for x in outputs] + [(NODE_NAME, name)] * bool(name)
    parts = [text(number, value) for number, value in [*texts, (OP_TYPE, op)]]
    parts += [message(ATTRIBUTE, _attribute(key, value)) for key, value in sorted((attributes or {}).items())]
    return b"".join(parts if domain is None else [*parts, text(NODE_DOMAIN, domain)])


def _attribute(name: str, value: Value) -> bytes:
    if isinstance(value, float):
        found, kind = varint(_FLOAT << 3 | FIXED32) + struct.pack("<f", value), 1
    elif isinstance(value, int):
        found, kind = integer(_INT, value), 2
    elif isinstance(value, str):
        found, kind = text(_STRING, value), 3
    elif isinstance(value, bytes):
        found, kind = message(_GRAPH, value), 5
    else:
        found, kind = b"".join(integer(_INTS, n) for n in value), 7
    return text(1, name) + found + integer(_TYPE, kind)


def tensor(name: str, dtype: DType, shape: Sequence[int], values: Piece | None = None) -> list[Piece]:
    """The field of an initializer. values: without it the new values of the weight of this name"""
    size = (prod(shape) * dtype.bits + 7) // 8
    head = literal(tensor_head(name, dtype, shape))
    return [head, values or Piece(size, weight=name, dtype=dtype.name)] if size else [head]


def tensor_head(name: str, dtype: DType, shape: Sequence[int]) -> bytes:
    """The field of an initializer up to its values."""
    size = (prod(shape) * dtype.bits + 7) // 8
    head = _tensor_type(name, dtype, shape) + message(_RAW_DATA, b"", size)
    return message(INITIALIZER, b"", len(head) + size) + head


def _tensor_type(name: str, dtype: DType, shape: Sequence[int]) -> bytes:
    dims = b"".join(integer(_DIMS, d) for d in shape)
    return dims + integer(_DATA_TYPE, dtype.code) + text(_TENSOR_NAME, name)


def external_tensor(name: str, dtype: DType, shape: Sequence[int], file: str, offset: int, size: int) -> bytes:
    """The field of an initializer whose values are in a file beside the model."""
    entries = [("location", file), ("offset", str(offset)), ("length", str(size))]
    places = b"".join(message(_EXTERNAL_DATA, text(1, key) + text(2, value)) for key, value in entries)
    return message(INITIALIZER, _tensor_type(name, dtype, shape) + places + integer(_DATA_LOCATION, 1))


def value_info(name: str, dtype: DType, shape: Sequence[int | str]) -> bytes:
    """A ValueInfoProto of a tensor. shape: sizes, and names of dims"""
    dims = [integer(1, d) if isinstance(d, int) else text(2, d) for d in shape]
    plain = integer(1, dtype.code) + message(2, b"".join(message(1, d) for d in dims))
    return text(1, name) + message(2, message(1, plain))


def opset(domain: str, version: int) -> bytes:
    """An OperatorSetIdProto."""
    return text(1, domain) + integer(2, version)


class GraphWriter:
    """Writes a small model node by node."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._tensors: list[bytes] = []

    def __call__(self, op: str, *inputs: str, output: str = "", **attributes: Value) -> str:
        """The name of the first output of a new node."""
        name = output or f"{op}_{len(self._nodes)}"
        self._nodes.append(message(NODE, node(op, inputs, [name], attributes=attributes)))
        return name

    def constant(self, dtype: DType, *values: float, shape: tuple[int, ...] | None = None) -> str:
        """The name of a constant of int64 or float32, a vector unless a shape is given."""
        shape = (len(values),) if shape is None else shape
        data = struct.pack(f"<{len(values)}{'q' if dtype.kind == 'i' else 'f'}", *values)
        key = (dtype.name, shape, data)
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self._tensors.append(tensor_head(self._constants[key], dtype, shape) + data)
        return self._constants[key]

    def model(self, inputs: Sequence[bytes], outputs: Sequence[bytes], version: int = 18) -> bytes:
        """The bytes of the model. inputs, outputs: from `value_info`; version: of ONNX's operators"""
        values = [message(INPUT, v) for v in inputs] + [message(OUTPUT, v) for v in outputs]
        graph = b"".join(chain(self._nodes, [text(2, "graph")], self._tensors, values))
        return integer(IR_VERSION, 8) + message(GRAPH, graph) + message(OPSETS, opset("", version))
