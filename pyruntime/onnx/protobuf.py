"""Reads the Protobuf wire format in windows: finds fields, and copies only those that callers ask for.

A message is a span [start, end) of absolute offsets in a `Source`. Small messages are scanned whole inside a window;
large ones are streamed, so that skipping a weight of a gigabyte is one addition. After a jump the window is 4 KiB (one
tensor header); it doubles while reads are consecutive.

Spec: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import builtins
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from pyruntime.errors import unreadable
from pyruntime.onnx.graph import Source

Field = tuple[int, int, int]
"""(tag, a, b): tag is number << 3 | wire type. Varint: a is the value (unsigned), b the offset after it. Others: the
payload is [a, b)."""
Fields = dict[int, list[Field]]
"""Field number -> its occurrences."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
VARINTS, FIXED32S = 3, 4  # our own wire types: a span [a, b) of many elements of one field, each after its tag
MAX_DEPTH = 100  # nested messages, as protobuf's own default

_WHOLE = 1 << 14  # messages up to this size are scanned in one go
_FIRST, _LARGEST = 1 << 12, 1 << 20  # window sizes
_HEADER = 20  # a tag and a length, each at most 10 bytes
_LARGEST_TAG = (1 << 32) - 1
# 256 elements, each after the same tag of one byte. Longer runs are matched in pieces of this size: possessive
# repetition is wrong in Python 3.11.2 (it ends inside an element), and greedy repetition keeps a state for each
# element.
_MANY = {
    VARINT: re.compile(rb"([\x08-\x78])[\x80-\xff]{0,9}[\0-\x7f](?:\1[\x80-\xff]{0,9}[\0-\x7f]){255}"),
    FIXED32: re.compile(rb"([\x0d-\x7d]).{4}(?:\1.{4}){255}", re.DOTALL),
}
_BEHIND_TAGS = re.compile(rb"[\0-\x7f]([\x80-\xff]*[\0-\x7f])")
_VARINT = re.compile(rb"[\x80-\xff]*[\0-\x7f]")
_PIECE = 1 << 16  # bytes of varints that are decoded at once
_RUNS = {VARINT: VARINTS, FIXED32: FIXED32S}
_ELEMENTS = {run: element for element, run in _RUNS.items()}


def tags(varint: str = "", length: str = "", fixed32: str = "", fixed64: str = "") -> frozenset[int]:
    """The tags of a message type, from the field numbers (separated by spaces) of each wire type."""
    kinds = ((VARINT, varint), (LENGTH, length), (FIXED32, fixed32), (FIXED64, fixed64))
    return frozenset(int(number) << 3 | kind for kind, numbers in kinds for number in numbers.split())


def signed(value: int) -> int:
    """The int64 that a varint encodes."""
    return value - (1 << 64) if value >> 63 else value


def check_depth(depth: int, at: int) -> None:
    if depth > MAX_DEPTH:
        raise unreadable(f"messages are nested deeper than {MAX_DEPTH} at byte {at}")


def _varint(buf: bytes, pos: int, base: int) -> tuple[int, int]:
    value = shift = 0
    start = pos
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise unreadable(f"a varint is longer than 10 bytes at byte {base + start}")
    if value >> 64:
        raise unreadable(f"a varint is larger than 64 bits at byte {base + start}")
    return value, pos


