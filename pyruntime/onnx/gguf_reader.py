"""The metadata of a GGUF file, and where its tensors are.

Twin of web/extras/gguf_metadata.js for the metadata.
Spec: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from pyruntime.errors import InvalidModel
from pyruntime.onnx.gguf_blocks import NAMES, bytes_of
from pyruntime.onnx.graph import Source

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")  # by the code of a value's type
_STRING, _ARRAY = 8, 9
_WINDOW = 1 << 20  # bytes that are read at once
_MOST_DIMS, _MOST_DEPTH = 4, 4


@dataclass(frozen=True, slots=True)
class Tensor:
    """kind: the code of its type; shape: outermost dim first, as in ONNX, where a GGUF file has the innermost first;
    offset, size: of its bytes in the file"""

    kind: int
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    source: Source
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_gguf(source: Source, *, with_texts: bool = True) -> GgufFile:
    """with_texts: also lists of texts, which take most of the time: a tokenizer's tokens. Without, they are empty.

    Errors: InvalidModel for a damaged file, another version or byte order, or a tensor of an unknown type, which it
    names"""
    cursor = _Cursor(source, with_texts)
    if cursor.bytes(4) != MAGIC:
        raise cursor.damaged("it does not begin with GGUF")
    version = cursor.number("I")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
        what = "the byte order of big-endian machines" if swapped else f"version {version}"
        raise InvalidModel(f"this GGUF file has {what}; versions 2 and 3 in little-endian order can be read")
    tensor_count, pair_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("I"))
    found = [(cursor.text(), *cursor.tensor()) for _ in range(tensor_count)]
    step = metadata.get("general.alignment", 32)
    if not isinstance(step, int) or step < 1:
        raise cursor.damaged(f"its alignment is {step}")
    start = -(-cursor.at // step) * step
    tensors: dict[str, Tensor] = {}
    for name, kind, shape, offset in found:
        size = _size(name, kind, shape)
        if start + offset + size > source.size:
            raise cursor.damaged(f'tensor "{name}" ends at byte {start + offset + size} of {source.size}')
        tensors[name] = Tensor(kind, shape, start + offset, size)
    return GgufFile(source, metadata, tensors)


def _size(name: str, kind: int, shape: tuple[int, ...]) -> int:
    if kind not in NAMES:
        raise InvalidModel(f'tensor "{name}" of this GGUF file has the unknown type {kind}')
    elements, size = bytes_of(kind)
    if shape and shape[-1] % elements:
        raise InvalidModel(f'tensor "{name}" {list(shape)} has rows that are no multiple of {elements} elements')
    return prod(shape) // elements * size


class _Cursor:
    """Reads the values of a file one after the other. It loads a mebibyte at a time."""

    def __init__(self, source: Source, with_texts: bool) -> None:
        self.source, self._with_texts = source, with_texts
        self.at = 0
        self._start, self._window = 0, b""

    def damaged(self, what: str) -> InvalidModel:
        return InvalidModel(f"this GGUF file is damaged: {what}", hint="fetch it again")

    def bytes(self, size: int) -> bytes:
        first = self.at - self._start
        if not 0 <= first <= first + size <= len(self._window):
            if size > self.source.size - self.at:
                raise self.damaged(f"{size} bytes at byte {self.at} reach beyond its end")
            self._start, first = self.at, 0
            self._window = self.source.read(self.at, min(max(size, _WINDOW), self.source.size - self.at))
        self.at += size
        return self._window[first : first + size]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.bytes(self.number("Q")).decode(errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and depth < _MOST_DEPTH:
            return self._array(depth)
        if kind >= len(_NUMBERS) or not _NUMBERS[kind]:
            raise self.damaged(f"a value before byte {self.at} has the type {kind}")
        return self.number(_NUMBERS[kind])

    def _array(self, depth: int) -> list[Any]:
        kind, count = self.number("I"), self.number("Q")
        if count > self.source.size:  # each element takes a byte at least
            raise self.damaged(f"a list before byte {self.at} has {count} elements")
        if kind == _STRING and not self._with_texts:
            self._skip_texts(count)
            return []
        form = _NUMBERS[kind] if kind < len(_NUMBERS) else ""
        if form:
            return list(struct.unpack(f"<{count}{form}", self.bytes(count * struct.calcsize(form))))
        return [self.value(kind, depth + 1) for _ in range(count)]

    def _skip_texts(self, count: int) -> None:
        while count:
            self.bytes(8)  # loads what follows, or reports the end of the file
            self.at -= 8
            window, at = self._window, self.at - self._start
            while count and at + 8 <= len(window):
                at += 8 + int.from_bytes(window[at : at + 8], "little")
                count -= 1
            self.at = self._start + at

    def tensor(self) -> tuple[int, tuple[int, ...], int]:
        """Type, shape and offset among the tensors."""
        rank = self.number("I")
        if rank > _MOST_DIMS:
            raise self.damaged(f"a tensor before byte {self.at} has {rank} dims")
        dims = struct.unpack(f"<{rank}Q", self.bytes(8 * rank))
        return self.number("I"), tuple(reversed(dims)), self.number("Q")
