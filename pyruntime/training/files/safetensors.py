"""Reads and writes safetensors files (https://github.com/huggingface/safetensors#format).
Twin of web/common/safetensors.js."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput

CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}
TYPES = {code: name for name, code in CODES.items()}
OTHERS = {"BOOL", "U8", "I8", "U16", "I16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F4", "C64"}  # read as if absent
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4}
LONGEST = 100_000_000  # bytes of a header, as the format says


class Stored(NamedTuple):
    """A tensor in a file: its type (a name of ours), shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Any


def write(tensors: Mapping[str, Stored], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at, parts = 0, []
    for name, t in tensors.items():
        data = memoryview(t.data).cast("B")
        header[name] = {"dtype": CODES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def read(data: bytes) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of the types in CODES, and the metadata. Errors: InvalidInput for bytes that are no such file"""
    header, start = _header(data)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged("its metadata are no texts")
    found = {name: _stored(name, entry, data, start) for name, entry in header.items()}
    return {name: t for name, t in found.items() if t.dtype}, metadata


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(LONGEST, len(data) - 8):
        raise _damaged("it is cut off")
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError):
        raise _damaged("its header is not JSON") from None
    if not isinstance(header, dict):
        raise _damaged("its header is no table")
    return header, 8 + size


def _stored(name: str, entry: Any, data: bytes, start: int) -> Stored:
    try:
        code, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        size = last - first if code in OTHERS else prod(shape) * SIZES[code]
        is_whole = isinstance(entry["shape"], list) and all(type(n) is int and n >= 0 for n in (*shape, first, last))
    except (KeyError, TypeError, ValueError):
        raise _damaged(f'tensor "{name}" has no type and place that are known') from None
    if not is_whole or not first <= last <= len(data) - start or last - first != size:
        raise _damaged(f'tensor "{name}" does not fill its place')
    return Stored(TYPES.get(code, ""), shape, memoryview(data)[start + first : start + last])


def _damaged(text: str) -> InvalidInput:
    return InvalidInput(f"this is no checkpoint: {text}", hint="give the bytes of a safetensors file")
