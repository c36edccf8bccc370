"""Runs what quantisation asks for (pyruntime/quantization/steps.py) on sessions of Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.onnx.edit import FileModel
from pyruntime.onnx.graph import Source
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.sources import External
from pyruntime.onnx.write import Piece
from pyruntime.quantization.codes import Span
from pyruntime.quantization.steps import Compute, Measure, Options, Outcome, quantised

Feeds = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sessions:
    """What a place offers. open: a session of a model's bytes or Source, with `run` and `get_outputs`; tensor: makes a
    feed of a type, dims and bytes; vector: an output as a feed of rank 1"""

    open: Callable[[Any], Any]
    tensor: Callable[[str, tuple[int, ...], bytes], Any]
    vector: Callable[[Any], Any]


class Host:
    """values: bytes of new weights, by name"""

    def __init__(
        self, source: Source, external: External, samples: Sequence[Feeds], sessions: Sessions
    ) -> None:  # fmt: skip
        self._source, self._external, self._samples, self._place = source, external, samples, sessions
        self._small: dict[bytes, Any] = {}
        self._expected: list[dict[str, Any]] = []
        self.values: dict[str, bytes] = {}

    def quantise(self, options: Options) -> Outcome:
        steps, answer = quantised(lambda: FileModel(self._source, self._external), options), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = self._compute(step) if isinstance(step, Compute) else self._measure(step)

    def file(self, pieces: Sequence[Piece]) -> PieceSource:
        """The file that pieces describe, without a copy of its weights."""
        return PieceSource(pieces, self._file, lambda name, _: self.values[name])

    def _file(self, name: str) -> Source:
        return self._external.get(name) if name else self._source

    def _compute(self, step: Compute) -> list[dict[str, float]]:
        session = self._session(step.model)
        names = [o.name for o in session.get_outputs()]
        kept, answer = defaultdict[str, list[bytes]](list), []
        for span in step.spans:
            found = dict(zip(names, session.run(names, {"w": self._read(step.dtype, span)}), strict=True))
            for output, name in step.keep.items():
                kept[name].append(memoryview(found[output]).tobytes())
            answer.append({n: float(x.tolist()) for n, x in found.items() if x.shape == ()})
        self.values |= {name: b"".join(parts) for name, parts in kept.items()}
        return answer

    def _session(self, model: bytes) -> Any:
        if model not in self._small:
            self._small[model] = self._place.open(model)
        return self._small[model]

    def _read(self, dtype: str, span: Span) -> Any:
        if span.data:
            return self._place.tensor(dtype, span.dims, span.data)
        file = self._file(span.file)
        parts = [file.read(span.start + n * span.stride, span.size) for n in range(span.count)]
        return self._place.tensor(dtype, span.dims, b"".join(parts))

    def _measure(self, step: Measure) -> list[Any]:
        session = self._place.open(self.file(step.pieces) if step.pieces else self._source)
        names = [o.name for o in session.get_outputs()]
        found = [dict(zip(names, session.run(names, feeds), strict=True)) for feeds in self._samples]
        del session
        if step.how == "expected":
            self._expected = found
        if step.how == "numbers":
            return [{name: float(x.tolist()) for name, x in outputs.items()} for outputs in found]
        return [
            {
                name: self._compared(step, x, outputs[name])
                for name, x in expected.items()
                if _type(x) in step.comparisons
            }
            for expected, outputs in zip(self._expected, found, strict=True)
        ]

    def _compared(self, step: Measure, expected: Any, found: Any) -> tuple[float, float] | None:
        if tuple(expected.shape) != tuple(found.shape):
            return None
        session = self._session(step.comparisons[_type(expected)])
        feeds = {"expected": self._place.vector(expected), "found": self._place.vector(found)}
        error, size = session.run(["error", "size"], feeds)
        return float(error.tolist()), float(size.tolist())


def _type(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    return str(getattr(dtype, "name", ""))
