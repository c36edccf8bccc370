"""Pages that several linear memories share, so that weights are in RAM once.

The pages move into an unnamed file. Each memory maps it at the same addresses, copy on write, so that writes stay
private.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from copy import copy
from typing import Any

from pyruntime.errors import OutOfMemory

PIECE = 64 << 20  # bytes that move at a time and are in RAM twice meanwhile

_READ_WRITE, _PRIVATE, _FIXED = 3, 2, 0x10  # of mmap(2), on Linux and macOS
_mmap: Any = None
if sys.platform in ("linux", "darwin") and sys.maxsize > 1 << 32:  # else memories move as they grow
    _mmap = ctypes.CDLL(None, use_errno=True).mmap
    _mmap.restype = ctypes.c_void_p
    _mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]


class SharedPages:
    """Constant spans (begin, end) of a memory, an array of bytes that begins with a page. Runs write between the spans:
    pages that are only partly in a span are not shared.

    Errors: OutOfMemory, also if the system does not support this. The memory is then unchanged."""

    def __init__(self, memory: Any, spans: Sequence[tuple[int, int]]) -> None:
        if _mmap is None:
            raise OutOfMemory("weights cannot be shared on this system")
        self.spans = spans
        self._source = memory
        self._file = _unnamed_file()
        weakref.finalize(self, os.close, self._file)
        for first, last in map(_whole_pages, spans):
            for at in range(first, last, PIECE):
                size = min(PIECE, last - at)
                _write(self._file, memory[at : at + size], at)
                self._map(memory, at, size)

    def map_into(self, memory: Any) -> None:
        """Map the pages into another memory, at the same addresses. It must reach the end of the last span."""
        for begin, end in self.spans:
            first, last = _whole_pages((begin, end))
            if last > first:
                self._map(memory, first, last - first)
            for b, e in ((begin, min(first, end)), (max(last, begin), end)):
                memory[b:e] = self._source[b:e]

    def owned_by(self, memory: Any) -> SharedPages:
        """Return the same pages for a memory that has mapped them and may outlive this one."""
        other = copy(self)
        other._source, other._file = memory, os.dup(self._file)
        weakref.finalize(other, os.close, other._file)
        return other

    def _map(self, memory: Any, at: int, size: int) -> None:
        """Replace pages atomically: concurrent readers find the same bytes."""
        place = memory.ctypes.data + at
        if _mmap(place, size, _READ_WRITE, _PRIVATE | _FIXED, self._file, at) != place:
            raise OutOfMemory(f"no memory for weights that runs share: {os.strerror(ctypes.get_errno())}")


def _whole_pages(span: tuple[int, int]) -> tuple[int, int]:
    """Return begin and end of the whole pages in a span; both are equal if it has none."""
    page = mmap.PAGESIZE
    first = -(-span[0] // page) * page
    return first, max(span[1] // page * page, first)


def _write(file: int, data: Any, at: int) -> None:
    """Write all data, in several calls if necessary. Errors: OutOfMemory."""
    done = 0
    try:
        while done < len(data):
            written = os.pwrite(file, data[done:].data, at + done)
            if not written:
                raise OSError("nothing more can be written")
            done += written
    except OSError as error:
        raise OutOfMemory(f"no memory for weights that runs share: {error}") from None


def _unnamed_file() -> int:
    """Return the descriptor of a new file, in RAM if the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pyruntime weights", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
