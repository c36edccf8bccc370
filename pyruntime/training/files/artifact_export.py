"""Writes an inference model from an evaluation model of onnxruntime-training and parameters: the nodes that the wanted
outputs need are copied as they are."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from pyruntime.errors import InvalidInput
from pyruntime.onnx.graph import Source, Weight
from pyruntime.onnx.load import GRAPH
from pyruntime.onnx.protobuf import LENGTH, Wire, tags
from pyruntime.training.files.model_export import (
    Piece,
    copy,
    fields,
    literal,
    message,
    name_of,
    tensor,
    tensor_head,
)

_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO = 1, 5, 11, 12, 13
_VALUE_NAME = 1
_NODE_TAGS = tags(varint="", length="1 2 3 4 5 6 7")
_VALUE_TAGS = tags(length="1 2 3")
Field = tuple[int, int, int, int]  # tag, where it begins, where its payload begins and ends


def inference_plan(
    source: Source, outputs: Sequence[str], parameters: Mapping[str, Weight], changed: Container[str]
) -> list[Piece]:
    """The pieces of the new file. changed: parameters with new values. Errors: InvalidInput for an output that no node
    computes"""
    wire = Wire(source)
    first, start, end = next((f, a, b) for tag, f, a, b in fields(wire, 0, source.size) if tag == GRAPH << 3 | LENGTH)
    parts = list(fields(wire, start, end))
    nodes, read = _needed(wire, parts, outputs)
    types = {_value_name(wire, p): p for p in parts if p[0] >> 3 in (_OUTPUT, _VALUE_INFO)}
    inner: list[Piece] = []
    for part in parts:
        tag, begin, a, b = part
        number = tag >> 3
        dropped = (
            (number == _NODE and part not in nodes) or number in (_OUTPUT, _VALUE_INFO)
            or (number == _INPUT and (_value_name(wire, part) in parameters or _value_name(wire, part) not in read))
            or (number == _INITIALIZER and name_of(wire, a, b) not in read)
        )  # fmt: skip
        if not dropped:
            inner.append(copy(begin, b))
    for name, w in parameters.items():
        if name in read:
            inner += tensor(name, w.dtype, w.shape) if name in changed else _unchanged(w)
    for name in outputs:
        known = types.get(name)
        payload = source.read(known[2], known[3] - known[2]) if known else message(_VALUE_NAME, name.encode())
        inner.append(literal(message(_OUTPUT, payload)))
    size = sum(piece.size for piece in inner)
    plan = [copy(0, first), literal(message(GRAPH, b"", size)), *inner, copy(end, source.size)]
    return [p if p.data or p.weight or p.file else replace(p, file=source.name) for p in plan]


def _unchanged(w: Weight) -> list[Piece]:
    assert w.source is not None
    return [literal(tensor_head(w.name, w.dtype, w.shape)), Piece(w.size, w.offset, file=w.source.name)]


def _needed(wire: Wire, parts: Sequence[Field], outputs: Sequence[str]) -> tuple[set[Field], set[str]]:
    """The nodes that compute the outputs, which come after what they read, and the names of all that is read."""
    read, kept, made = set(outputs), set(), set()
    for part in reversed([p for p in parts if p[0] == _NODE << 3 | LENGTH]):
        found = wire.gather(part[2], part[3], _NODE_TAGS)
        names = [[wire.text(a, b) for _, a, b in found.get(n, ())] for n in (1, 2)]
        if read.isdisjoint(names[1]):
            continue
        kept.add(part)
        read |= set(names[0])
        made |= set(names[1])
    for name in outputs:
        if name not in made:
            raise InvalidInput(f'no node of the model computes "{name}"')
    return kept, read


def _value_name(wire: Wire, part: Field) -> str:
    found = wire.gather(part[2], part[3], _VALUE_TAGS).get(_VALUE_NAME, ())
    return wire.text(*found[-1][1:]) if found else ""
