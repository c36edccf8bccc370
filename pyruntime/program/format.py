"""The Program: what the compiler hands to an executor. Plain data; docs/architecture.md describes the header."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import InvalidModel

FORMAT = 2
MAGIC = b"pyrt"


@dataclass(slots=True)
class Program:
    """header: JSON-able; blob: code and inline constants that the header points into."""

    header: dict[str, Any]
    blob: bytes

    def to_bytes(self) -> bytes:
        """Magic, length of the header (u32), header as JSON, blob."""
        head = json.dumps(self.header, separators=(",", ":")).encode()
        return MAGIC + struct.pack("<I", len(head)) + head + self.blob

    @staticmethod
    def from_bytes(data: bytes) -> Program:
        if data[:4] != MAGIC or len(data) < 8:
            raise InvalidModel("not a pyruntime program")
        (size,) = struct.unpack_from("<I", data, 4)
        if 8 + size > len(data):
            raise InvalidModel("the program is cut off")
        try:
            header = json.loads(data[8 : 8 + size])
        except ValueError as error:
            raise InvalidModel(f"the header of the program is damaged: {error}") from None
        if header.get("format") != FORMAT:
            raise InvalidModel(f"program format {header.get('format')}, expected {FORMAT}", hint="compile it again")
        return Program(header, bytes(data[8 + size :]))

    def part(self, place: list[int]) -> bytes:
        """The bytes at [offset, size] of the blob."""
        return self.blob[place[0] : place[0] + place[1]]
