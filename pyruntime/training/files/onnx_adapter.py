"""Reads and writes `.onnx_adapter` files, ONNX Runtime's format of adapters: a FlatBuffer of named tensors.
pyruntime/runtime/onnx_adapter.py finds the tensors, and names the specifications."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from pyruntime.ir.dtype import BY_NAME
from pyruntime.runtime.onnx_adapter import FORMAT, MARK, AdapterBuffer
from pyruntime.training.files.safetensors import Stored

_ALIGN = 8


class Versions(NamedTuple):
    """What the author of an adapter says: the version of the adapter, and of the model that it belongs to"""

    adapter: int = 1
    model: int = 1


def is_onnx_adapter(data: bytes) -> bool:
    return bytes(data[4:8]) == MARK.encode()


def read(data: bytes) -> tuple[dict[str, Stored], Versions]:
    """Errors: InvalidInput for a damaged file"""

    def number(at: int, width: int) -> int:
        return int.from_bytes(data[at : at + width], "little", signed=True)

    view, buffer = memoryview(data), AdapterBuffer(len(data), number, lambda a, b: str(view[a:b], "utf-8", "replace"))
    tensors = {t.name: Stored(t.dtype, tuple(t.shape), view[t.first : t.last]) for t in buffer.tensors()}
    return tensors, Versions(buffer.version(1), buffer.version(2))


def write(tensors: Mapping[str, Stored], versions: Versions) -> bytes:
    """Written from front to back, so that all offsets lead on, as the format demands."""
    out = bytearray(struct.pack("<I4s", 0, MARK.encode()))
    root, fields = _table(out, "iiio", (FORMAT, versions.adapter, versions.model, 0))
    struct.pack_into("<I", out, 0, root)
    _link(out, fields[3])
    out += struct.pack("<I", len(tensors))
    places = [len(out) + 4 * n for n in range(len(tensors))]
    out += bytes(4 * len(tensors))
    for place, (name, t) in zip(places, tensors.items(), strict=True):
        start, fields = _table(out, "ooio", (0, 0, BY_NAME[t.dtype].code, 0))
        struct.pack_into("<I", out, place, start - place)
        text = name.encode()
        _link(out, fields[0])
        out += struct.pack("<I", len(text)) + text + b"\0"
        _link(out, fields[1])
        out += struct.pack(f"<I{len(t.shape)}q", len(t.shape), *t.shape)
        _link(out, fields[3])
        bytes_ = memoryview(t.data).cast("B")
        out += struct.pack("<I", len(bytes_)) + bytes_
    return bytes(out)


def _table(out: bytearray, kinds: str, values: tuple[int, ...]) -> tuple[int, list[int]]:
    """Append a table of int32 (i) and offsets (o); returns where it and its fields begin."""
    size = 4 + 4 * len(kinds)
    vtable = struct.pack(f"<HH{len(kinds)}H", 4 + 2 * len(kinds), size, *[4 + 4 * n for n in range(len(kinds))])
    out += bytes(-(len(out) + len(vtable)) % 4) + vtable
    start = len(out)
    out += struct.pack(f"<i{len(kinds)}i", len(vtable), *values)
    return start, [start + 4 + 4 * n for n in range(len(kinds))]


def _link(out: bytearray, field: int) -> None:
    """Let an offset lead to the vector that is written next: its elements, after 4 bytes, are aligned."""
    out += bytes(-(len(out) + 4) % _ALIGN)
    struct.pack_into("<I", out, field, len(out) - field)
