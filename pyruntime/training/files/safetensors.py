"""Reads and writes safetensors files. pyruntime/runtime/safetensors.py makes and checks their headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyruntime.runtime.safetensors import METADATA, TensorPlace, check_size, damaged_header, header_of, places_in


class Stored(NamedTuple):
    """A tensor in a file: its type (a name of ours), shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle` and `copy`: views of a file cannot travel."""
        return Stored, (self.dtype, self.shape, memoryview(self.data).tobytes())


def write(tensors: Mapping[str, Stored], metadata: Mapping[str, str]) -> bytes:
    """The types of tensors are those of pyruntime.runtime.safetensors.CODES."""
    parts = [memoryview(t.data).cast("B") for t in tensors.values()]
    found = zip(tensors.items(), parts, strict=True)
    places = [TensorPlace(name, t.dtype, list(t.shape), 0, len(data)) for (name, t), data in found]
    text = json.dumps(header_of(places, metadata), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def read(data: bytes) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors and the metadata. Errors: InvalidInput"""
    size = int.from_bytes(data[:8], "little")
    check_size(size, len(data))
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError):
        raise damaged_header() from None
    body = memoryview(data)[8 + size :]
    tensors = {p.name: Stored(p.dtype, tuple(p.shape), body[p.first : p.last]) for p in places_in(header, len(body))}
    return tensors, header.get(METADATA, {})
