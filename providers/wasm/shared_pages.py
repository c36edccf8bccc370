"""Pages of one linear memory that others have too, so that weights are in RAM once for all who run on them.

The pages move into a file without a name. Each memory maps it at the same addresses, copy on write: nobody sees what
another one writes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from typing import Any

from pyruntime.errors import OutOfMemory

PIECE = 64 << 20  # bytes that are there twice while they move

_READ_WRITE, _PRIVATE, _FIXED = 3, 2, 0x10  # of mmap(2), on Linux and macOS
_mmap: Any = None
if sys.platform in ("linux", "darwin") and sys.maxsize > 1 << 32:  # else memories move as they grow
    _mmap = ctypes.CDLL(None, use_errno=True).mmap
    _mmap.restype = ctypes.c_void_p
    _mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]


class SharedPages:
    """What memory, an array of bytes that begins with a page, has from `begin` to `end`, and never changes.

    Errors: OutOfMemory, also where the system cannot do this."""

    def __init__(self, memory: Any, begin: int, end: int) -> None:
        if _mmap is None:
            raise OutOfMemory("weights cannot be shared on this system")
        page = mmap.PAGESIZE
        self.begin, self.end = begin, end
        self.first = -(-begin // page) * page
        self.last = max(end // page * page, self.first)
        self._source = memory
        self._file = _unnamed_file()
        weakref.finalize(self, os.close, self._file)
        for at in range(self.first, self.last, PIECE):
            size = min(PIECE, self.last - at)
            try:
                os.pwrite(self._file, memory[at : at + size].data, at - self.first)
            except OSError as error:
                raise OutOfMemory(f"no memory for weights that runs share: {error}") from None
            self._map(memory, at, size)

    def appear_in(self, memory: Any) -> None:
        """Another memory, at least as long as `end`, has the same bytes at the same addresses."""
        if self.last > self.first:
            self._map(memory, self.first, self.last - self.first)
        for begin, end in ((self.begin, min(self.first, self.end)), (max(self.last, self.begin), self.end)):
            memory[begin:end] = self._source[begin:end]

    def _map(self, memory: Any, at: int, size: int) -> None:
        """In one step: who reads there meanwhile finds the same bytes."""
        place = memory.ctypes.data + at
        if _mmap(place, size, _READ_WRITE, _PRIVATE | _FIXED, self._file, at - self.first) != place:
            raise OutOfMemory(f"no memory for weights that runs share: {os.strerror(ctypes.get_errno())}")


def _unnamed_file() -> int:
    """Its descriptor. Where it can be, it lies in RAM alone."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pyruntime weights", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


__all__ = ["SharedPages"]
