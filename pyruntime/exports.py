"""The Programs of an exported file: one for each place that it runs in, joined with equal bytes once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyruntime.compiler.compile import Compiled
from pyruntime.errors import InvalidInput
from pyruntime.host import ARRAYS
from pyruntime.ir.kernel import Host
from pyruntime.onnx.describe import describe
from pyruntime.onnx.graph import Graph, Source, Value
from pyruntime.placement.provider_list import effective, known
from pyruntime.program.format import Program
from pyruntime.providers import BASE

GPU = "webgpu"


class Half(NamedTuple):
    """One Program of a file. host: the data of its host steps; needs: what it needs of a GPU, None if it has no
    shaders."""

    program: Program
    host: list[dict[str, Any]]
    needs: dict[str, Any] | None


def halves(named: Sequence[str], assume: Sequence[str], compiled: Callable[[Sequence[str], Any], Half]) -> list[Half]:
    """The Programs of a file for these providers, in order of preference. assume: what shaders may use (`--assume`);
    compiled: a Program for providers and the GPU that is assumed, None without one. Errors: InvalidInput"""
    wants_gpu = GPU in effective(named)
    if assume and not wants_gpu:
        raise InvalidInput("only a Program for the GPU can assume anything of it", hint='providers=["webgpu", "wasm"]')
    adapters: list[Any] = [None] if not wants_gpu or BASE in named else []
    if wants_gpu:
        from pyruntime.providers.webgpu.assumed import assumed_adapter

        adapters.insert(0, assumed_adapter(assume))
    made = [compiled([n for n in named if adapter or n != GPU], adapter) for adapter in adapters]
    return made[-1:] if made[0].needs is None else made  # without kernels on the GPU one is enough


def compile_for_file(
    providers: Sequence[str],
    assume: Sequence[str],
    threads: int,
    compiled: Callable[[Sequence[str], Any], tuple[Compiled, dict[str, Any] | None]],
) -> Compiled:
    """The Programs of a file as one, without weights and types. assume, compiled: see `halves`; `compiled` also returns
    what the Program needs of a GPU. threads: see `join`. Errors: InvalidInput, also if a step runs a kernel in
    Python"""
    made: list[Compiled] = []

    def half(names: Sequence[str], adapter: Any) -> Half:
        one, needs = compiled(names, adapter)
        made.append(one)
        return Half(one.program, host_steps(one.host_kernels), needs)

    program = join(halves(known(providers), assume, half), threads)
    return replace(made[-1], program=program)


def needs_of(compiled: Compiled, writer: Any, adapter: Any) -> dict[str, Any] | None:
    """What a Program needs of a GPU; None if it has no shaders. writer: of its shaders; adapter: the one assumed"""
    if adapter is None or not writer.shaders:
        compiled.program.header["modules"].pop("webgpu", None)
        return None
    from pyruntime.providers.webgpu import assumed

    return assumed.needs_of(compiled.program.header, writer, adapter)


def with_types(program: Program, graph: Graph, outputs: Sequence[Value], about: Mapping[str, Any]) -> Program:
    """A Program that lists its inputs and outputs. about: further entries of "types" """
    types = {
        "inputs": [{"name": v.name, **describe(v.type)} for v in graph.inputs if v.name not in graph.weights],
        "outputs": [{"name": v.name, **describe(v.type)} for v in outputs],
        **about,
    }
    return Program({**program.header, "types": types}, program.blob)


def join(made: Sequence[Half], threads: int) -> Program:
    """Programs of one model, in order of preference, as one: each is the fallback of the one before. threads: that they
    have scratch memory for"""
    blob = Blob()
    joined: dict[str, Any] = {}
    for program, host, needs in reversed(made):
        header = {**program.header, "host": host, "threads": threads}
        header["modules"] = {name: blob.add(program.part(place)) for name, place in header["modules"].items()}
        header["constants"] = [
            {**c, "blob": blob.add(program.part(c["blob"]))} if "blob" in c else c for c in header["constants"]
        ]
        joined = {**header, **({"needs": needs} if needs else {}), **({"fallback": joined} if joined else {})}
    return Program(joined, bytes(blob.bytes))


def embed(program: Program, sources: Mapping[str, Source]) -> Program:
    """A Program that has its weights in its blob, each once."""
    blob = Blob(program.blob)
    places: dict[tuple[str, int, int], list[int]] = {}

    def placed(c: dict[str, Any]) -> dict[str, Any]:
        if "source" not in c:
            return c
        key = (c["source"], c["offset"], c["size"])
        if key not in places:
            places[key] = blob.append(sources[c["source"]].read(c["offset"], c["size"]))
        kept = {name: v for name, v in c.items() if name not in ("source", "offset", "size")}
        return {**kept, "blob": places[key]}

    def embedded(header: dict[str, Any]) -> dict[str, Any]:
        made = {name: v for name, v in header.items() if name not in ("model", "files")}
        made["constants"] = [placed(c) for c in header["constants"]]
        if "fallback" in header:
            made["fallback"] = embedded(header["fallback"])
        return made

    header = embedded(program.header)
    return Program(header, bytes(blob.bytes))


def host_steps(kernels: Sequence[Host]) -> list[dict[str, Any]]:
    """What a file holds of host steps (`HostCall` of pyruntime/program/schema.json). Errors: InvalidInput if a step
    runs a kernel in Python"""
    for k in kernels:
        if "kernel" in k.attrs or k.fn == ARRAYS:
            text = f"this node runs in Python ({k.provider or 'it works on strings'}), which a file cannot hold"
            raise InvalidInput(text, node=k.node, hint="open the ONNX model itself instead of an export")
    return [
        {
            "attrs": k.attrs,
            "inputs": [None if a is None else a.dtype.name for a in k.args],
            "outputs": [t.dtype.name for t in k.outputs],
        }
        for k in kernels
    ]


class Blob:
    """A blob that grows. Each part begins at a multiple of 16 bytes."""

    def __init__(self, start: bytes = b"") -> None:
        self.bytes = bytearray(start)
        self._known: dict[bytes, list[int]] = {}

    def add(self, data: bytes) -> list[int]:
        """Offset and size of these bytes, which are in the blob once."""
        if data not in self._known:
            self._known[data] = self.append(data)
        return self._known[data]

    def append(self, data: bytes) -> list[int]:
        self.bytes += b"\0" * (-len(self.bytes) % 16)
        place = [len(self.bytes), len(data)]
        self.bytes += data
        return place
