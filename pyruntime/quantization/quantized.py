"""The result of `quantize`: a model's file that is written when it is read, and the report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyruntime.onnx.edit import FileModel
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.write import INITIALIZER, external_tensor, literal

if TYPE_CHECKING:
    from onnx import ModelProto

LARGEST = 1 << 30  # a protobuf message ends at 2 GiB; larger models have their weights in a file of their own
_SMALLEST = 1024  # bytes of a tensor that is in the second file
_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What became of a layer. bits: of its weight; before, after: bytes of the weight; error: of the layer's result on
    the samples, relative to its size (None without samples, and for layers in branches and loops)"""

    name: str
    op: str
    shape: tuple[int, ...]
    bits: int
    before: int
    after: int
    error: float | None


@dataclass(frozen=True, slots=True)
class Quantized:
    """errors: of each output of floats on the samples, relative to its size"""

    file: PieceSource
    layers: list[LayerReport]
    errors: dict[str, float]

    @property
    def size(self) -> int:
        """Bytes of the model's file."""
        return self.file.size

    @property
    def model(self) -> ModelProto:
        """The model as an object of the package onnx, which must be installed."""
        import onnx

        return onnx.load_from_string(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The model's file, with its weights."""
        return self.file.read(0, self.file.size)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model. From 1 GiB on, its weights are in a second file, PATH.data."""
        if self.size < LARGEST:
            parts = self.file.parts(0, self.size)
        else:
            model = FileModel(self.file)
            _write_weights(model, Path(f"{os.fspath(path)}.data"))
            parts = (piece.data or self.file.read(piece.start, piece.size) for piece in model.pieces())
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
