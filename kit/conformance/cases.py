"""The cases of the ONNX backend suite as plain data: model bytes, inputs, expected outputs, tolerances.

Code of the onnx package builds the node cases, some from random numbers (this module seeds the generator); the others
are files of its wheel. Building takes seconds, so the list is cached in build/conformance.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from kit.zoo import replacing

CACHE = Path(__file__).parents[2] / "build" / "conformance"
CATEGORIES = ("node", "expanded", "simple", "pytorch-converted", "pytorch-operator", "real")

# An array, a list (sequence), a dict (map), or None (an empty optional).
Value = Any


@dataclass(frozen=True)
class Case:
    """op: the operator of a node case, also if it is expanded into the operator's function; "" for models.
    data: pairs of feeds and expected outputs."""

    name: str
    category: str
    op: str
    model: bytes
    data: list[tuple[dict[str, Value], list[Value]]]
    rtol: float
    atol: float


def load() -> dict[str, Case]:
    """Every case by name, in the suite's order."""
    path = CACHE / f"cases-{version('onnx')}.pickle"
    if not path.exists() or path.stat().st_mtime < Path(__file__).stat().st_mtime:
        cases = [*_node_cases(), *_file_cases()]
        with replacing(path) as part:
            part.write_bytes(pickle.dumps(cases))
    return {case.name: case for case in pickle.loads(path.read_bytes())}


def _node_cases() -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    state = np.random.get_state()
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose
        tests = load_model_tests(kind="node")
    np.random.set_state(state)
    ops: dict[str, str] = {}
    for test in tests:
        assert test.model is not None
        assert test.data_sets is not None
        base, expanded, _ = test.name.partition("_expanded")
        op = ops.setdefault(base, test.model.graph.node[0].op_type)
        data = [(_named(test.model, ins), [_plain(out) for out in outs]) for ins, outs in test.data_sets]
        category = "expanded" if expanded else "node"
        yield Case(test.name, category, op, test.model.SerializeToString(), data, test.rtol, test.atol)


def _file_cases() -> Iterator[Case]:
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for kind in CATEGORIES[2:]:
        for test in sorted(load_model_tests(kind=kind), key=lambda test: test.name):
            if test.model_dir is None:
                assert test.url is not None
                path = Path(onnx.__file__).parent / Path(test.url).relative_to("onnx")
                data = [light_data(path)]
            else:
                path = Path(test.model_dir, "model.onnx")
                data = [_stored_data(path, folder) for folder in sorted(path.parent.glob("test_data_set_*"))]
            yield Case(test.name, kind, "", path.read_bytes(), data, test.rtol, test.atol)


def _named(model: Any, values: Any) -> dict[str, Value]:
    return {info.name: _plain(value) for info, value in zip(model.graph.input, values, strict=False)}


def _plain(value: Any) -> Value:
    """Converts TensorProtos and NumPy scalars to arrays, also inside lists."""
    import onnx

    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _stored_data(path: Path, folder: Path) -> tuple[dict[str, Value], list[Value]]:
    import onnx

    graph = onnx.load(path).graph

    def read(infos: Any, stem: str) -> Iterator[tuple[str, Value]]:
        for i, info in enumerate(infos):
            file = folder / f"{stem}_{i}.pb"
            if file.exists():
                yield info.name, _parse(file.read_bytes(), info.type)

    return dict(read(graph.input, "input")), [value for _, value in read(graph.output, "output")]


def _parse(data: bytes, kind: Any) -> Value:
    import onnx
    from onnx import numpy_helper

    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def light_data(path: Path) -> tuple[dict[str, Value], list[Value]]:
    """Data of a light model: its input rises from 0 to 1 over its elements; a file beside it has the outputs."""
    import onnx

    graph = onnx.load(path).graph
    stored = {tensor.name for tensor in graph.initializer}
    feeds = {}
    for info in graph.input:
        if info.name not in stored:
            shape = [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            feeds[info.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    files = [path.with_name(f"{path.stem}_output_{i}.pb") for i in range(len(graph.output))]
    return feeds, [_parse(file.read_bytes(), info.type) for file, info in zip(files, graph.output, strict=True)]
