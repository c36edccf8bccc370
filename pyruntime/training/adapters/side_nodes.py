"""Writes adapters into a model file as nodes, beside products whose weights cannot change."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from pyruntime.ir.dtype import BF16, DType
from pyruntime.ir.reference import round_float
from pyruntime.onnx.protobuf import LENGTH, Wire
from pyruntime.training.adapters.lora import Beside
from pyruntime.training.files.model_export import (
    NODES,
    NodeWriters,
    Piece,
    fields,
    literal,
    message,
    tensor,
)

_INPUT, _OUTPUT, _NAME, _OP = 1, 2, 3, 4
_SCALED = "/scale"  # after the name of B: the factor of the product


def side_nodes(beside: Sequence[Beside]) -> tuple[NodeWriters, list[Piece]]:
    """Writers of the nodes, by the output of the product, and the weights."""
    return {path.output: partial(_written, path) for path in beside}, _initializers(beside)


def _written(path: Beside, wire: Wire, start: int, end: int) -> bytes:
    """The product, whose first output gets another name, and the nodes that add scale · (x · Aᵀ) · Bᵀ to it."""
    parts, x, old = [], "", f"{path.output}/base"
    for tag, at, a, b in fields(wire, start, end):
        if tag == _INPUT << 3 | LENGTH and not x:
            x = wire.text(a, b)
        is_renamed = tag == _OUTPUT << 3 | LENGTH and wire.text(a, b) == path.output
        parts.append(_text(_OUTPUT, old) if is_renamed else wire.source.read(at, b - at))
    u, v, scaled = (f"{path.output}/{name}" for name in ("lora_x_A", "lora_x_A_B", "lora"))
    first, second = f"{path.output}/lora_A_transposed", f"{path.output}/lora_B_transposed"
    nodes = [
        b"".join(parts), _node("Transpose", (path.a,), first), _node("MatMul", (x, first), u),
        _node("Transpose", (path.b,), second), _node("MatMul", (u, second), v),
        _node("Mul", (v, path.b + _SCALED), scaled), _node("Add", (old, scaled), path.output),
    ]  # fmt: skip
    return b"".join(message(NODES, data) for data in nodes)


def _node(op: str, inputs: Sequence[str], output: str) -> bytes:
    """Spec: https://onnx.ai/onnx/api/classes.html#nodeproto"""
    fields = [*[(_INPUT, name) for name in inputs], (_OUTPUT, output), (_NAME, f"{output}/{op}"), (_OP, op)]
    return b"".join(_text(number, text) for number, text in fields)


def _initializers(beside: Sequence[Beside]) -> list[Piece]:
    """The weights of side paths."""
    pieces: list[Piece] = []
    for path in {path.a: path for path in beside}.values():
        for name, shape in zip((path.a, path.b), path.shapes, strict=True):
            pieces += tensor(name, path.dtype, shape)
        pieces += tensor(path.b + _SCALED, path.dtype, ())[:1]
        pieces.append(literal(_constant(path.scale, path.dtype)))
    return pieces


def _constant(value: float, dtype: DType) -> bytes:
    if dtype is BF16:
        return struct.pack("<f", round_float(value, BF16))[2:]
    return struct.pack({"float16": "<e", "float32": "<f", "float64": "<d"}[dtype.name], value)


def _text(number: int, text: str) -> bytes:
    return message(number, text.encode())