class Wire:
    """Reads messages of one `Source`."""

    __slots__ = ("_base", "_buf", "_end", "_step", "source")

    def __init__(self, source: Source, whole: bytes | None = None) -> None:
        """whole: all bytes of the source if they are in memory, else None."""
        self.source = source
        self._base = self._end = 0
        self._buf = b""
        self._step = _LARGEST if source.size <= _LARGEST else _FIRST
        if whole is not None:
            self._buf, self._end = whole, len(whole)
        else:
            self._need(0, min(source.size, 1))

    def fields(self, start: int, end: int) -> Iterable[Field]:
        """The fields of the message [start, end), in order."""
        if end - start <= _WHOLE:
            if start < self._base or self._end < end:
                self._need(start, end)
            return self._scan(start, end, end)[0]
        return self._stream(start, end)

    def gather(self, start: int, end: int, known: frozenset[int], runs: bool = False) -> Fields:
        """The fields of a message by number. Fields with unknown numbers are skipped. known: the message's tags; runs:
        return many elements of a field as one entry with the wire type VARINTS or FIXED32S."""
        found: Fields = {}
        for field in self._stream(start, end, runs) if runs else self.fields(start, end):
            tag = field[0]
            if runs and tag & 7 in _ELEMENTS:
                tag = tag & ~7 | _ELEMENTS[tag & 7]
            if tag not in known:
                self.skip(tag, known, field[2])
            elif (number := tag >> 3) in found:
                found[number].append(field)
            else:
                found[number] = [field]
        return found

    def skip(self, tag: int, known: frozenset[int], at: int) -> None:
        """Skip an unknown field, which a later version of the format may have. Errors: InvalidModel for a known field
        with another wire type."""
        if any(tag >> 3 == other >> 3 for other in known):
            raise unreadable(f"field {tag >> 3} has wire type {tag & 7}, which it cannot have, before byte {at}")

    def bytes(self, start: int, end: int) -> bytes:
        base = self._base
        if base <= start and end <= self._end:
            return self._buf[start - base : end - base]
        return self._read(start, end - start)

    def text(self, start: int, end: int) -> str:
        try:
            return self.bytes(start, end).decode()
        except UnicodeDecodeError:
            raise unreadable(f"a name is not UTF-8 at byte {start}") from None

    def parts(self, found: list[Field]) -> list[builtins.bytes]:
        """The payloads of a field's consecutive occurrences."""
        if not found:
            return []
        start = found[0][1]
        data = self.bytes(start, found[-1][2])
        return [data[a - start : b - start] for _, a, b in found]

    def floats(self, found: Iterable[Field], kind: str = "f") -> list[float]:
        """The values of a float (f) or double (d) field, packed or not."""
        data = self.join(found, struct.calcsize(kind))
        return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))

    def join(self, found: Iterable[Field], width: int) -> builtins.bytes:
        """The little-endian elements of a fixed-width field, packed or not."""
        for tag, a, b in found:
            if (b - a) % (width + (tag & 7 == FIXED32S)):
                raise unreadable(f"packed field {tag >> 3} is not a multiple of {width} bytes at byte {a}")
        return b"".join([self._behind_tags(a, b) if t & 7 == FIXED32S else self.bytes(a, b) for t, a, b in found])

    def _behind_tags(self, start: int, end: int) -> bytearray:
        data = self.bytes(start, end)
        out = bytearray(len(data) // 5 * 4)
        for n in range(4):
            out[n::4] = data[n + 1 :: 5]
        return out

    def ints(self, found: Iterable[Field]) -> list[int]:
        """The values of a varint field, packed or not, unsigned."""
        return list(chain.from_iterable(self.int_runs(found)))

    def int_runs(self, found: Iterable[Field]) -> Iterator[Sequence[int]]:
        """The values of `ints` in groups of about ten thousand, because as Python objects they take many times their
        bytes."""
        for tag, a, b in found:
            if tag & 7 == VARINT:
                yield (a,)
                continue
            data = self.bytes(a, b)
            if tag & 7 == VARINTS and data[1::2].isascii() and data[::2] == data[:1] * (len(data) // 2):
                yield data[1::2]
            elif tag & 7 == VARINTS:
                yield _values(_BEHIND_TAGS.findall(data), data, a, {})
            elif data.isascii():  # every varint is one byte
                yield data
            elif data[-1] > 127:
                raise unreadable(f"a varint is cut off at byte {b}")
            else:
                known: dict[builtins.bytes, int] = {}
                for at, end in _pieces(data):
                    yield _values(_VARINT.findall(data, at, end), data, a, known)

    def _read(self, start: int, size: int) -> builtins.bytes:
        data = bytes(self.source.read(start, size))
        if len(data) != size:
            raise unreadable(f"the file is cut off at byte {start + len(data)}, {size - len(data)} bytes early")
        return data

    def _need(self, start: int, end: int) -> None:
        """Load [start, end) into the window."""
        if self._base <= start and end <= self._end:
            return
        follows = self._base <= start <= self._end
        self._step = min(2 * self._step, _LARGEST) if follows else _FIRST
        size = min(max(end - start, self._step), self.source.size - start)
        if size < end - start:
            raise unreadable(f"the file is cut off at byte {self.source.size}, in a message that ends at byte {end}")
        some = getattr(self.source, "some", None)  # an incomplete source returns the bytes that it has, if they suffice
        self._buf = some(start, end - start, size) if some else self._read(start, size)
        self._base, self._end = start, start + len(self._buf)

    def _stream(self, start: int, end: int, runs: bool = False) -> Iterator[Field]:
        while start < end:
            self._need(start, min(start + _HEADER, end))
            if runs and (run := self._run(start, min(self._end, end))):
                start = run[2]
                yield run
                continue
            limit = end if self._end >= end else self._end - _HEADER + 1
            found, start = self._scan(start, end, min(limit, start + _FIRST) if runs else limit)
            yield from found

    def _run(self, start: int, end: int) -> Field | None:
        """Many elements of one field, starting at the current position."""
        buf, at, stop = self._buf, start - self._base, end - self._base
        tag = buf[at]
        if tag & 7 not in _MANY:
            return None
        found = at
        while found < stop and buf[found] == tag and (many := _MANY[tag & 7].match(buf, found, stop)):
            found = many.end()
        return (tag & ~7 | _RUNS[tag & 7], start, self._base + found) if found > at else None

    def _scan(self, start: int, end: int, limit: int) -> tuple[list[Field], int]:
        """Fields that start before `limit`, and the start of the next one."""
        buf, base, found = self._buf, self._base, list[Field]()
        pos, stop, limit = start - base, end - base, limit - base
        at = pos
        try:
            while pos < limit:
                at = pos
                tag = buf[pos]
                pos += 1
                if not 8 <= tag < 128:
                    tag, pos = _varint(buf, at, base)
                wire = tag & 7
                if wire == LENGTH or wire == VARINT:
                    value = buf[pos]
                    pos += 1
                    if value > 127:
                        value, pos = _varint(buf, pos - 1, base)
                    if wire == LENGTH:
                        first = base + pos
                        pos += value
                        found.append((tag, first, base + pos))
                    else:
                        found.append((tag, value, base + pos))
                elif wire == FIXED32 or wire == FIXED64:
                    width = 4 if wire == FIXED32 else 8
                    found.append((tag, base + pos, base + pos + width))
                    pos += width
                else:
                    raise unreadable(_fault(tag, base + at, end))
                if pos > stop or tag < 8 or tag > _LARGEST_TAG:
                    raise unreadable(_fault(tag, base + at, end))
        except IndexError:
            raise unreadable(f"the file is cut off inside the field at byte {base + at}") from None
        return found, base + pos


def _pieces(data: bytes) -> Iterator[tuple[int, int]]:
    """Pieces of packed varints that end between varints."""
    end = 0
    while end < len(data):
        at, end = end, min(end + _PIECE, len(data))
        while data[end - 1] > 127:
            end += 1
        yield at, end


def _values(parts: list[bytes], data: bytes, start: int, known: dict[bytes, int]) -> list[int]:
    """The values of varints. start: offset of the data, for errors; known: a cache, because trees and weights repeat
    values."""
    if len(known) > _PIECE:
        known.clear()
    for part in {*parts}.difference(known):
        # the offset matters only for errors: a varint of more than 64 bits raises at its tenth byte
        known[part] = _varint(part, 0, start + (data.index(part) if part[9:] > b"\1" else 0))[0]
    return [known[part] for part in parts]


def _fault(tag: int, at: int, end: int) -> str:
    wire = tag & 7
    if wire in (3, 4, 6, 7):
        return f"the model is damaged: byte {at} begins a field of wire type {wire}, which ONNX does not have"
    if tag < 8 or tag > _LARGEST_TAG:
        return f"the model is damaged: byte {at} begins a field of number {tag >> 3}, which ONNX does not have"
    return f"the model is damaged or cut off: field {tag >> 3} at byte {at} is longer than its message, to byte {end}"
