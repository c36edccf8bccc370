"""Saves a quantised model, and the weights of a large one in a second file."""

from __future__ import annotations

from pathlib import Path

from pyruntime.onnx.edit import FileModel
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.write import INITIALIZER, external_tensor, literal

LARGEST = 1 << 30  # a protobuf message ends at 2 GiB; larger models have their weights in a file of their own
_SMALLEST = 1024  # bytes of a tensor that is in the second file
_CHUNK = 1 << 24


def save(file: PieceSource, path: Path) -> None:
    """Writes the model, and large ones' weights into PATH.data beside it."""
    if file.size < LARGEST:
        with open(path, "wb") as out:
            out.writelines(file.parts(0, file.size))
        return
    model = FileModel(file)
    offset, name = 0, f"{path.name}.data"
    with open(path.with_name(name), "wb") as data:
        for graph in model.graph.all():
            for tensor, part in graph.named(INITIALIZER):
                w = model.weight((part.start, part.end))
                if w.source is None or w.size < _SMALLEST:
                    continue
                for at in range(0, w.size, _CHUNK):
                    data.write(w.source.read(w.offset + at, min(_CHUNK, w.size - at)))
                part.pieces = [literal(external_tensor(tensor, w.dtype, w.shape, name, offset, w.size))]
                offset += w.size
    with open(path, "wb") as out:
        out.writelines(piece.data or file.read(piece.start, piece.size) for piece in model.pieces())
