"""What a runner is: it takes model bytes and feeds in onnxruntime's Python shape and returns all outputs.

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
    """Whether all that runs in every run is on this provider (and there is some). `told`: what explain gives."""
    places = {node["place"] for node in told["nodes"]}
    return provider in places and not places & {"wasm", "webgpu", "host", "control"} - {provider}
