"""A Program as one WebAssembly module, for places that do not compile code from bytes (web/module.js)."""

from __future__ import annotations

from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.program.format import Program

SECTION = b"pyruntime"
_CUSTOM = b"\0"


def as_module(data: bytes) -> bytes:
    """The code of a Program's file, with the rest of the file in a custom section of it.

    data: what `export(weights=True)` returns for the provider "wasm" and one thread
    Source: https://webassembly.github.io/spec/core/binary/modules.html#custom-section
    Errors: InvalidInput if the Program needs more than that
    """
    program = Program.from_bytes(data)
    header = program.header
    if "model" in header or "needs" in header or header.get("threads", 1) > 1:
        raise InvalidInput(
            "a module has its weights, runs on one thread and not on a GPU", hint='export(True, providers=["wasm"])'
        )
    for step in (step for block in header["blocks"] for step in block["steps"] if step["op"] == "host"):
        raise InvalidInput("this step runs in Python, which edge workers lack", node=step["node"])
    start, size = header["modules"].get("wasm", (0, 0))
    code = program.part([start, size])

    def moved(place: list[int]) -> list[int]:
        """The place in the blob without the code."""
        return [place[0] - size if place[0] > start else place[0], place[1]]

    constants: list[dict[str, Any]] = [
        {**c, "blob": moved(c["blob"])} if "blob" in c else c for c in header["constants"]
    ]
    rest = Program(
        {**header, "modules": {"wasm": [0, 0]}, "constants": constants},
        program.blob[:start] + program.blob[start + size :],
    )
    content = _number(len(SECTION)) + SECTION + rest.to_bytes()
    return code + _CUSTOM + _number(len(content)) + content


def _number(n: int) -> bytes:
    """LEB128."""
    found = bytearray()
    while n > 0x7F:
        found.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*found, n])
