"""Writes a model file with other weights: everything else is copied as it is, so that a large file is never parsed
whole and names, metadata and unknown fields stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import DType
from pyruntime.onnx.file_kind import is_ort_format
from pyruntime.onnx.graph import Source
from pyruntime.onnx.load import GRAPH
from pyruntime.onnx.protobuf import LENGTH, Wire, tags

NODES, INITIALIZERS = 1, 5
_NODE = tags(length="1 2 3 4 5 6 7 8 9")
_OUTPUT = 2
_TENSOR = tags(varint="1 2 14", length="1 3 4 5 6 7 8 9 10 11 12 13", fixed32="4", fixed64="10")
_NAME = 8
NodeWriters = Mapping[str, Callable[[Wire, int, int], bytes]]


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


def export_plan(
    source: Source, weights: Mapping[str, tuple[DType, tuple[int, ...]]], nodes: NodeWriters | None = None,
    more: Sequence[Piece] = (),
) -> list[Piece]:  # fmt: skip
    """The parts of the model file with new values for these weights, of which it says type and shape. nodes: writers of
    nodes in place of the one with this output; more: fields of the graph to add. Errors: InvalidInput if the file is
    not in ONNX's format"""
    if is_ort_format(source):
        raise InvalidInput("a model in ONNX Runtime's format cannot be written", hint="train the .onnx file")
    wire = Wire(source)
    graphs = [(first, a, b) for tag, first, a, b in fields(wire, 0, source.size) if tag == GRAPH << 3 | LENGTH]
    first, a, b = graphs[-1]
    inner = [*_graph(wire, a, b, weights, nodes or {}), *more]
    size = sum(piece.size for piece in inner)
    return [copy(0, first), literal(message(GRAPH, b"", size)), *inner, copy(b, source.size)]


def _graph(
    wire: Wire, start: int, end: int, weights: Mapping[str, tuple[DType, tuple[int, ...]]], nodes: NodeWriters
) -> list[Piece]:  # fmt: skip
    pieces: list[Piece] = []
    for tag, first, a, b in fields(wire, start, end):
        name = name_of(wire, a, b) if tag == INITIALIZERS << 3 | LENGTH else ""
        if name in weights:
            pieces += tensor(name, *weights[name])
        elif nodes and tag == NODES << 3 | LENGTH and (write := nodes.get(output_of(wire, a, b))):
            pieces.append(literal(write(wire, a, b)))
        elif pieces and not pieces[-1].data and not pieces[-1].weight and pieces[-1].start + pieces[-1].size == first:
            pieces[-1] = replace(pieces[-1], size=b - pieces[-1].start)
        else:
            pieces.append(copy(first, b))
    return pieces


def fields(wire: Wire, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Of each field: tag, where it begins, where its payload begins, where it ends."""
    first = start
    for tag, a, b in wire.fields(start, end):
        yield tag, first, a, b
        first = b


def name_of(wire: Wire, start: int, end: int) -> str:
    found = wire.gather(start, end, _TENSOR, runs=True).get(_NAME, ())
    return wire.text(*found[-1][1:]) if found else ""


def tensor(name: str, dtype: DType, shape: tuple[int, ...]) -> list[Piece]:
    """The field of an initializer. Spec: https://onnx.ai/onnx/api/classes.html#tensorproto"""
    size = prod(shape) * dtype.size
    whole = tensor_head(name, dtype, shape)
    return [literal(whole), Piece(size, weight=name, dtype=dtype.name)] if size else [literal(whole)]


def tensor_head(name: str, dtype: DType, shape: tuple[int, ...]) -> bytes:
    """The field of an initializer up to its values."""
    size, text = prod(shape) * dtype.size, name.encode()
    dims = b"".join(b"\x08" + _varint(d) for d in shape)
    head = dims + b"\x10" + _varint(dtype.code) + _key(_NAME) + _varint(len(text)) + text + _key(9) + _varint(size)
    return _key(INITIALIZERS) + _varint(len(head) + size) + head


def message(number: int, payload: bytes, size: int | None = None) -> bytes:
    """A field with this payload; size: of a payload that follows"""
    return _key(number) + _varint(len(payload) if size is None else size) + payload


def output_of(wire: Wire, start: int, end: int) -> str:
    """The first output of a node."""
    found = wire.gather(start, end, _NODE, runs=True).get(_OUTPUT, ())
    return wire.text(*found[0][1:]) if found else ""


def _key(number: int) -> bytes:
    return bytes([number << 3 | LENGTH])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def copy(start: int, end: int) -> Piece:
    return Piece(end - start, start)


def literal(data: bytes) -> Piece:
    return Piece(len(data), data=data)
