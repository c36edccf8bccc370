"""The result of `quantize`: a model's file that is written when it is read, and the report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyruntime.onnx.model_file import save
from pyruntime.onnx.piece_source import PieceSource

if TYPE_CHECKING:
    from onnx import ModelProto


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
        save(self.file, path)
