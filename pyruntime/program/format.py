"""The Program: plain data that the compiler passes to an executor. schema.json describes its header."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import InvalidModel

FORMAT = 5
MAGIC = b"pyrt"
HEAD = struct.Struct("<4sIII")  # magic, format, CRC-32 of the rest of the file, bytes of the header


@dataclass(slots=True)
class Program:
    """header: JSON data; blob: code and constants to which the header refers by offset and size."""

    header: dict[str, Any]
    blob: bytes

    def to_bytes(self) -> bytes:
        """The file: the head, the header as JSON, the blob."""
        header = json.dumps(self.header, separators=(",", ":")).encode()
        return HEAD.pack(MAGIC, FORMAT, zlib.crc32(self.blob, zlib.crc32(header)), len(header)) + header + self.blob

    @staticmethod
    def from_bytes(data: bytes) -> Program:
        """Read a file. Its header may be any JSON: `validate` checks it.

        Errors: InvalidModel for a file that `to_bytes` of this format did not write."""
        if data[:4] != MAGIC:
            raise InvalidModel("this is not a Program that pyruntime exported")
        if len(data) < HEAD.size:
            raise InvalidModel("the program is cut off")
        _, format_, checksum, size = HEAD.unpack_from(data)
        if format_ != FORMAT:
            text = f"the program has format {format_}, this version reads {FORMAT}"
            raise InvalidModel(text, hint="export it again")
        if zlib.crc32(memoryview(data)[HEAD.size :]) != checksum:
            raise InvalidModel("the program is damaged or cut off: its checksum does not match", hint="export it again")
        try:
            header = json.loads(data[HEAD.size : HEAD.size + size])
        except (ValueError, RecursionError) as error:
            raise InvalidModel(f"the program is damaged: its header is not JSON ({error})") from None
        return Program(header, bytes(data[HEAD.size + size :]))

    def part(self, place: list[int]) -> bytes:
        """The bytes at [offset, size] of the blob."""
        return self.blob[place[0] : place[0] + place[1]]
