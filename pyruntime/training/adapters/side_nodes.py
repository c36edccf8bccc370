"""Writes adapters into a model file as nodes, beside products whose weights cannot change."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from pyruntime.ir.dtype import BF16, DType
from pyruntime.ir.reference import round_float
from pyruntime.onnx.edit import FileModel, FileNode, NodeWriters, new_node, renamed
from pyruntime.onnx.write import Piece, literal, tensor
from pyruntime.training.adapters.lora import Beside

_SCALED = "/scale"  # after the name of B: the factor of the product


def side_nodes(beside: Sequence[Beside]) -> tuple[NodeWriters, list[Piece]]:
    """Writers of the nodes, by the output of the product, and the weights."""
    return {path.output: partial(_nodes, path) for path in beside}, _initializers(beside)


def _nodes(path: Beside, model: FileModel, product: FileNode) -> list[FileNode]:
    """The product, whose first output gets another name, and the nodes that add scale · (x · Aᵀ) · Bᵀ to it."""
    y, x = path.output, product.inputs[0]
    base, first, u, second, v, scaled = (
        f"{y}/{name}" for name in ("base", "lora_A_transposed", "lora_x_A", "lora_B_transposed", "lora_x_A_B", "lora")
    )
    added = [
        ("Transpose", (path.a,), first), ("MatMul", (x, first), u), ("Transpose", (path.b,), second),
        ("MatMul", (u, second), v), ("Mul", (v, path.b + _SCALED), scaled), ("Add", (base, scaled), y),
    ]  # fmt: skip
    nodes = [new_node(op, inputs, output, f"{output}/{op}") for op, inputs, output in added]
    return [renamed(model.wire, product, {}, {0: base}), *nodes]


def _initializers(beside: Sequence[Beside]) -> list[Piece]:
    """The weights of side paths."""
    pieces: list[Piece] = []
    for path in {path.a: path for path in beside}.values():
        for name, shape in zip((path.a, path.b), path.shapes, strict=True):
            pieces += tensor(name, path.dtype, shape)
        pieces += tensor(path.b + _SCALED, path.dtype, (), literal(_constant(path.scale, path.dtype)))
    return pieces


def _constant(value: float, dtype: DType) -> bytes:
    if dtype is BF16:
        return struct.pack("<f", round_float(value, BF16))[2:]
    return struct.pack({"float16": "<e", "float32": "<f", "float64": "<d"}[dtype.name], value)
