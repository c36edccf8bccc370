"""Splits the data of a WebAssembly module into the data that its first half needs, and tables for the second half."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

Segments = list[tuple[int, bytes]]  # address in memory, bytes
GAP = 64  # so many zeros between segments take less, compressed, than another segment


def tables(text: str, binary: bytes, used: Collection[int]) -> list[range]:
    """Return the addresses that `text` (python_data.txt) lists for this binary, unless a function that belongs to them
    is used."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    if ["sha256", hashlib.sha256(binary).hexdigest()] not in lines:
        return []
    found = [[_range(word) for word in line] for line in lines if line[0] != "sha256"]
    return [addresses for addresses, functions in found if not set(used) & set(functions)]


def _range(text: str) -> range:
    """ "first-last" of functions, or "start-end" of addresses, in hexadecimal."""
    first, last = (int(word, 0) for word in text.split("-"))
    return range(first, last + (not text.startswith("0x")))


def parted(segments: Segments, moved: Iterable[range]) -> tuple[Segments, Segments]:
    """Return the segments outside of `moved` and those in it."""
    here, there = segments, Segments()
    for part in moved:
        pieces = [piece for segment in here for piece in _cut(*segment, part)]
        there += [(start, data) for start, data in pieces if start in part]
        here = [(start, data) for start, data in pieces if start not in part]
    return joined(here), joined(there)


def _cut(start: int, data: bytes, part: range) -> Segments:
    """Return the part of a segment within `part`."""
    low, high = (min(max(edge - start, 0), len(data)) for edge in (part.start, part.stop))
    pieces = ((0, low), (low, high), (high, len(data)))
    return [(start + a, data[a:b]) for a, b in pieces if a < b]


def joined(segments: Segments) -> Segments:
    """Join segments across few zeros, because linear memory starts as zeros."""
    found: list[tuple[int, bytearray]] = []
    for start, data in sorted(segments):
        gap = start - found[-1][0] - len(found[-1][1]) if found else -1
        if 0 <= gap <= GAP:
            found[-1][1].extend(bytes(gap) + data)
        else:
            found.append((start, bytearray(data)))
    return [(start, bytes(data)) for start, data in found]
