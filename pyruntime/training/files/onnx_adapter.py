"""Reads and writes `.onnx_adapter` files, ONNX Runtime's format of adapters: a FlatBuffer of named tensors.
Twin of web/page/training/onnx_adapter.js.

Spec: https://onnxruntime.ai/docs/genai/reference/adapter.html, onnxruntime/lora/adapter_format/adapter_schema.fbs
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.ir.dtype import BY_CODE, BY_NAME
from pyruntime.onnx.flatbuffer import Buffer, Table
from pyruntime.onnx.sources import MemorySource
from pyruntime.training.files.safetensors import Stored

MARK = b"TORT"  # bytes 4 to 8
FORMAT = 1
_ALIGN = 8


class Versions(NamedTuple):
    """What the author of an adapter says: the version of the adapter, and of the model that it belongs to"""

    adapter: int = 1
    model: int = 1


def is_onnx_adapter(data: bytes) -> bool:
    return bytes(data[4:8]) == MARK


def read(data: bytes) -> tuple[dict[str, Stored], Versions]:
    """Errors: InvalidInput for a damaged file"""
    try:
        root = Buffer(MemorySource(data)).root()
        if root.number(0) != FORMAT:
            raise InvalidInput(f"the adapter has format {root.number(0)}, {FORMAT} is known")
        tensors = dict(_parameter(table, data) for table in root.tables(3))
        return tensors, Versions(root.number(1), root.number(2))
    except (InvalidModel, struct.error) as error:
        raise InvalidInput(f"the adapter is damaged: {error}") from None


def _parameter(table: Table, data: bytes) -> tuple[str, Stored]:
    name, dims = table.text(0), tuple(int(d) for d in table.numbers(1, "q"))
    dtype = BY_CODE.get(table.number(2))
    if dtype is None or dtype.size * 8 != dtype.bits or any(d < 0 for d in dims):
        raise InvalidInput(f'the adapter is damaged: parameter "{name}" has type {table.number(2)}, dims {list(dims)}')
    start, size = table.span(3, 1)
    if size != prod(dims) * dtype.size:
        raise InvalidInput(f'the adapter is damaged: parameter "{name}" has {size} bytes, dims {list(dims)}')
    return name, Stored(dtype.name, dims, memoryview(data)[start : start + size])


def write(tensors: Mapping[str, Stored], versions: Versions) -> bytes:
    """Written from front to back, so that all offsets lead on, as the format demands."""
    out = bytearray(struct.pack("<I4s", 0, MARK))
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
