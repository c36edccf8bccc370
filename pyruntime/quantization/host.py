"""Runs what quantisation asks for (pyruntime/quantization/steps.py) on sessions of Python."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.quantization.steps import Measure, Run, Steps, T

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

    def result(self, steps: Steps[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = self._run(step) if isinstance(step, Run) else self._measure(step)

    def _run(self, step: Run) -> dict[str, bytes]:
        found = self._small_run(step.model, {name: self._sessions.tensor(*x) for name, x in step.feeds.items()})
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
        return [
            {n: self._each(step, n, x, kept.get(n)) for n, x in outputs.items() if _type(x) in step.models}
            for outputs, kept in zip(found, self._expected, strict=True)
        ]

    def _each(self, step: Measure, name: str, x: Any, expected: Any) -> dict[str, bytes] | None:
        feeds = {"found": self._sessions.vector(x)}
        if step.most:
            feeds["most"] = self._sessions.tensor("float32", (1,), struct.pack("<f", step.most[name]))
        elif tuple(expected.shape) != tuple(x.shape):
            return None
        else:
            feeds["expected"] = self._sessions.vector(expected)
        return {n: memoryview(y).tobytes() for n, y in self._small_run(step.models[_type(x)], feeds).items()}


def _outputs(session: Any, feeds: Feeds) -> dict[str, Any]:
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _type(x: Any) -> str:
    return str(getattr(getattr(x, "dtype", None), "name", ""))
