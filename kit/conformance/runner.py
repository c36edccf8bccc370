"""The protocol of a runner: it takes model bytes and feeds as in onnxruntime's Python API and returns all outputs.

Feeds and outputs: NumPy arrays (ml_dtypes for the types NumPy lacks, objects of `str` for strings), lists for
sequences, dicts for maps, None for an empty optional.
"""

from __future__ import annotations

from typing import Any, Protocol

Feeds = dict[str, Any]


class Runner(Protocol):
    """wholly: whether every kernel of the last model ran on the provider; a model without kernels did not."""

    wholly: bool

    def run(self, model: bytes, feeds: Feeds) -> list[Any]: ...

    def close(self) -> None: ...


def wholly(told: dict[str, Any], provider: str) -> bool:
    """Whether every kernel of a run is on this provider, and there is one. told: the result of `explain`."""
    places = {node["place"] for node in told["nodes"]}
    return provider in places and not places & {"wasm", "webgpu", "host", "control"} - {provider}
