"""A GGUF file as a file in ONNX's format, whose weights are spans of the GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pyruntime.onnx.gguf_decoder import read_gguf_graph
from pyruntime.onnx.gguf_parts import OPSETS
from pyruntime.onnx.graph import Node, Source, Value, tensor_type
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.write import (
    GRAPH,
    INPUT,
    IR_VERSION,
    NODE,
    OUTPUT,
    Piece,
    around,
    integer,
    literal,
    message,
    node,
    opset,
    tensor,
    text,
    value_info,
)
from pyruntime.onnx.write import (
    OPSETS as OPSETS_FIELD,
)
from pyruntime.onnx.write import Value as Attribute

_NAME = 2  # field of GraphProto
_IR = 11  # the version of the format that opset 23 came with


def onnx_file(source: Source) -> PieceSource:
    """Errors: InvalidModel"""
    graph = read_gguf_graph(source)
    pieces = [literal(message(NODE, _node(n))) for n in graph.nodes]
    pieces.append(literal(text(_NAME, graph.name)))
    for weight in graph.weights.values():
        is_in_file = weight.source is source
        values = Piece(weight.size, weight.offset) if is_in_file else literal(weight.read())
        pieces += tensor(weight.name, weight.dtype, weight.shape, values)
    pieces += [literal(message(INPUT, _info(v))) for v in graph.inputs]
    pieces += [literal(message(OUTPUT, _info(v))) for v in graph.outputs]
    head = integer(IR_VERSION, _IR) + b"".join(message(OPSETS_FIELD, opset(d, v)) for d, v in OPSETS.items())
    return PieceSource([literal(head), *around(GRAPH, pieces)], lambda _: source, {})


def _node(n: Node) -> bytes:
    return node(n.op, n.inputs, n.outputs, n.name, n.domain or None, cast("Mapping[str, Attribute]", n.attrs))


def _info(value: Value) -> bytes:
    found = tensor_type(value.type)
    assert found is not None and found.dtype is not None and found.shape is not None
    return value_info(value.name, found.dtype, [d for d in found.shape if d is not None])
