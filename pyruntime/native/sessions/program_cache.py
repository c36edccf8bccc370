"""Caches compiled Programs on disk (docs/design/storage.md#native-program-cache)."""

from __future__ import annotations

import hashlib
import io
import json
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
from pyruntime.exports import host_steps
from pyruntime.frontend import registry
from pyruntime.native.execution.host_calls import HostCalls, StoredCalls
from pyruntime.onnx.describe import describe, described_type
from pyruntime.onnx.graph import Graph, Value, Weight
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.options import SessionOptions, program_options
from pyruntime.placement.target import Target
from pyruntime.program.format import Program
from pyruntime.providers import ENGINES

OFF = "session.disable_program_cache"  # a config entry, which browsers have, too
OFF_FOR_ALL = "PYRUNTIME_DISABLE_PROGRAM_CACHE"  # an environment variable
WORTH = 0.05  # seconds: Programs that compile faster are not stored
MOST = 64  # Programs; the least recently used are deleted
HASHED = 32 << 20  # bytes of weights in memory: hashing takes 1 ms/MB, so more would take longer than to compile
_DIGEST = 32  # bytes
_IMPORTED = time.time_ns()  # if engine files change later, the package was updated: they are not the code that runs


class Ready(NamedTuple):
    """host_call: runs the host steps; outputs: of the graph, with shapes; remarks: on the model."""

    program: Program
    host_call: Any
    outputs: tuple[Value, ...]
    remarks: tuple[str, ...]


def ready(options: SessionOptions, graph: Graph, target: Target, others: Any, work: Callable[[], Compiled]) -> Ready:
    """Return the Program from the cache, or else from `work`, and store it if compiling took long.

    others: all values that the Program depends on besides graph and target"""
    name = _key(graph, target, others) if _is_on(options) else None
    cached = name and _read(name)
    if cached:
        return cached
    start = time.perf_counter()
    compiled = work()
    seconds = time.perf_counter() - start
    calls = HostCalls(compiled.host_kernels, compiled.symbols)
    made = Ready(compiled.program, calls, tuple(compiled.outputs), tuple(compiled.remarks))
    if name and seconds >= WORTH:
        with suppress(InvalidInput):  # a host step runs in Python
            _write(name, made)
    return made


def _is_on(options: SessionOptions) -> bool:
    return str(options.extra.get(OFF, "0")) != "1" and not os.environ.get(OFF_FOR_ALL)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _KeyPickler(pickle.Pickler):
    """Graphs as bytes to hash: weights by the state of their file, or by a digest if they are in memory."""

    def reducer_override(self, x: Any) -> Any:
        if isinstance(x, FileSource):
            return str, (repr((x.name, x.state)),)
        if isinstance(x, MemorySource):
            if x.size > HASHED:
                raise pickle.PicklingError("too many bytes")
            return str, (x.name + hashlib.sha256(x.read(0, x.size)).hexdigest(),)
        if isinstance(x, Weight) and not isinstance(x.source, (FileSource, MemorySource, NoneType)):
            raise pickle.PicklingError("a source of another class may return other bytes next time")
        return NotImplemented


def _key(graph: Graph, target: Target | None, others: Any) -> str | None:
    """The cache key; None if compilation depends on something that cannot be part of a key: operators, passes,
    providers or sources that the user registered, or engine files that have changed since they were imported."""
    registered = {provider.name for provider in target.providers} - set(ENGINES) if target else set()
    engine = engine_files()
    changed = max((state[-1] for state in engine), default=math.inf)  # files in an archive have no times
    if registered or registry.is_extended() or is_extended() or changed > _IMPORTED:
        return None
    written = io.BytesIO()
    try:
        _KeyPickler(written).dump((engine, graph, target, others))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return hashlib.sha256(written.getbuffer()).hexdigest()


@cache
def engine_files() -> list[tuple[str, int, int, int]]:
    """The files of this package: name, size, times of the last modification and of the last change of metadata."""
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
    """A digest of bytes and name: files with another seal count as absent (docs/design/storage.md#seals)."""
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
        program = Program.from_bytes(data)
    except InvalidModel:  # another format version
        return None
    cached = program.header.pop("cached")
    outputs = tuple(Value(d["name"], described_type(d)) for d in cached["outputs"])
    return Ready(program, StoredCalls(cached["host"]), outputs, tuple(cached["remarks"]))


def _write(name: str, made: Ready) -> None:
    """Errors: InvalidInput if a host step runs in Python, which a file cannot hold."""
    from pyruntime.providers.wasm.wasmtime_host import write_in_one_step

    outputs = [{"name": v.name, **describe(v.type)} for v in made.outputs]
    host = host_steps(made.host_call.kernels)
    cached: Mapping[str, Any] = {"host": host, "outputs": outputs, "remarks": made.remarks}
    data = Program({**made.program.header, "cached": cached}, made.program.blob).to_bytes()
    path = _path(name)
    write_in_one_step(path, _seal(name, data) + data)
    with suppress(OSError):
        newest = sorted(path.parent.glob("*.pyrt"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for file in newest[MOST:]:
            file.unlink(missing_ok=True)


# ── choices of the provider "auto" ───────────────────────────────────────────────────────────────────────────────────


def choice_key(options: SessionOptions, graph: Graph, others: Any) -> str | None:
    """The name of the choice for a graph, without the cache None; others: all other values that it depends on"""
    return _key(graph, None, (program_options(options), others)) if _is_on(options) else None


def read_choice(name: str | None, valid: float) -> Mapping[str, Any] | None:
    """The choice that was stored under this name in the last `valid` seconds."""
    try:
        text = json.loads(_choice_path(name).read_text()) if name else {}
    except (OSError, ValueError):
        return None
    return text if text and time.time() - text["at"] < valid else None


def write_choice(name: str | None, choice: Mapping[str, Any]) -> None:
    from pyruntime.providers.wasm.wasmtime_host import write_in_one_step

    if name:
        write_in_one_step(_choice_path(name), json.dumps({"at": time.time(), **choice}).encode())


def _choice_path(name: str) -> Path:
    return _path(name).with_suffix(".choice.json")
