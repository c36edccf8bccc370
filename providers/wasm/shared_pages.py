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
from contextlib import suppress
from typing import Any

from pyruntime.errors import OutOfMemory

NAME = "pyruntime weights"
PREFIX = f"/memfd:{NAME} "  # of the links in /proc to files in RAM
PIECE = 64 << 20  # bytes that move at a time and are in RAM twice meanwhile

_READ_WRITE, _PRIVATE, _FIXED = 3, 2, 0x10  # of mmap(2), on Linux and macOS
_mmap: Any = None
if sys.platform in ("linux", "darwin") and sys.maxsize > 1 << 32:  # else memories move as they grow
    _mmap = ctypes.CDLL(None, use_errno=True).mmap
    _mmap.restype = ctypes.c_void_p
    _mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]


class SharedPages:
    """Constant spans (begin, end) of a memory, an array of bytes that begins with a page. Runs write between the spans:
    pages that are only partly in a span are copied, not shared.

    file: the descriptor of a file with the bytes of the spans, each at its address in the memory, which `SharedPages`
    closes"""

    def __init__(self, file: int, spans: Sequence[tuple[int, int]]) -> None:
        self.file, self.spans = file, spans
        weakref.finalize(self, os.close, file)

    @classmethod
    def of_memory(cls, memory: Any, spans: Sequence[tuple[int, int]]) -> SharedPages:
        """Errors: OutOfMemory, also if the system does not support this. The memory is then unchanged."""
        if _mmap is None:
            raise OutOfMemory("weights cannot be shared on this system")
        made = cls(_unnamed_file(), spans)
        for begin, end in spans:
            first, last = _whole_pages((begin, end))
            made._write(memory[begin:first], begin)
            for at in range(first, last, PIECE):
                size = min(PIECE, last - at)
                made._write(memory[at : at + size], at)
                made._map(memory, at, size)
            made._write(memory[last:end], last)
        _seal(made.file)
        return made

    def map_into(self, memory: Any) -> None:
        """Map the pages into another memory, at the same addresses. It must reach the end of the last span. Errors:
        OutOfMemory"""
        for begin, end in self.spans:
            first, last = _whole_pages((begin, end))
            if last > first:
                self._map(memory, first, last - first)
            for b, e in ((begin, first), (last, end)):
                memory[b:e] = memoryview(os.pread(self.file, e - b, b))

    def _map(self, memory: Any, at: int, size: int) -> None:
        """Replace pages atomically: concurrent readers find the same bytes."""
        place = memory.ctypes.data + at
        if _mmap(place, size, _READ_WRITE, _PRIVATE | _FIXED, self.file, at) != place:
            raise OutOfMemory(f"no memory for weights that runs share: {os.strerror(ctypes.get_errno())}")

    def _write(self, data: Any, at: int) -> None:
        """Write all data, in several calls if necessary. Errors: OutOfMemory."""
        done = 0
        try:
            while done < len(data):
                written = os.pwrite(self.file, data[done:].data, at + done)
                if not written:
                    raise OSError("nothing more can be written")
                done += written
        except OSError as error:
            raise OutOfMemory(f"no memory for weights that runs share: {error}") from None


def _whole_pages(span: tuple[int, int]) -> tuple[int, int]:
    """Return begin and end of the whole pages in a span; both are its end if it has none."""
    begin, end = span
    first, last = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    return (first, last) if first < last else (end, end)


def _unnamed_file() -> int:
    """Return the descriptor of a new file, in RAM if the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"{NAME} {os.urandom(16).hex()}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _seal(file: int) -> None:
    """Let nobody change the file, which other processes may open."""
    with suppress(ImportError, AttributeError, OSError):  # not on this system, or not a file in RAM
        import fcntl

        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
