"""Weights in RAM once for all processes of a user on this machine (docs/design/sessions.md#processes).

A session that shares its weights leaves a note in the cache directory: the number of its process, and the descriptors
of the files in RAM that hold its pages (providers/wasm/shared_pages.py). Processes with the same Program and the same
files of weights open them by `/proc` (proc(5), "/proc/pid/fd/"). Linux has both; elsewhere nothing is shared.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyruntime.native.execution.executor import Executor
from pyruntime.native.sessions.program_cache import engine_files
from pyruntime.onnx.graph import Source
from pyruntime.onnx.sources import FileSource
from pyruntime.program.format import Program
from pyruntime.providers.wasm.shared_pages import PREFIX

PATIENCE = 60.0  # seconds to wait for a process that loads the same weights
_POLL = 0.02  # seconds


def is_supported() -> bool:
    return hasattr(os, "memfd_create") and os.path.exists("/proc/self/ns/pid")


def folder() -> Path:
    from pyruntime.providers.wasm.wasmtime_host import cache_directory

    return cache_directory() / "weights"


def name_of(program: Program, features: tuple[Any, ...], sources: Mapping[str, Source]) -> str | None:
    """The name of the notes for these weights, from all that decides addresses and numbers. None if they cannot be
    shared: the init block does more than call kernels, or the weights are in no file, so that each process has its own
    copy anyway."""
    header = program.header
    named = {c["source"]: sources[c["source"]] for c in header["constants"] if "source" in c}
    if any(step["op"] != "wasm" for step in header["blocks"][0]["steps"]):
        return None
    states = [x.state for x in named.values() if isinstance(x, FileSource)]
    if len(states) < len(named) or not states:
        return None
    text = json.dumps([engine_files(), header, features, sorted(zip(named, states, strict=True))])
    return hashlib.sha256(text.encode() + program.blob).hexdigest()


def has_any() -> bool:
    """Whether any process shares weights: looking at a folder costs less than a name."""
    return next(folder().glob("*.*.*.*"), None) is not None


def find(name: str) -> list[int]:
    """Descriptors of the files with the pages of this name, of any process; [] if there are none. Notes of processes
    that have ended are removed, whatever their name."""
    for path in sorted(folder().glob(f"*.{_system()}.*.*")):
        of, _, process, _ = path.name.split(".")
        with suppress(OSError, ValueError):
            if not os.path.exists(f"/proc/{process}"):
                path.unlink(missing_ok=True)
            elif of == name:
                return _opened(process, json.loads(path.read_text()))
    return []


def _opened(process: str, files: Sequence[tuple[int, str]]) -> list[int]:
    """Errors: OSError if one of the files cannot be opened, or is another one by now"""
    found: list[int] = []
    try:
        for number, link in files:
            found.append(os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC))
            if not str(link).startswith(PREFIX) or _link(found[-1]) != link:
                raise OSError("the process has closed this file")
    except OSError:
        for file in found:
            os.close(file)
        raise
    return found


def publish(name: str, executor: Executor) -> None:
    """Leave a note for other processes, as long as this one has the pages. Errors: OutOfMemory if the system cannot
    share pages."""
    pages = executor.share_weights()
    path = folder() / f"{name}.{_system()}.{os.getpid()}.{pages[0].file}"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(json.dumps([(page.file, _link(page.file)) for page in pages]))
        weakref.finalize(pages[0], _withdraw, path, os.getpid())


def _withdraw(path: Path, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        path.unlink(missing_ok=True)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """While the block runs, other processes that load the same weights wait, so that they find them. A process that
    waits longer than PATIENCE loads them itself."""
    import fcntl

    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(folder() / f"{name[:2]}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # no directory to write to
        yield
        return
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file, too
        os.close(file)


def _link(file: int) -> str:
    return os.readlink(f"/proc/self/fd/{file}")


def _system() -> str:
    """Where process numbers have the same meaning."""
    return str(os.stat("/proc/self/ns/pid").st_ino)
