"""Runs what quantisation asks for (pyruntime/quantization/steps.py) on sessions of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.quantization.quantized import Quantized
from pyruntime.quantization.steps import Measure, Run, Steps

Feeds = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sessions:
    """What a place offers. open: a session of a model's bytes or Source, with `run` and `get_outputs`; tensor: makes a
    feed of a type, dims and bytes; vector: an output as a feed of rank 1"""

    open: Callable[[Any], Any]
    tensor: Callable[[str, tuple[int, ...], bytes], Any]
    vector: Callable[[Any], Any]


class Host:
    """Answers the steps of one quantisation."""

    def __init__(self, samples: Sequence[Feeds], sessions: Sessions) -> None:
        self._samples, self._sessions = samples, sessions
        self._small: dict[bytes, Any] = {}  # sessions by model
        self._expected: list[dict[str, Any]] = []

    def result(self, steps: Steps[Quantized]) -> Quantized:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = self._run(step) if isinstance(step, Run) else self._measure(step)

    def _run(self, step: Run) -> dict[str, bytes]:
        found = self._small_run(step.model, {"w": self._sessions.tensor(step.dtype, step.dims, step.data)})
        return {name: memoryview(x).tobytes() for name, x in found.items()}

    def _small_run(self, model: bytes, feeds: Feeds) -> dict[str, Any]:
        if model not in self._small:
            self._small[model] = self._sessions.open(model)
        return _outputs(self._small[model], feeds)

    def _measure(self, step: Measure) -> list[Any]:
        session = self._sessions.open(step.file)
        found = [_outputs(session, feeds) for feeds in self._samples]
        del session
        if step.how == "expected":
            self._expected = found
        if step.how == "numbers":
            return [{name: float(x.tolist()) for name, x in outputs.items()} for outputs in found]
        pairs = zip(self._expected, found, strict=True)
        return [
            {
                name: self._compared(step.comparisons[_type(x)], x, outputs[name])
                for name, x in expected.items()
                if _type(x) in step.comparisons
            }
            for expected, outputs in pairs
        ]

    def _compared(self, model: bytes, expected: Any, found: Any) -> tuple[float, float] | None:
        if tuple(expected.shape) != tuple(found.shape):
            return None
        vector = self._sessions.vector
        sums = self._small_run(model, {"expected": vector(expected), "found": vector(found)})
        return float(sums["error"].tolist()), float(sums["size"].tolist())


def _outputs(session: Any, feeds: Feeds) -> dict[str, Any]:
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _type(x: Any) -> str:
    return str(getattr(getattr(x, "dtype", None), "name", ""))
