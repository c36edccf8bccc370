"""Writes an inference model from an evaluation model of onnxruntime-training and parameters: the nodes that the wanted
outputs need are copied as they are."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from pyruntime.errors import InvalidInput
from pyruntime.onnx.edit import FileGraph, FileModel, FileNode, Part, new
from pyruntime.onnx.graph import Source, Weight
from pyruntime.onnx.write import INITIALIZER, INPUT, OUTPUT, VALUE_INFO, Piece, tensor, text

_VALUE_NAME = 1


def inference_plan(
    source: Source, outputs: Sequence[str], parameters: Mapping[str, Weight], changed: Container[str]
) -> list[Piece]:
    """The pieces of the new file. changed: parameters with new values. Errors: InvalidInput for an output that no node
    computes"""
    graph = FileModel(source).graph
    nodes, read = _needed(graph, outputs)
    types = {name: part for number in (OUTPUT, VALUE_INFO) for name, part in graph.named(number)}
    graph.remove(node.part for node in graph.nodes if node not in nodes)
    graph.remove(part for number in (OUTPUT, VALUE_INFO) for _, part in graph.named(number))
    graph.remove(part for name, part in graph.named(INPUT) if name in parameters or name not in read)
    graph.remove(part for name, part in graph.named(INITIALIZER) if name not in read)
    for name, w in parameters.items():
        if name in read:
            old = None if name in changed else Piece(w.size, w.offset, file=w.source.name if w.source else "")
            graph.parts.append(Part(INITIALIZER, pieces=tensor(name, w.dtype, w.shape, old)))
    for name in outputs:
        known = types.get(name)
        payload = source.read(known.start, known.end - known.start) if known else text(_VALUE_NAME, name)
        graph.parts.append(new(OUTPUT, payload))
    return [replace(p, file=source.name) if p.is_copy and not p.file else p for p in graph.file.pieces()]


def _needed(graph: FileGraph, outputs: Sequence[str]) -> tuple[set[FileNode], set[str]]:
    """The nodes that compute the outputs, which come after what they read, and the names of all that is read."""
    read, kept, made = set(outputs), set[FileNode](), set[str]()
    for node in reversed(graph.nodes):
        if not read.isdisjoint(node.outputs):
            kept.add(node)
            read |= set(node.inputs)
            made |= set(node.outputs)
    for name in outputs:
        if name not in made:
            raise InvalidInput(f'no node of the model computes "{name}"')
    return kept, read
