"""Sources of bytes: memory, files, and files of external data.

Spec: https://github.com/onnx/onnx/blob/main/docs/ExternalData.md
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from pyruntime.errors import InvalidModel
from pyruntime.onnx.graph import Source

OpenExternal = Callable[[str], Source]
_LARGE = 1 << 20  # bytes
MEMORY = ":memory:"
"""Name of sources that the reader makes (decoded typed data, densified sparse tensors): they are in no file."""


def flat(data: bytes | bytearray | memoryview) -> bytes | memoryview:
    """The data as contiguous bytes; a copy only if they are not contiguous."""
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous else view.tobytes()


class MemorySource:
    """Bytes in memory. A bytearray or memoryview is not copied, and must not change while it is in use."""

    __slots__ = ("_data", "name", "size")

    def __init__(self, data: bytes | bytearray | memoryview, name: str = MEMORY) -> None:
        self._data = flat(data)
        self.name = name
        self.size = len(self._data)

    @property
    def whole(self) -> bytes | None:
        """All bytes; None if that needs a copy."""
        return self._data if isinstance(self._data, bytes) else None

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    def is_same(self, other: object) -> bool:
        """Whether both certainly have equal bytes. Mutable data may have changed, so that it never counts as equal."""
        if not isinstance(other, MemorySource) or not isinstance(getattr(other._data, "obj", other._data), bytes):
            return False
        return bool(self._data == other._data)


class FileSource:
    """A file, memory-mapped if possible, else opened for each read.

    A file that has changed is refused: weights may be read again later, and reading a mapping beyond a truncated file's
    end would kill the process."""

    __slots__ = ("_file", "_map", "_path", "name", "size", "state")

    def __init__(self, path: str | os.PathLike[str], name: str = "") -> None:
        self._path = os.fspath(path)
        self.name = name
        self._file = open(self._path, "rb", buffering=0)
        found = os.fstat(self._file.fileno())
        self.size = found.st_size
        self.state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        try:
            self._map: mmap.mmap | None = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # empty, too large for the address space, or not a plain file
            self._map = None
            self._file.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # no mapping
            self._file.close()

    def read(self, offset: int, size: int) -> bytes:
        if self._map is not None:
            self._check(self._file)
            data = self._map[offset : offset + size]
            first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
            used = offset + len(data) - first
            # for a weight: the caller copies it, and its pages are not needed any more
            if size >= _LARGE and used > 0 and hasattr(self._map, "madvise"):
                self._map.madvise(mmap.MADV_DONTNEED, first, used)
            return data
        try:
            with open(self._path, "rb") as file:
                self._check(file)
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise InvalidModel(f'"{self._path}" cannot be read: {error}') from error

    def _check(self, file: IO[bytes]) -> None:
        """Refuse a changed file, by its size and modification time; renaming or linking it is no change."""
        found = os.fstat(file.fileno())
        if (found.st_size, found.st_mtime_ns) != self.state[2:4]:
            raise InvalidModel(f'"{self._path}" has changed since it was opened', hint="create the session again")

    def is_same(self, other: object) -> bool:
        """Whether both are the same unchanged file."""
        return isinstance(other, FileSource) and self.state == other.state and bool(self.state[1])


def check_location(location: str) -> None:
    """Refuse a location outside of the model's folder. Symbolic links inside it are allowed."""
    parts = location.replace("\\", "/").split("/")
    if not location or ".." in parts or parts[0] == "" or ":" in parts[0] or "\0" in location:
        raise InvalidModel(f'external data location "{location}" is not a relative path inside the model\'s folder')


def beside(path: str | os.PathLike[str]) -> OpenExternal:
    """Opens external data files in the folder of the model at `path`."""
    # without pathlib, which a page would import for this line alone (docs/design/startup.md#rare-operators).
    folder = os.path.dirname(os.fspath(path))
    return lambda location: FileSource(os.path.join(folder, location), location)


class External:
    """The external data of one model. Each file is opened once."""

    __slots__ = ("_open", "_opened")

    def __init__(self, opener: OpenExternal | None) -> None:
        self._open = opener
        self._opened: dict[str, Source] = {}

    def get(self, location: str) -> Source:
        if location not in self._opened:
            check_location(location)
            if self._open is None:
                hint = "give the model by its path, or open_external, or name the file's folder in the session entry "
                hint += "session.model_external_initializers_file_folder_path"
                raise InvalidModel(f'the model needs the external data file "{location}"', hint=hint)
            try:
                self._opened[location] = self._open(location)
            except (OSError, LookupError) as error:
                hint = "it has the model's weights: keep it beside the model, under this name"
                raise InvalidModel(f'external data file "{location}" cannot be opened: {error}', hint=hint) from error
        return self._opened[location]
