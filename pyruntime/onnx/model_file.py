"""Opens model files for editing, and saves the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel, not_found
from pyruntime.onnx.edit import FileGraph, FileModel
from pyruntime.onnx.file_kind import is_gguf
from pyruntime.onnx.graph import Source
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.sources import External, FileSource, MemorySource, beside
from pyruntime.onnx.write import INITIALIZER, OUTPUT, Piece, external_tensor, literal, tensor

Open = Callable[[], FileModel]  # opens the model's file anew, because editing changes it
LARGEST = 1 << 30  # a protobuf message ends at 2 GiB; larger models have their weights in a file of their own
_SMALLEST = 1024  # bytes of a tensor that is in the second file
_CHUNK = 1 << 24


def opener(model: Any) -> Open:
    """Opens the model for editing, each time anew. Errors: InvalidInput, InvalidModel, ModelNotFound"""
    try:
        data = model.SerializeToString() if hasattr(model, "SerializeToString") else model
    except ValueError as e:
        raise InvalidInput(
            f"the model cannot be read: {e}", hint="save it with external data, and give its path"
        ) from e
    in_memory = isinstance(data, (bytes, bytearray, memoryview))
    if not in_memory and not isinstance(data, (str, os.PathLike)):
        has_bytes = hasattr(data, "to_bytes") and not isinstance(data, int)
        hint = "its method to_bytes() gives its bytes" if has_bytes else ""
        raise InvalidInput(f"a model is given by its path or its bytes, not as {type(data).__name__}", hint=hint)
    try:
        source: Source = MemorySource(data, "") if in_memory else FileSource(data)
    except FileNotFoundError:
        raise not_found(data) from None
    except (OSError, ValueError) as e:
        raise InvalidModel(f'"{os.fspath(data)}" cannot be read: {e}') from None
    if is_gguf(source):
        from pyruntime.onnx.gguf_as_onnx import onnx_file  # here, because few models are such files

        source = onnx_file(source)
    external = External(None if in_memory else beside(data))
    _ = FileModel(source, external).graph.nodes
    return lambda: FileModel(source, external)


def inlined(model: FileModel) -> list[Piece]:
    """The file, with the weights in it that are in files beside the model."""
    for graph in model.graph.all():
        for name, part in graph.named(INITIALIZER):
            if model.is_external(part):
                w = model.weight((part.start, part.end))
                part.pieces = tensor(
                    name, w.dtype, w.shape, Piece(w.size, w.offset, file=w.source.name if w.source else "")
                )
    return model.pieces()


def edited(model: FileModel) -> PieceSource:
    """The file with its weights, which is written when it is read."""
    return PieceSource(inlined(model), model.opened, {})


def whole(model: Any) -> bytes:
    """The file of a model with its weights. Errors: those of `opener`, InvalidModel if external data is missing"""
    return written(opener(model)())


def written(model: FileModel) -> bytes:
    source = edited(model)
    return source.read(0, source.size)


def used(every: Sequence[FileGraph]) -> set[str]:
    """The names that nodes and outputs of these graphs read."""
    return {x for g in every for n in g.nodes for x in n.inputs} | {x for g in every for x, _ in g.named(OUTPUT)}


def save(file: PieceSource, path: str | os.PathLike[str]) -> None:
    """Write the model. From 1 GiB on, its weights are in a second file, PATH.data."""
    if file.size < LARGEST:
        parts = file.parts(0, file.size)
    else:
        model = FileModel(file)
        _write_weights(model, Path(f"{os.fspath(path)}.data"))
        parts = (piece.data or file.read(piece.start, piece.size) for piece in model.pieces())
    with open(path, "wb") as out:
        out.writelines(parts)


def _write_weights(model: FileModel, path: Path) -> None:
    """Moves large initializers into a file of their own."""
    offset = 0
    with open(path, "wb") as data:
        for graph in model.graph.all():
            for name, part in graph.named(INITIALIZER):
                w = model.weight((part.start, part.end))
                if w.source is None or w.size < _SMALLEST:
                    continue
                for at in range(0, w.size, _CHUNK):
                    data.write(w.source.read(w.offset + at, min(_CHUNK, w.size - at)))
                part.pieces = [literal(external_tensor(name, w.dtype, w.shape, path.name, offset, w.size))]
                offset += w.size
