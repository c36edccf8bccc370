"""Exported architectures without their weights; random weights of the same distribution fill them in.

`NAME.onnx` is a model whose large initializers have no data; `NAME.json` has the distribution of each and the inputs of
the model. `materialize` draws both from generators seeded by their names, so that they are the same on every machine.
`expected` caches the outputs of onnxruntime with graph optimisation off (its default optimisation is wrong for some
graphs). Files go to build/zoo.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from kit.unsigned_weights import unsigned_weights

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "zoo"

Feeds = dict[str, np.ndarray]


def names() -> list[str]:
    """All models of the zoo."""
    return sorted(path.name.removesuffix(".onnx") for path in HERE.glob("*.onnx"))


def materialize(name: str, cache_dir: Path = CACHE) -> Path:
    """The path of the runnable model, written on first use."""
    skeleton, spec = HERE / f"{name}.onnx", HERE / f"{name}.json"

    def write(path: Path) -> None:
        model = onnx.load(skeleton)
        weights = json.loads(spec.read_text())["weights"]
        for tensor in model.graph.initializer:
            if tensor.name in weights:
                tensor.raw_data = _weights(_generator(f"{name}:{tensor.name}"), weights[tensor.name]).tobytes()
        path.write_bytes(model.SerializeToString())

    return cached(cache_dir / f"{name}.onnx", [skeleton, spec], write)


def inputs(name: str) -> Feeds:
    """One set of feeds; the generator is shared by the inputs, in their order."""
    generator = _generator(name)
    specs = json.loads((HERE / f"{name}.json").read_text())["inputs"]
    return {spec["name"]: _input(generator, spec) for spec in specs}


def expected(name: str, feeds: Feeds | None = None, variant: str = "") -> list[np.ndarray]:
    """The outputs of onnxruntime without optimisation (default feeds: `inputs(name)`); `variant` names other feeds."""
    return expected_of(materialize(name), inputs(name) if feeds is None else feeds, variant)


def expected_of(model: Path, feeds: Feeds, variant: str = "") -> list[np.ndarray]:
    """The same for a model in a file; the outputs are cached beside it."""

    def write(path: Path) -> None:
        np.savez(path, *oracle(model.read_bytes(), feeds))

    path = model.with_name(f"{model.stem}{variant and '.' + variant}.expected.npz")
    with np.load(cached(path, [model], write)) as stored:
        return [stored[f"arr_{i}"] for i in range(len(stored.files))]


def oracle(model: bytes, feeds: Feeds) -> list[Any]:
    """Outputs of onnxruntime with its graph optimisation disabled."""
    return oracle_session(model).run(None, feeds)


def oracle_session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(unsigned_weights(model), options, providers=["CPUExecutionProvider"])


def _generator(key: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(zlib.crc32(key.encode())))


def _weights(generator: np.random.Generator, spec: dict[str, Any]) -> np.ndarray:
    """Values distributed as `spec` says: uniform integers in [min, max], or normal floats (positive where min is)."""
    count, low, high = math.prod(spec["dims"]), spec["min"], spec["max"]
    if spec["kind"] == "int":
        return generator.integers(int(low), int(high), count, dtype=np.int64, endpoint=True).astype(spec["np"])
    values = generator.standard_normal(count, dtype=np.float32) * np.float32(spec["std"]) + np.float32(spec["mean"])
    if low >= 0:  # variances and scales
        values = np.abs(values) + np.float32(max(low, 1e-6))
    return values.astype(spec["np"])


def _input(generator: np.random.Generator, spec: dict[str, Any]) -> np.ndarray:
    dtype, dims = np.dtype(spec["np"]), spec["dims"]
    if "value" in spec:
        return np.array(spec["value"], dtype).reshape(dims)
    if dtype.kind == "b":
        return generator.integers(0, 1, dims, endpoint=True).astype(dtype)
    if dtype.kind in "iu":
        return generator.integers(spec["min"], spec["max"], dims, endpoint=True).astype(dtype)
    return (generator.standard_normal(dims) * spec["std"] + spec["mean"]).astype(dtype)


def cached(path: Path, sources: list[Path], write: Callable[[Path], None]) -> Path:
    """`path`, written by `write` unless it is newer than its sources; other processes never see a partial file."""
    if not path.exists() or path.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        with replacing(path) as part:
            write(part)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` (same suffix) that replaces it at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
