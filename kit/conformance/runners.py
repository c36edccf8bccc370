"""The runners: this engine natively or in Chromium, and two peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit.conformance.runner import Feeds, Runner, wholly


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
    """onnx's reference evaluator, with which the harness itself is tested."""

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
    """onnxruntime without optimisation. Its `run` refuses bfloat16, float8 and 4-bit feeds, in 92 cases."""

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
