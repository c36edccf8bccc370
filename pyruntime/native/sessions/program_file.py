"""A Program as a file: compiled once, run anywhere without compiling.

The header of such a file says besides what docs/architecture.md describes: "types" of the inputs and outputs, "host"
(what host steps need), and "model" and "files" (name, size and checksum of the model file whose weights it uses, which
lies beside it, and of its external data), unless the weights are in the file itself.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.native.execution.host_calls import StoredCalls
from pyruntime.onnx.describe import describe, described_type
from pyruntime.onnx.graph import Graph, Source, Value
from pyruntime.onnx.sources import External, FileSource, beside
from pyruntime.program.format import MAGIC, Program

_CHUNK = 1 << 20


def is_program(model: object) -> bool:
    """Whether a path or bytes hold a Program."""
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb") as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False
    return isinstance(model, (bytes, bytearray, memoryview)) and bytes(model[: len(MAGIC)]) == MAGIC


def pack(executor: Any, program: Program, host_call: Any, graph: Graph, model: str, weights: bool) -> bytes:
    """The bytes of a Program with what it takes to run it.

    executor: runs it, or another of the same model
    model: path of the model file, which must lie beside the Program (under its own name) when that is opened
    weights: put the weights into the Program instead
    Errors: InvalidInput if it has steps that a file cannot hold, or if the weights are in no file and are left out
    """
    sources = executor.sources
    header = {**program.header, "host": host_call.to_json()}
    header["threads"] = executor.host.threads
    header["types"] = {
        "inputs": [{"name": v.name, **describe(v.type)} for v in graph.inputs if v.name not in graph.weights],
        "outputs": [{"name": v.name, **describe(v.type)} for v in graph.outputs],
    }
    if weights:
        return _embedded(Program(header, program.blob), sources).to_bytes()
    if any("source" in c for c in header["constants"]):
        if not model:
            raise InvalidInput(
                "the model was given as bytes, so the Program has no file to read weights from", hint="weights=True"
            )
        header["model"] = {"file": Path(model).name, **_checksum(FileSource(model))}
        header["files"] = [{"file": name, **_checksum(sources[name])} for name in _external(header)]
    return Program(header, program.blob).to_bytes()


def _embedded(program: Program, sources: Mapping[str, Source]) -> Program:
    blob = bytearray(program.blob)
    constants = []
    for c in program.header["constants"]:
        if "source" in c:
            blob += b"\0" * (-len(blob) % 16)
            place = [len(blob), c["size"]]
            blob += sources[c["source"]].read(c["offset"], c["size"])
            c = {key: v for key, v in c.items() if key not in ("source", "offset", "size")} | {"blob": place}
        constants.append(c)
    return Program({**program.header, "constants": constants}, bytes(blob))


def _external(header: Mapping[str, Any]) -> list[str]:
    """Where its weights lie besides the model's own file."""
    return sorted({c["source"] for c in header["constants"] if c.get("source")})


def _checksum(source: Source) -> dict[str, int]:
    crc = 0
    for offset in range(0, source.size, _CHUNK):
        crc = zlib.crc32(source.read(offset, min(_CHUNK, source.size - offset)), crc)
    return {"size": source.size, "crc32": crc}


class Exported:
    """A Program read back: itself, the graph's inputs and outputs, the sources of its weights, its host steps.

    Errors: InvalidModel if the file is damaged, of another format, or the model beside it is missing or has changed
    """

    def __init__(self, model: Any) -> None:
        path = Path(model) if isinstance(model, (str, os.PathLike)) else None
        self.program = Program.from_bytes(bytes(model) if path is None else path.read_bytes())
        header = self.program.header
        if "types" not in header or "host" not in header:
            raise InvalidModel(
                "this Program does not list its inputs and outputs", hint="write it with session.export()"
            )
        self.graph = Graph(
            header["name"], _values(header["types"]["inputs"]), _values(header["types"]["outputs"]), nodes=()
        )
        self.sources = self._weights(header, path)
        self.host_call = StoredCalls(header["host"])

    @staticmethod
    def _weights(header: Mapping[str, Any], path: Path | None) -> dict[str, Source]:
        if "model" not in header:
            return {}
        name = header["model"]["file"]
        if path is None:
            raise InvalidModel(
                f'the weights of this Program are in "{name}"', hint="open the Program by its path, beside the model"
            )
        try:
            model = FileSource(path.parent / name)
        except OSError as error:
            raise InvalidModel(f'the weights of this Program are in "{name}", which cannot be read: {error}') from error
        external = External(beside(path))
        sources = {"": model, **{location: external.get(location) for location in _external(header)}}
        for told, source in [(header["model"], model), *[(t, sources.get(t["file"])) for t in header.get("files", [])]]:
            if source and _checksum(source) != {k: told[k] for k in ("size", "crc32")}:
                raise InvalidModel(f'"{told["file"]}" is not what this Program was made from', hint="export it again")
        return sources


def _values(described: list[dict[str, Any]]) -> tuple[Value, ...]:
    return tuple(Value(d["name"], described_type(d)) for d in described)


__all__ = ["Exported", "is_program", "pack"]
