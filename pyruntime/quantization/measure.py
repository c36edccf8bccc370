"""Measures what codes cost: errors of layers and of the model's outputs, on samples of inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from pyruntime.native.sessions.session import Session

Feeds = Mapping[str, Any]
LARGEST = 1 << 30  # a protobuf message ends at 2 GiB; larger models have their weights in a file of their own


def save(model: ModelProto, path: Path) -> None:
    """Writes the model, and large ones' weights into PATH.data beside it."""
    if model.ByteSize() < LARGEST:
        path.write_bytes(model.SerializeToString())
        return
    copy = ModelProto()
    copy.CopyFrom(model)  # saving moves the weights out of the model
    onnx.save(copy, path, save_as_external_data=True, location=f"{path.name}.data")


@contextmanager
def opened(model: ModelProto) -> Iterator[Session]:
    """A session of the model, which is released at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        save(model, path)
        session = Session(path)
        try:
            yield session
        finally:
            session.release()


def layer_errors(model: ModelProto, samples: Sequence[Feeds]) -> dict[int, float]:
    """Of each layer of a model of `with_errors`: the root of its squared error over that of its result."""
    if not model.graph.output:
        return {}
    sums = dict.fromkeys((o.name for o in model.graph.output), 0.0)
    with opened(model) as session:
        for feeds in samples:
            results = session.run(list(sums), feeds)
            for name, value in zip(sums, results, strict=True):
                sums[name] += float(value)
    return {
        int(name.removeprefix("error ")): relative(value, sums[name.replace("error", "size")])
        for name, value in sums.items()
        if name.startswith("error ")
    }


def outputs(model: ModelProto, samples: Sequence[Feeds]) -> list[dict[str, Any]]:
    names = [o.name for o in model.graph.output]
    with opened(model) as session:
        return [dict(zip(names, session.run(names, feeds), strict=True)) for feeds in samples]


def output_errors(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, float]:
    """Of each output of floats: the root of its squared error over that of the expected values, over all samples."""
    errors = {}
    for name, value in expected[0].items():
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        pairs = [
            (np.asarray(e[name], np.float64), np.asarray(f[name], np.float64))
            for e, f in zip(expected, found, strict=True)
        ]
        if all(e.shape == f.shape for e, f in pairs):
            errors[name] = relative(sum(((f - e) ** 2).sum() for e, f in pairs), sum((e**2).sum() for e, _ in pairs))
        else:
            errors[name] = float("inf")  # for example, another number of boxes
    return errors


def relative(error: float, size: float) -> float:
    if error == 0:
        return 0.0
    return float("inf") if size == 0 else float(np.sqrt(error / size))
