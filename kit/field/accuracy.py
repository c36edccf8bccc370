"""How far a model's results may be from onnxruntime's, as a share of the largest: from the number formats, the lengths
of the sums, and what a last bit does to onnxruntime's own results."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from kit import zoo
from kit.field.builder import generator

UNIT_ROUNDOFF = {TensorProto.FLOAT: 2.0**-24, TensorProto.FLOAT16: 2.0**-11}
DEVIATIONS = 4  # of a random walk of rounding errors
# A step of int8 codes whose range is symmetric, as a share of the largest number: what one code may be off if float32
# rounds a number that lies on a tie between two codes to the other side. Layers behind it pass it on, or hide it.
STEP = 1 / 127
SAMPLES = 6
MARGIN = 1.25  # the samples show the largest movement to about a fifth


def bound(path: Path, feeds: zoo.Feeds, quantised: bool) -> float:
    """The tolerance of the model in a file."""
    model = onnx.load(path)
    return _rounding(model) + (max(STEP, MARGIN * _movement(path, feeds)) if quantised else 0.0)


def _rounding(model: onnx.ModelProto) -> float:
    """Rounding errors are random walks. Sums are computed in float32, also those of halves: an error of u · √terms a
    layer. What a node stores is rounded to its type: an error of u. Errors of layers add up as the root of their
    number."""
    layers = len(model.graph.node)
    weights = [t for t in model.graph.initializer if len(t.dims) > 1]
    terms = max((max(t.dims[0], math.prod(t.dims[1:])) for t in weights), default=1)
    stored = max((UNIT_ROUNDOFF.get(t.data_type, 0.0) for t in model.graph.initializer), default=0.0)
    sums = DEVIATIONS * UNIT_ROUNDOFF[TensorProto.FLOAT] * math.sqrt(terms * layers)
    return sums + (stored * math.sqrt(layers) if stored > UNIT_ROUNDOFF[TensorProto.FLOAT] else 0.0)


def _movement(path: Path, feeds: zoo.Feeds) -> float:
    """By how much, as a share of the largest, onnxruntime's own results move when each weight and scale moves by a unit
    in its last place; kept beside the model."""

    def write(part: Path) -> None:
        want = zoo.expected_of(path, feeds)
        moved = (zoo.oracle(_moved(path, sample), feeds) for sample in range(SAMPLES))
        part.write_text(json.dumps(max(_distance(got, want) for got in moved)))

    kept = zoo.cached(path.with_name(f"{path.stem}.moved.json"), [path, Path(__file__)], write)
    return float(json.loads(kept.read_text()))


def _moved(path: Path, sample: int) -> bytes:
    model, random = onnx.load(path), generator(f"{path.stem}:{sample}")
    sizes = {name for node in model.graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for weight in model.graph.initializer:
        if weight.data_type in UNIT_ROUNDOFF and weight.name not in sizes:
            x = numpy_helper.to_array(weight)
            factor = 1 + np.finfo(x.dtype).eps * random.choice([-1.0, 1.0], x.shape)
            weight.CopyFrom(numpy_helper.from_array(np.asarray(x * factor).astype(x.dtype), weight.name))
    return model.SerializeToString()


def _distance(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    pairs = [(a, b) for a, b in zip(got, want, strict=True) if b.dtype.kind == "f" and b.size]
    return max((float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs), default=0.0)


__all__ = ["bound"]
