"""Writes an ONNX model after what needs no input: nodes that read constants alone become initializers, and what no
output depends on is left out. Fusions are made of kernels, so only a Program has them (`InferenceSession.export`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.frontend.feed_checks import type_name
from pyruntime.ir.dtype import STRING
from pyruntime.native.memory.arrays import dtype_of, to_storage
from pyruntime.native.sessions.session import Session
from pyruntime.onnx.edit import FileGraph, FileModel, FileNode, initializer, insert, new
from pyruntime.onnx.graph import TensorType
from pyruntime.onnx.model_file import Open, edited, opener, save, used
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.write import INITIALIZER, INPUT, OUTPUT, VALUE_INFO, text

# Their results differ from run to run, or are codes' values, which are larger than the codes.
_STAY = frozenset(
    """Bernoulli DequantizeLinear Dropout Multinomial RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike""".split()
)
_DOMAINS = ("", "ai.onnx", "pyruntime.gguf")  # the last has operators that only this engine knows
_GROWTH = 2  # a node whose result has more bytes than its inputs by this factor stays, as Expand of one number does
_SMALL = 1 << 16  # bytes of a result that may be larger
_NAME = 1  # field of ValueInfoProto


def save_optimized(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model after what needs no input. model: its path or bytes, or a ModelProto; path: of the new file, and of
    PATH.data with the weights from 1 GiB on. Errors: InvalidInput for what is no file in ONNX's format; those of a
    session"""
    save(optimized(opener(model)), path)


def optimized(open_model: Open) -> PieceSource:
    """The file of the new model."""
    file = open_model()
    folded = _folded(file, open_model)
    graph = file.graph
    values: dict[str, np.ndarray[Any, Any]] = {}
    for found in folded.values():
        values |= found
    graph.remove([node.part for node in folded])
    _remove_dead(graph, [name for name, _ in graph.named(OUTPUT)])
    read = used(list(graph.all()))
    made = {name: value for name, value in values.items() if name in read}
    data = {name: np.ascontiguousarray(to_storage(value)).tobytes() for name, value in made.items()}
    insert(graph.parts, [initializer(name, dtype_of(x), x.shape, data[name]) for name, x in made.items()])
    _remove_constants(file, read, {*values})
    return edited(file)


# ── constants ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _folded(file: FileModel, open_model: Open) -> dict[FileNode, dict[str, np.ndarray[Any, Any]]]:
    """Nodes that become initializers, with the values of their outputs."""
    sizes = _constants(file)
    candidates = _candidates(file.graph, {*sizes})
    values = _computed(open_model, [name for node in candidates for name in node.outputs if name]) if candidates else {}
    folded: dict[FileNode, dict[str, np.ndarray[Any, Any]]] = {}
    for node in candidates:
        inputs, outputs = ([name for name in names if name] for names in (node.inputs, node.outputs))
        if sizes.keys() >= {*inputs} and values.keys() >= {*outputs}:
            found = {name: values[name] for name in outputs}
            most = max(_SMALL, _GROWTH * sum(sizes[name] for name in inputs))
            if sum(x.nbytes for x in found.values()) <= most:
                folded[node] = found
                sizes |= {name: x.nbytes for name, x in found.items()}
    return folded


def _constants(file: FileModel) -> dict[str, int]:
    """Bytes of the constants, by name. From version 4 of the format on, initializers that are inputs are defaults."""
    graph = file.graph
    defaults = {name for name, _ in graph.named(INPUT)} if file.ir_version >= 4 else set()
    found = {name: part.end - part.start for name, part in graph.named(INITIALIZER) if name not in defaults}
    return found | {node.outputs[0]: node.part.end - node.part.start for node in graph.nodes if _is_constant(node)}


def _is_constant(node: FileNode) -> bool:
    return node.op == "Constant" and node.domain in ("", "ai.onnx")


def _candidates(graph: FileGraph, constants: set[str]) -> list[FileNode]:
    """Nodes that read constants alone, in an order in which they can be computed."""
    left = [
        node for node in graph.nodes
        if node.domain in _DOMAINS and node.op not in _STAY and not node.graphs and any(node.inputs)
    ]  # fmt: skip
    found: list[FileNode] = []
    while ready := [node for node in left if constants.issuperset(filter(None, node.inputs))]:
        found += ready
        constants = constants.union(*(node.outputs for node in ready))
        begun = {*ready}
        left = [node for node in left if node not in begun]
    return found


def _computed(open_model: Open, names: Sequence[str]) -> Mapping[str, Any]:
    file = open_model()
    graph = file.graph
    graph.remove([part for _, part in graph.named(OUTPUT)])
    insert(graph.parts, [new(OUTPUT, text(_NAME, name)) for name in names])
    graph.remove([part for _, part in graph.named(INPUT)])
    _remove_dead(graph, names)
    session = Session(edited(file))
    try:
        types = {output.name: output.type for output in session.get_outputs()}
        found = zip(names, session.run(list(names), {}), strict=True)
        return {name: value for name, value in found if _is_writable(value, types[name])}
    finally:
        session.release()


def _is_writable(value: Any, type_: str) -> bool:
    """Whether it is a tensor whose elements have whole bytes, and whose array has its type: without ml_dtypes, small
    floats are arrays of integers."""
    if not isinstance(value, np.ndarray) or (dtype := dtype_of(value)) is STRING or dtype.bits < 8:
        return False
    return type_name(TensorType(dtype, None)) == type_


# ── what is left out ─────────────────────────────────────────────────────────────────────────────────────────────────


def _remove_dead(graph: FileGraph, outputs: Sequence[str]) -> None:
    """Removes nodes that these outputs do not depend on. Names in branches and loops count as read."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    live: set[FileNode] = set()
    wanted = list(outputs)
    while wanted:
        node = makers.get(wanted.pop())
        if node is not None and node not in live:
            live.add(node)
            wanted += [*node.inputs, *(name for inner in node.graphs for name in used(list(inner.all())))]
    graph.remove([node.part for node in graph.nodes if node not in live])


def _remove_constants(file: FileModel, read: set[str], folded: set[str]) -> None:
    """Removes initializers that nothing reads, and types of values that are gone. Before version 4 of the format each
    initializer is an input, which new ones are not."""
    graph = file.graph
    graph.remove([part for name, part in graph.named(INITIALIZER) if name not in read])
    graph.remove([part for name, part in graph.named(VALUE_INFO) if name in folded or name not in read])
    if file.ir_version < 4:
        constants = {name for name, _ in graph.named(INITIALIZER)} | folded
        graph.remove([part for name, part in graph.named(INPUT) if name in constants or name not in read])
        file.ir_version = 4
