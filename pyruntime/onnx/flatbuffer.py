"""Reads FlatBuffers from a `Source` in pages: finds the fields of tables by their vtables, and copies only these.

Every offset is checked: a damaged buffer is an InvalidModel with the byte at fault.

Spec: https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct

from pyruntime.errors import InvalidModel
from pyruntime.onnx.graph import Source

_PAGE = 1 << 14


class Buffer:
    """The bytes of one buffer, read in cached pages: tables lie near each other, and weights are not read."""

    __slots__ = ("_left", "_pages", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._pages: dict[int, bytes] = {}
        self._left = 2 * source.size  # bytes of tables and vectors that may still be read: few are referenced twice

    def root(self) -> Table:
        return self.table(self.place(0))

    def table(self, at: int) -> Table:
        self.spend(2, at)
        return Table(self, at)

    def spend(self, size: int, at: int) -> None:
        """Count bytes that are read, because a damaged file may reference the same large part many times."""
        self._left -= size
        if self._left < 0:
            raise InvalidModel(f"the model is damaged: byte {at} references parts of the file too often")

    def place(self, at: int) -> int:
        """The target of the offset at `at`."""
        return at + self.number(at, "I")

    def number(self, at: int, kind: str) -> int:
        """An integer with this format letter of `struct`."""
        return int(struct.unpack("<" + kind, self.bytes(at, struct.calcsize("<" + kind)))[0])

    def bytes(self, at: int, size: int) -> bytes:
        if at < 0 or at + size > self.source.size:
            raise InvalidModel(f"the model is damaged or cut off: byte {at} points outside of the file")
        page = at // _PAGE
        if (at + size - 1) // _PAGE != page:
            return bytes(self.source.read(at, size))
        if page not in self._pages:
            self._pages[page] = bytes(self.source.read(page * _PAGE, min(_PAGE, self.source.size - page * _PAGE)))
        start = at - page * _PAGE
        return self._pages[page][start : start + size]

    def span(self, at: int, width: int) -> tuple[int, int]:
        """Offset of the first element and number of elements of the vector at `at`. width: bytes of an element."""
        count = self.number(at, "I")
        if at + 4 + count * width > self.source.size:
            raise InvalidModel(f"the model is damaged or cut off: the vector at byte {at} points outside of the file")
        return at + 4, count


class Table:
    """One table. Fields are identified by number. An absent field reads as 0, empty, or None."""

    __slots__ = ("_fields", "at", "buffer")

    def __init__(self, buffer: Buffer, at: int) -> None:
        self.buffer = buffer
        self.at = at
        vtable = at - buffer.number(at, "i")
        size = buffer.number(vtable, "H")
        if size < 4 or size % 2:
            raise InvalidModel(f"the model is damaged: the table at byte {at} has no vtable")
        self._fields = struct.unpack(f"<{size // 2 - 2}H", buffer.bytes(vtable + 4, size - 4))

    def number(self, field: int, kind: str = "i") -> int:
        at = self._at(field)
        return self.buffer.number(at, kind) if at else 0

    def real(self, field: int) -> float:
        """A float32."""
        at = self._at(field)
        return float(struct.unpack("<f", self.buffer.bytes(at, 4))[0]) if at else 0.0

    def raw(self, field: int) -> bytes:
        """A string as bytes."""
        at = self._at(field)
        return self._string(self.buffer.place(at)) if at else b""

    def text(self, field: int) -> str:
        """A name."""
        return self._decoded(self.raw(field))

    def table(self, field: int) -> Table | None:
        at = self._at(field)
        return self.buffer.table(self.buffer.place(at)) if at else None

    def span(self, field: int, width: int) -> tuple[int, int]:
        """Offset of the first element and number of elements of a vector."""
        at = self._at(field)
        return self.buffer.span(self.buffer.place(at), width) if at else (self.at, 0)

    def numbers(self, field: int, kind: str) -> tuple[int | float, ...]:
        width = struct.calcsize("<" + kind)
        at, count = self.span(field, width)
        self.buffer.spend(count * width, at)
        return struct.unpack(f"<{count}{kind}", self.buffer.bytes(at, count * width)) if count else ()

    def tables(self, field: int) -> list[Table]:
        return [self.buffer.table(place) for place in self._places(field)]

    def raws(self, field: int) -> list[bytes]:
        return [self._string(place) for place in self._places(field)]

    def texts(self, field: int) -> tuple[str, ...]:
        return tuple([self._decoded(data) for data in self.raws(field)])

    def _places(self, field: int) -> list[int]:
        at, count = self.span(field, 4)
        self.buffer.spend(4 * count, at)
        return [self.buffer.place(at + 4 * n) for n in range(count)]

    def _at(self, field: int) -> int:
        """Offset of a field; 0 if it is absent."""
        offset = self._fields[field] if field < len(self._fields) else 0
        return self.at + offset if offset else 0

    def _string(self, at: int) -> bytes:
        start, size = self.buffer.span(at, 1)
        self.buffer.spend(size, start)
        return self.buffer.bytes(start, size)

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise InvalidModel(f"a name is not UTF-8 in the table at byte {self.at}") from None
