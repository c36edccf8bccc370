"""A Program as a file, which runs without being compiled. Twin of web/worker/programs/export_program.js.

Besides the entries in docs/architecture.md, the header of such a file has "types" of the inputs and outputs, and "host"
(attributes of the host steps). If the weights are not in the file itself, "model" and "files" have name, size and
checksum of the model file beside it, and of its external data. A Program with shaders has "needs", and may have a
"fallback": the Program that hosts run that cannot run the shaders.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.native.sessions.validation import read_program
from pyruntime.onnx.describe import described_metadata, described_type
from pyruntime.onnx.graph import Graph, Source, Value
from pyruntime.onnx.sources import External, FileSource, beside
from pyruntime.program.format import MAGIC, Program
from pyruntime.program.types import Header
from pyruntime.runtime.halves import choose_half

_CHUNK = 1 << 20


def needs_of_file(data: bytes) -> Mapping[str, Any] | None:
    """What the shaders in a file need of a GPU, None if it has none."""
    found: Mapping[str, Any] | None = Program.from_bytes(data).header.get("needs")
    return found


def is_program(model: object) -> bool:
    """Whether a path or bytes hold a Program."""
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb") as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False
    return isinstance(model, (bytes, bytearray, memoryview)) and bytes(model[: len(MAGIC)]) == MAGIC


def beside_model(program: Program, sources: Mapping[str, Source], model: str) -> Program:
    """A Program that reads its weights from the file of its model, which must be beside it. model: path of that file.
    Errors: InvalidInput if there is none"""
    header = dict(program.header)
    names = {c["source"] for part in parts(header) for c in part["constants"] if "source" in c}
    if names:
        if not model:
            text = "the model was given as bytes, so the Program has no file to read weights from"
            raise InvalidInput(text, hint="weights=True")
        header["model"] = {"file": Path(model).name, **_checksum(FileSource(model))}
        header["files"] = [{"file": name, **_checksum(sources[name])} for name in sorted(names - {""})]
    return Program(header, program.blob)


def parts(header: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The headers of all Programs in a file."""
    found: Mapping[str, Any] | None = header
    while found is not None:
        yield found
        found = found.get("fallback")


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
        self.header = header = self.program.header
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

    def half(self, adapter: Any, why_not: str, may_leave_gpu: bool) -> tuple[Program | None, str]:
        """`choose_half` for this file. adapter: an Adapter, or None"""
        facts = None if adapter is None else asdict(adapter)
        found = choose_half(cast("Header", self.header), facts, why_not, may_leave_gpu)
        return found.header and Program(cast("dict[str, Any]", found.header), self.program.blob), found.why

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
        names = {c["source"] for part in parts(header) for c in part["constants"] if c.get("source")}
        sources = {"": model, **{location: external.get(location) for location in sorted(names)}}
        for file in [header["model"], *header.get("files", [])]:
            source = model if file is header["model"] else sources.get(file["file"])
            if source and _checksum(source) != {k: file[k] for k in ("size", "crc32")}:
                raise InvalidModel(f'"{file["file"]}" is not the file that this Program needs', hint="export it again")
        return sources


def _values(described: list[dict[str, Any]]) -> tuple[Value, ...]:
    return tuple(Value(d["name"], described_type(d)) for d in described)
