"""A cache of compiled Programs of this process alone, and damage to its files."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from pyruntime.native.sessions import program_cache as programs


@cache
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="pyruntime-sequences-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@contextmanager
def program_cache() -> Iterator[None]:
    """In which Programs are stored, however fast they compile."""
    kept = os.environ.pop(programs.OFF_FOR_ALL, None)
    try:
        with patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder())}), patch.object(programs, "WORTH", 0.0):
            yield
    finally:
        if kept is not None:
            os.environ[programs.OFF_FOR_ALL] = kept


def damage(how: str) -> None:
    """Change all files of the cache. how: "cut", "other bytes" or "deleted" """
    for path in folder().rglob("*.*"):
        if how == "deleted":
            path.unlink()
        else:
            data = path.read_bytes()
            half = len(data) // 2
            path.write_bytes(data[:half] + (b"" if how == "cut" else bytes(255 - x for x in data[half:])))
