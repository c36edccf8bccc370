"""What a case can run on. A runner takes model bytes and feeds in onnxruntime's Python shape and returns all outputs.

Feeds and outputs: NumPy arrays (ml_dtypes for the types NumPy lacks, objects of `str` for strings), lists for
sequences, dicts for maps, None for an empty optional.
"""

from __future__ import annotations

from collections.abc import Callable
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


class Native:
    """This project's engine, in this process."""

    def __init__(self, provider: str) -> None:
        from pyruntime import InferenceSession

        self.session: Any = InferenceSession
        self.provider = provider
        self.wholly = False

    def run(self, model: bytes, feeds: Feeds) -> list[Any]:
        session = self.session(model, providers=[self.provider])
        results = session.run(None, feeds)
        self.wholly = wholly(session.explain(), self.provider)
        return results

    def close(self) -> None:
        pass


class Reference:
    """onnx's own evaluator: what the harness itself is checked with."""

    wholly = False

    def __init__(self, provider: str) -> None:
        from onnx.reference import ReferenceEvaluator

        self.evaluator: Any = ReferenceEvaluator

    def run(self, model: bytes, feeds: Feeds) -> list[Any]:
        import onnx

        return list(self.evaluator(onnx.load_from_string(model)).run(None, feeds))

    def close(self) -> None:
        pass


class OnnxRuntime:
    """The peer, unoptimised. Its `run` refuses bfloat16, float8 and 4-bit feeds: 92 cases stop there."""

    wholly = False

    def __init__(self, provider: str) -> None:
        from kit.zoo import oracle

        self.oracle = oracle

    def run(self, model: bytes, feeds: Feeds) -> list[Any]:
        return self.oracle(model, feeds)

    def close(self) -> None:
        pass


def _chromium(provider: str) -> Runner:
    from kit.conformance.chromium import Chromium

    return Chromium(provider)


# where -> runner for a provider
RUNNERS: dict[str, Callable[[str], Runner]] = {
    "native": Native,
    "chromium": _chromium,
    "reference": Reference,
    "onnxruntime": OnnxRuntime,
}
