"""Weights that a model quantises in each run, as codes in its file; biases of its products, as codes of 32 bits."""

from __future__ import annotations

import math
import struct
from functools import cache
from itertools import count

from pyruntime.ir.dtype import F32, I8, I32, U8, DType
from pyruntime.onnx.edit import FileGraph, FileModel, FileNode, Part, initializer, insert, new_node, renamed
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.model_file import Open, edited
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.weight_values import elements
from pyruntime.onnx.write import INITIALIZER, INPUT, GraphWriter, value_info
from pyruntime.quantization.calibration import as_float32
from pyruntime.quantization.model import remove_unused
from pyruntime.quantization.steps import Run, Steps

_BIASED = ("Conv", "Gemm")


def folded(open_model: Open) -> Steps[PieceSource]:
    """The file of a model whose QuantizeLinear nodes of constants are replaced by their codes."""
    file = open_model()
    constants = Constants(file.graph)
    replaced: dict[FileNode, list[FileNode]] = {}
    made: list[Part] = []
    gone = set()
    for n in file.graph.nodes:
        if n.op != "QuantizeLinear" or len(n.inputs) != 3:
            continue
        x, scale, zero = (constants.get(name) for name in n.inputs)
        if x and scale and zero and x.dtype is scale.dtype is F32 and zero.dtype in (I8, U8):
            codes = yield from _codes(x, scale, zero, n.attributes.get("axis", 1))
            made.append(initializer(n.outputs[0], zero.dtype, x.shape, codes))
            replaced[n] = []
            gone.add(n.inputs[0])
    prefix = free_prefix(file)
    decoded = {n.outputs[0]: n for n in file.graph.nodes if n.op == "DequantizeLinear"}
    for n in file.graph.nodes if replaced else ():
        if n.op in _BIASED and len(n.inputs) > 2 and n.inputs[0] in decoded and n.inputs[1] in decoded:
            scales = [constants.floats(decoded[x].inputs[1]) for x in n.inputs[:2]]
            replaced |= _with_bias(file, n, prefix, constants.floats(n.inputs[2]), scales, made)
            gone.add(n.inputs[2])
    file.graph.replace_nodes(replaced)
    insert(file.graph.parts, made)
    remove_unused(file, gone)
    return edited(file)


def _codes(x: Weight, scale: Weight, zero: Weight, axis: int) -> Steps[bytes]:
    """The codes of a constant."""
    at = axis % len(x.shape) if scale.shape else 0
    sizes = math.prod(x.shape[:at]), math.prod(scale.shape), math.prod(x.shape[at + 1 :])
    dims = sizes if scale.shape else (1, 1, math.prod(x.shape))
    parts = {"x": (x, dims), "scale": (scale, dims[1:2]), "zero": (zero, dims[1:2])}
    feeds = {name: (w.dtype.name, shape, w.read()) for name, (w, shape) in parts.items()}
    found = yield Run(_coding_model(zero.dtype), feeds)
    return bytes(found["codes"])


@cache
def _coding_model(dtype: DType) -> bytes:
    g = GraphWriter()
    g("QuantizeLinear", "x", "scale", "zero", axis=1, output="codes")
    shapes = {"x": (F32, ("a", "c", "b")), "scale": (F32, ("c",)), "zero": (dtype, ("c",))}
    return g.model([value_info(name, *x) for name, x in shapes.items()], [value_info("codes", dtype, ("a", "c", "b"))])


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

    def get(self, name: str) -> Weight | None:
        part = self._parts.get(name)
        return self._file.weight((part.start, part.end)) if part else None

    def floats(self, name: str) -> list[float]:
        """The elements of an initializer of float32 with at most one axis; [] for others."""
        w = self.get(name)
        values = elements(w) if w and w.dtype is F32 and len(w.shape) < 2 else []
        return [x for x in values if isinstance(x, float)]


def _with_bias(
    file: FileModel, n: FileNode, prefix: str, bias: list[float], scales: list[list[float]], made: list[Part]
) -> dict[FileNode, list[FileNode]]:  # fmt: skip
    """A product whose bias is codes of the scale that its sums have; nothing if the codes do not fit 32 bits."""
    first, second = scales
    if not bias or len(first) != 1 or len(second) not in (1, len(bias)):
        return {}
    own = [as_float32(first[0] * x) for x in second] * (len(bias) // len(second))
    codes = [round(x / scale) if scale and math.isfinite(x) else 1 << 31 for x, scale in zip(bias, own, strict=True)]
    if not all(abs(code) < 2**31 - 1 for code in codes):
        return {}
    name, size = f"{prefix}{n.outputs[0]}.bias", len(bias)
    made.append(initializer(f"{name}.codes", I32, (size,), struct.pack(f"<{size}i", *codes)))
    made.append(initializer(f"{name}.scale", F32, (size,), struct.pack(f"<{size}f", *own)))
    decode = new_node("DequantizeLinear", [f"{name}.codes", f"{name}.scale"], name, attributes={"axis": 0})
    return {n: [decode, renamed(file.wire, n, {2: name}, {})]}
