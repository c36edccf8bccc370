"""A Program as a file, which runs without being compiled.

Besides the entries in docs/architecture.md, the header of such a file has "types" of the inputs and outputs, and "host"
(attributes of the host steps). If the weights are not in the file itself, "model" and "files" have name, size and
checksum of the model file beside it, and of its external data.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.native.execution.host_calls import StoredCalls
from pyruntime.native.sessions.validation import read_program
from pyruntime.onnx.describe import describe, described_metadata, described_type
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


def pack(
    executor: Any, program: Program, host_call: Any, graph: Graph, model: str, weights: bool, about: Mapping[str, Any]
) -> bytes:  # fmt: skip
    """Return the bytes of such a file.

    executor: runs this Program, or another one of the same model
    about: further entries of "types"
    model: path of the model file; to open the Program, a file of that name must be beside it
    weights: put the weights into the Program instead
    Errors: InvalidInput if a host step runs in Python, or if the weights are in neither file
    """
    sources = executor.sources
    header = {**program.header, "host": host_call.to_json()}
    header["threads"] = executor.host.threads
    header["types"] = {
        "inputs": [{"name": v.name, **describe(v.type)} for v in graph.inputs if v.name not in graph.weights],
        "outputs": [{"name": v.name, **describe(v.type)} for v in graph.outputs],
        **about,
    }
    if weights:
        return _embedded(Program(header, program.blob), sources).to_bytes()
    if any("source" in c for c in header["constants"]):
        if not model:
            text = "the model was given as bytes, so the Program has no file to read weights from"
            raise InvalidInput(text, hint="weights=True")
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
    """Names of its files of external data."""
    return sorted({c["source"] for c in header["constants"] if c.get("source")})


def _checksum(source: Source) -> dict[str, int]:
    crc = 0
    for offset in range(0, source.size, _CHUNK):
        crc = zlib.crc32(source.read(offset, min(_CHUNK, source.size - offset)), crc)
    return {"size": source.size, "crc32": crc}


class Exported:
    """An opened file. graph: has inputs, outputs and metadata only; uses: for each output the inputs that it needs.

    Errors: InvalidModel if the file is damaged or of another format, or the model beside it is missing or has changed
    """

    def __init__(self, model: Any) -> None:
        path = Path(model) if isinstance(model, (str, os.PathLike)) else None
        self.program = read_program(bytes(model) if path is None else path.read_bytes())
        header = self.program.header
        if "types" not in header or "host" not in header:
            text = "this Program does not list its inputs and outputs"
            raise InvalidModel(text, hint="write it with session.export()")
        inputs, outputs = (_values(header["types"][key]) for key in ("inputs", "outputs"))
        types = header["types"]
        self.uses = {v.name: types.get("uses", {}).get(v.name, [i.name for i in inputs]) for v in outputs}
        self.graph = Graph(
            header["name"], inputs, outputs, nodes=(), unused=tuple(types.get("unused", ())),
            **described_metadata(types.get("metadata", {})),
        )  # fmt: skip
        self.sources = self._weights(header, path)
        self.host_call = StoredCalls(header["host"])

    @staticmethod
    def _weights(header: Mapping[str, Any], path: Path | None) -> dict[str, Source]:
        if "model" not in header:
            return {}
        text = f'the weights of this Program are in "{header["model"]["file"]}"'
        if path is None:
            raise InvalidModel(text, hint="open the Program by its path, beside the model")
        try:
            model = FileSource(path.parent / header["model"]["file"])
        except OSError as error:
            raise InvalidModel(f"{text}, which cannot be read: {error}") from error
        external = External(beside(path))
        sources = {"": model, **{location: external.get(location) for location in _external(header)}}
        for file in [header["model"], *header.get("files", [])]:
            source = model if file is header["model"] else sources.get(file["file"])
            if source and _checksum(source) != {k: file[k] for k in ("size", "crc32")}:
                raise InvalidModel(f'"{file["file"]}" is not the file that this Program needs', hint="export it again")
        return sources


def _values(described: list[dict[str, Any]]) -> tuple[Value, ...]:
    return tuple(Value(d["name"], described_type(d)) for d in described)
