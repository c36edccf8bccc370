"""Files that JavaScript reads for the engine in a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.errors import InvalidModel

Read = Callable[..., Any]  # (offset, size, name="") -> a buffer; name: of an external file, "" for the model


class Missing(BaseException):
    """The page has not fetched these bytes of a file yet: {"name", "offset", "size"}. Not an error of the model."""


class PageFile:
    """A file that JavaScript reads."""

    def __init__(self, read: Read, size: int, name: str = "") -> None:
        self.name = name
        self.size = size
        self._read = read

    def read(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size, self.name)
        return data.to_bytes() if hasattr(data, "to_bytes") else bytes(data)


class PartialFile(PageFile):
    """A file of which JavaScript has fetched some parts."""

    def read(self, offset: int, size: int) -> bytes:
        return self.some(offset, size, size)

    def some(self, offset: int, least: int, most: int) -> bytes:
        """Between `least` and `most` bytes. Errors: Missing"""
        data = self._read(offset, least, self.name, most)
        if data is None:
            raise Missing({"name": self.name, "offset": offset, "size": least})
        return bytes(data.to_bytes() if hasattr(data, "to_bytes") else data)


def path_of(location: str, external: Mapping[str, int]) -> str | None:
    """The page's path for the file at this location: the location itself, or the only path with the same ending or the
    same file name (the page may give addresses or bare names)."""
    plain = location.replace("\\", "/").removeprefix("./")
    for exact in (location, plain):
        if exact in external:
            return exact
    name = plain.rpartition("/")[2]
    ends = [path for path in external if path.endswith(f"/{plain}")]
    found = ends or [path for path in external if path.rpartition("/")[2] == name]
    return found[0] if len(found) == 1 else None


def opener(read: Read, external: Mapping[str, int], file_class: type[PageFile] = PageFile) -> Callable[[str], PageFile]:
    """Opens the files beside a model. external: their sizes by path"""
    locations: dict[str, str] = {}  # by path

    def open_external(location: str) -> PageFile:
        path = path_of(location, external)
        if path is None and file_class is PartialFile:
            raise Missing({"name": location, "offset": 0, "size": 0})
        if path is None or locations.setdefault(path, location) != location:
            raise InvalidModel(f'external data "{location}" was not given', hint="list it in externalData")
        return file_class(read, external[path], path)

    return open_external
