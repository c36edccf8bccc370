"""`compare_models`: size, speed and results of a smaller model beside the one that it was made of."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.arguments import checked
from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.session import Session
from pyruntime.onnx.model_file import whole

if TYPE_CHECKING:
    from onnx import ModelProto

_TURNS = 15


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of two models, (before, after): bytes of their files with weights; seconds of processor time of a run of the
    first sample; accuracy: share of the labels that the first output tells rightly, None without labels. agreement:
    share of the places where the first outputs of both choose the same class; error: of the second one's, relative to
    the size of the first one's"""

    size: tuple[int, int]
    seconds: tuple[float, float]
    agreement: float
    error: float
    accuracy: tuple[float, float] | None = None


@checked
def compare_models(
    before: str | os.PathLike[str] | bytes | ModelProto,
    after: str | os.PathLike[str] | bytes | ModelProto,
    samples: Iterable[Mapping[str, Any]],
    *,
    labels: str | None = None,
) -> Comparison:
    """How a model differs from another one on samples.

    samples: inputs by name; labels: the name of integers in the samples, which are the right classes. These are the
        last axis of the first output, or axis 1 if it has four axes and more
    Errors: InvalidInput without samples, for labels or results that do not fit each other, and for results that are
        not finite; those of a session for models that cannot run."""
    given = list(samples)
    if not given or not all(isinstance(feeds, Mapping) for feeds in given):
        raise InvalidInput("a comparison needs samples", hint="inputs by name")
    models = [whole(model) for model in (before, after)]
    sessions = [Session(data) for data in models]
    inputs = [{i.name for i in s.get_inputs()} for s in sessions]
    runs = [
        [np.asarray(s.run([s.get_outputs()[0].name], _only(feeds, names))[0], np.float64) for feeds in given]
        for s, names in zip(sessions, inputs, strict=True)
    ]
    for x, y in zip(*runs, strict=True):
        if x.shape != y.shape:
            raise InvalidInput(f"the first outputs of the models have the shapes {x.shape} and {y.shape}")
        for which, found in (("first", x), ("second", y)):
            if not np.isfinite(found).all():
                text = f"the {which} model's first output has numbers that are not finite on these samples"
                raise InvalidInput(text, hint="neither errors nor classes can be told of them")
    sums = [(np.square(y - x).sum(), np.square(x).sum()) for x, y in zip(*runs, strict=True)]
    error, size = (float(sum(part)) for part in zip(*sums, strict=True))
    classes = [np.concatenate([_classes(y) for y in ys]) for ys in runs]
    right = None if labels is None else _labels(given, labels, classes[0].size)
    shares = None if right is None else [float((found == right).mean()) for found in classes]
    return Comparison(
        (len(models[0]), len(models[1])),
        _times([lambda s=s, n=n: s.run(None, _only(given[0], n)) for s, n in zip(sessions, inputs, strict=True)]),
        float((classes[0] == classes[1]).mean()),
        (error / size) ** 0.5 if size else float(error > 0),
        None if shares is None else (shares[0], shares[1]),
    )


def _labels(given: list[Mapping[str, Any]], name: str, count: int) -> np.ndarray:
    """Errors: InvalidInput"""
    if not all(name in feeds for feeds in given):
        raise InvalidInput(f'a sample has no "{name}"', hint="labels names integers beside the inputs")
    found = np.concatenate([np.ravel(feeds[name]) for feeds in given])
    if found.size != count:
        raise InvalidInput(f'"{name}" has {found.size} labels for {count} places')
    return found


def _only(feeds: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: x for name, x in feeds.items() if name in names}


def _classes(y: np.ndarray) -> np.ndarray:
    return np.ravel(y.argmax(1 if y.ndim > 3 else -1)) if y.ndim else np.zeros(1, np.int64)


def _times(runs: list[Any]) -> tuple[float, float]:
    """Medians of processor time, in turns."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_TURNS):
        for run, found in zip(runs, times, strict=True):
            start = time.process_time()
            run()
            found.append(time.process_time() - start)
    first, second = map(statistics.median, times)
    return first, second
