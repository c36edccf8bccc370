"""Programs in the user's cache directory: a model that was compiled once is not compiled again
(docs/design/storage.md#native-program-cache)."""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from pyruntime.compiler.compile import Compiled
from pyruntime.compiler.user_passes import is_extended
from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.frontend import registry
from pyruntime.native.execution.host_calls import HostCalls, StoredCalls
from pyruntime.onnx.describe import describe, described_type
from pyruntime.onnx.graph import Graph, Value, Weight
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.options import SessionOptions
from pyruntime.placement.provider_list import ENGINES
from pyruntime.placement.target import Target
from pyruntime.program.format import Program

OFF = "session.disable_program_cache"  # the entry of the configuration that pages know, too
OFF_FOR_ALL = "PYRUNTIME_DISABLE_PROGRAM_CACHE"  # an environment variable
WORTH = 0.05  # seconds of compiling
MOST = 64  # Programs, the oldest out
HASHED = 32 << 20  # bytes of weights in memory, a millisecond each MB: more would take longer than to compile
_DIGEST = 32  # bytes
_IMPORTED = time.time_ns()  # files that changed later are not those that run: the package was updated meanwhile


class Ready(NamedTuple):
    """A Program, what runs its host steps, the graph's outputs with their shapes, and remarks on the model."""

    program: Program
    host_call: Any
    outputs: tuple[Value, ...]
    remarks: tuple[str, ...]


def ready(options: SessionOptions, graph: Graph, target: Target, asked: Any, compile_: Callable[[], Compiled]) -> Ready:
    """What was kept for this graph and target, or what `compile_` gives, which is kept if that took long.

    asked: all else that decides what the Program is"""
    kept = str(options.extra.get(OFF, "0")) != "1" and not os.environ.get(OFF_FOR_ALL)
    name = _name(graph, target, asked) if kept else None
    found = name and _read(name)
    if found:
        return found
    start = time.perf_counter()
    compiled = compile_()
    took = time.perf_counter() - start
    calls = HostCalls(compiled.host_kernels, compiled.symbols)
    made = Ready(compiled.program, calls, tuple(compiled.outputs), tuple(compiled.remarks))
    if name and took >= WORTH:
        with suppress(InvalidInput):  # a host step that is Python
            _write(name, made)
    return made


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Names(pickle.Pickler):
    """Graphs as bytes, which are only compared: weights by the state of their file, or by what memory holds."""

    def reducer_override(self, x: Any) -> Any:
        if isinstance(x, FileSource):
            return str, (repr((x.name, x.state)),)
        if isinstance(x, MemorySource):
            if x.size > HASHED:
                raise pickle.PicklingError("too many bytes")
            return str, (x.name + hashlib.sha256(x.read(0, x.size)).hexdigest(),)
        if isinstance(x, Weight) and not isinstance(x.source, (FileSource, MemorySource, NoneType)):
            raise pickle.PicklingError("a source of a program's own may give other bytes another time")
        return NotImplemented


def _name(graph: Graph, target: Target, asked: Any) -> str | None:
    """Of the Program in the cache; None where something decides that has no name: operators, passes, providers or
    sources of a program's own, an engine that is not the one in the files any more."""
    others = {provider.name for provider in target.providers} - set(ENGINES)
    engine = _engine()
    changed = max((state[-1] for state in engine), default=math.inf)  # in an archive they have no times
    if others or registry.is_extended() or is_extended() or changed > _IMPORTED:
        return None
    written = io.BytesIO()
    try:
        _Names(written).dump((engine, graph, target, asked))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return hashlib.sha256(written.getbuffer()).hexdigest()


@cache
def _engine() -> list[tuple[str, int, int, int]]:
    """The files of this package as they are now: names, sizes, times of what is in them and of any change."""
    found = []
    for folder, folders, files in os.walk(Path(__file__).parents[2], followlinks=True):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for path in (os.path.join(folder, file) for file in sorted(files)):
            state = os.stat(path)
            found.append((path, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    return found


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _path(name: str) -> Path:
    from pyruntime.providers.wasm.wasmtime_host import cache_directory

    return cache_directory() / f"{name}.pyrt"


def _seal(name: str, data: bytes) -> bytes:
    """Of these bytes under this name, so that what is damaged, or another's, counts as absent
    (docs/design/storage.md#seals)."""
    return hashlib.sha256(name.encode() + hashlib.sha256(data).digest()).digest()


def _read(name: str) -> Ready | None:
    path = _path(name)
    try:
        sealed = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    data = sealed[_DIGEST:]
    if sealed[:_DIGEST] != _seal(name, data):
        return None
    try:
        program = Program.from_bytes(data, trusted=True)
    except InvalidModel:  # of another format
        return None
    kept = program.header.pop("kept")
    outputs = tuple(Value(d["name"], described_type(d)) for d in kept["outputs"])
    return Ready(program, StoredCalls(kept["host"]), outputs, tuple(kept["remarks"]))


def _write(name: str, made: Ready) -> None:
    """Errors: InvalidInput for a step that no file can hold."""
    from pyruntime.providers.wasm.wasmtime_host import write_in_one_step

    outputs = [{"name": v.name, **describe(v.type)} for v in made.outputs]
    kept: Mapping[str, Any] = {"host": made.host_call.to_json(), "outputs": outputs, "remarks": made.remarks}
    data = Program({**made.program.header, "kept": kept}, made.program.blob).to_bytes()
    path = _path(name)
    write_in_one_step(path, _seal(name, data) + data)
    with suppress(OSError):
        newest = sorted(path.parent.glob("*.pyrt"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for file in newest[MOST:]:
            file.unlink(missing_ok=True)


__all__ = ["OFF", "OFF_FOR_ALL", "Ready", "ready"]
