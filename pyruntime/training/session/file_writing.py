"""Files that training sessions write: replaced in one step, so that a program that is killed leaves the old one."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pyruntime.onnx.graph import Source
from pyruntime.onnx.write import Piece

_numbers = itertools.count(1)  # of temporary files, because threads may write to one path at once


def assembled(plan: Sequence[Piece], source: Source, weight: Callable[[str, str], bytes]) -> bytes:
    """The bytes of a file, from pieces of another one and weights. weight: the bytes of one by name and type"""
    parts = [
        weight(piece.weight, piece.dtype) if piece.weight else piece.data or source.read(piece.start, piece.size)
        for piece in plan
    ]
    return b"".join(parts)


def write_file(target: Path, data: bytes) -> None:
    """Replace a file in one step. Threads and processes may write the same one: the last that ends wins."""
    start = f".{target.name}."
    for part in target.parent.glob(f"{glob.escape(start)}*.part"):
        process = part.name.removeprefix(start).removesuffix(".part").partition("-")[0]
        if process.isdecimal() and not _is_running(int(process)):
            part.unlink(missing_ok=True)
    temporary = target.with_name(f"{start}{os.getpid()}-{next(_numbers)}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Whether there is such a process. On Windows, where a question would end it, all seem to be."""
    if os.name != "posix" or process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
