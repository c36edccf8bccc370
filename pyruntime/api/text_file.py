"""Writes and reads saved texts. pyruntime/runtime/saved_text.py has the rules of their headers."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from pyruntime.runtime.saved_text import (
    FORMAT,
    HEAD,
    MAGIC,
    SavedText,
    check_head,
    damaged,
    header_of,
    place,
    saved_text,
)

WORDS = struct.Struct("<4I")  # magic, format, CRC-32 of the rest of the file, bytes of the header


def write(saved: SavedText, arrays: Sequence[Any]) -> bytes:
    """arrays: bytes, in the order of the tensors"""
    place(saved.decoders)
    header = json.dumps(header_of(saved), separators=(",", ":")).encode()
    checksum = zlib.crc32(header)
    for array in arrays:
        checksum = zlib.crc32(array, checksum)
    return b"".join([WORDS.pack(MAGIC, FORMAT, checksum, len(header)), header, *arrays])


def read(data: bytes) -> tuple[SavedText, memoryview]:
    """The text, and the bytes of its tensors. Errors: InvalidInput"""
    words = list(WORDS.unpack_from(data)) if len(data) >= HEAD else []
    check_head(len(data), words)
    body = memoryview(data)[HEAD:]
    if zlib.crc32(body) != words[2]:
        raise damaged("its checksum does not match")
    try:
        header = json.loads(bytes(body[: words[3]]))
    except (ValueError, RecursionError):
        raise damaged("its header is not JSON") from None
    body = body[words[3] :]
    return saved_text(header, len(body)), body
