"""Weights that a model quantises in each run, as codes in its file; biases of its products, as codes of 32 bits."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.edit import FileGraph, FileModel, FileNode, Part, insert, new_node, renamed
from pyruntime.onnx.model_file import inlined
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.sources import External, MemorySource
from pyruntime.onnx.write import INITIALIZER, INPUT, literal, tensor
from pyruntime.quantization.model import remove_unused

_BIASED = ("Conv", "Gemm")


def folded(data: bytes, external: External | None = None) -> bytes:
    """The model of a file whose QuantizeLinear nodes of constants are replaced by their codes."""
    file = FileModel(MemorySource(data), external)
    constants = Constants(file.graph)
    replaced: dict[FileNode, list[FileNode]] = {}
    made: list[Part] = []
    gone = set()
    for n in file.graph.nodes:
        x = constants.get(n.inputs[0]) if n.op == "QuantizeLinear" and len(n.inputs) == 3 else None
        scale, zero = (constants.get(name) for name in n.inputs[1:3]) if x is not None else (None, None)
        if x is None or scale is None or zero is None or x.dtype != np.float32 or zero.dtype not in (np.int8, np.uint8):
            continue
        s, z = (_along(v, x, n.attributes.get("axis", 1)) for v in (scale, zero))
        bounds = np.iinfo(zero.dtype)
        codes = np.clip(np.rint(x / s) + z.astype(np.float32), bounds.min, bounds.max).astype(zero.dtype)
        made.append(_initializer(n.outputs[0], codes))
        replaced[n] = []
        gone.add(n.inputs[0])
    if not replaced:
        return data
    prefix = free_prefix(file)
    decoded = {n.outputs[0]: n for n in file.graph.nodes if n.op == "DequantizeLinear"}
    for n in file.graph.nodes:
        if n.op in _BIASED and len(n.inputs) > 2 and n.inputs[0] in decoded and n.inputs[1] in decoded:
            scales = [constants.get(decoded[x].inputs[1]) for x in n.inputs[:2]]
            replaced |= _with_bias(file, n, prefix, constants.get(n.inputs[2]), scales, made)
            gone.add(n.inputs[2])
    file.graph.replace_nodes(replaced)
    insert(file.graph.parts, made)
    remove_unused(file, gone)
    source = PieceSource(inlined(file), file.opened, {})
    return source.read(0, source.size)


def free_prefix(file: FileModel) -> str:
    """What no name of the model begins with."""
    graphs = [*file.graph.all()]
    names = {x for g in graphs for n in g.nodes for x in (*n.inputs, *n.outputs)}
    names |= {name for g in graphs for kind in (INITIALIZER, INPUT) for name, _ in g.named(kind)}
    found = (f"qdq{n or ''}/" for n in count())
    return next(prefix for prefix in found if not any(name.startswith(prefix) for name in names))


class Constants:
    def __init__(self, graph: FileGraph) -> None:
        self._file = graph.file
        self._parts = dict(graph.named(INITIALIZER))

    def get(self, name: str) -> Any:
        """The array of an initializer, or None."""
        part = self._parts.get(name)
        if part is None:
            return None
        w = self._file.weight((part.start, part.end))
        return np.frombuffer(w.read(), w.dtype.name).reshape(w.shape) if w.dtype.bits >= 8 else None


def _along(v: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    return v if v.ndim == 0 else v.reshape([-1 if n == axis % x.ndim else 1 for n in range(x.ndim)])


def _with_bias(
    file: FileModel, n: FileNode, prefix: str, bias: Any, scales: list[Any], made: list[Part]
) -> dict[FileNode, list[FileNode]]:  # fmt: skip
    """A product whose bias is codes of the scale that its sums have; nothing if the codes do not fit 32 bits."""
    is_plain = bias is not None and bias.dtype == np.float32 and bias.ndim == 1
    if not is_plain or any(s is None for s in scales) or scales[0].size != 1:
        return {}
    scale = np.broadcast_to((scales[0].reshape(()) * scales[1]).astype(np.float32), bias.shape)
    codes = np.rint(bias.astype(np.float64) / scale)
    if not (np.abs(codes) < 2**31 - 1).all():
        return {}
    name = f"{prefix}{n.outputs[0]}.bias"
    made += [_initializer(f"{name}.codes", codes.astype(np.int32)), _initializer(f"{name}.scale", scale)]
    inputs, attributes = [f"{name}.codes", f"{name}.scale"], {"axis": 0}
    decode = new_node("DequantizeLinear", inputs, name, attributes=attributes)
    return {n: [decode, renamed(file.wire, n, {2: name}, {})]}


def _initializer(name: str, values: np.ndarray) -> Part:
    data = literal(np.ascontiguousarray(values).tobytes())
    return Part(INITIALIZER, pieces=tensor(name, BY_NAME[values.dtype.name], values.shape, data))
