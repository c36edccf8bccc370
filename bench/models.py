"""The models of the bench in the form that the page needs: files to serve, and a description in plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.chromium import BUILD
from kit import field, zoo
from kit import models as known

SILERO = "silero_v5"
FRAMES = 100
CHECKED = 20  # frames before results are compared
# name -> inner tensors to compare instead of the outputs, which are chaotic (see kit/models.py)
CHAOTIC = {"minilm.dyn": ["layer_norm_2"], "yolo_nms": ["boxes", "scores"]}

Info = dict[str, Any]
RELATIVE = 1e-3  # of each element, besides the tolerance of the largest: as in the tests (kit/models.py)


def names() -> list[str]:
    return [*zoo.names(), SILERO]


def everything() -> list[str]:
    """The same and the field (kit/field)."""
    return [*names(), *field.names()]


def of_field(name: str) -> bool:
    return name in field.names()


def is_quantised(name: str) -> bool:
    return field.is_quantised(name) if of_field(name) else name.endswith((".qdq", ".dyn"))


def origin(name: str) -> str:
    """Return the origin of a model and of its weights."""
    if of_field(name):
        return "built in kit/field, random weights"
    return "trained weights" if name == SILERO else "exported architectures, random weights"


def path(name: str) -> Path:
    if of_field(name):
        return field.materialize(name)
    return known.silero_path() if name == SILERO else zoo.materialize(name)


def feeds(name: str) -> zoo.Feeds:
    """Return the feeds of one run."""
    if of_field(name):
        return field.inputs(name)
    if name != SILERO:
        return zoo.inputs(name)
    state = np.zeros((2, 1, 128), np.float32)
    return {"input": known.silero_frames(count=1), "state": state, "sr": np.array(16000, np.int64)}


def info(name: str, small: bool = False) -> Info:
    """Return the ModelInfo of bench/page/model.js, and write the feeds and the expected results. small: a model of the
    field in its small form"""
    if name == SILERO:
        frames = {"input": known.silero_frames(count=FRAMES)}
        made = describe(name, "/vad/silero_vad_v5.onnx", feeds(name), _silero_results(), frames)
        return {**made, "feedback": {"state": "stateN"}}
    if of_field(name) and small:
        address = f"/field/{field.materialize(name, small).name}"
        made = describe(f"{name}.small", address, field.inputs(name, small), results(name, small))
        return {**made, "tolerance": RELATIVE + field.tolerance(name, small)}
    made = describe(name, f"/{'field' if of_field(name) else 'zoo'}/{name}.onnx", feeds(name), results(name))
    made["check"] = f"/zoo/{name}.more.onnx" if name in CHAOTIC else None
    return {**made, "tolerance": RELATIVE + tolerance(name)}


def tolerance(name: str) -> float:
    """The tolerance, as a share of the largest value of an output."""
    if of_field(name):
        return field.tolerance(name)
    return known.TOLERANCE.get(name, 0.03 if name == "minilm.dyn" else 1e-4)


def results(name: str, small: bool = False) -> zoo.Feeds:
    """Return the expected results of a run of a model of the zoo or the field."""
    if name in CHAOTIC:
        return _inner_results(name)
    model = onnx.load(field.materialize(name, small) if of_field(name) else path(name), load_external_data=False)
    expected = field.expected(name, small) if of_field(name) else zoo.expected(name)
    return dict(zip([out.name for out in model.graph.output], expected, strict=True))


def _silero_results() -> zoo.Feeds:
    """Return the expected results after CHECKED frames."""
    session, given = zoo.oracle_session(path(SILERO).read_bytes()), feeds(SILERO)
    results: list[np.ndarray] = []
    for frame in known.silero_frames(count=FRAMES)[:CHECKED]:
        results = session.run(["output", "stateN"], {**given, "input": frame[None]})
        given["state"] = results[1]
    return {"output": results[0], "stateN": results[1]}


def _inner_results(name: str) -> zoo.Feeds:
    found = zoo.oracle_session(known.MODELS[name].path().read_bytes()).run(CHAOTIC[name], zoo.inputs(name))
    return dict(zip(CHAOTIC[name], found, strict=True))


def describe(
    name: str, address: str, given: zoo.Feeds, results: zoo.Feeds, frames: Mapping[str, np.ndarray] | None = None
) -> Info:
    """frames: input -> one array for each run."""
    BUILD.mkdir(parents=True, exist_ok=True)
    made: Info = {"name": name, "model": address, "feedback": {}, "check": None, "checked": CHECKED, "tolerance": 1e-4}
    made["feeds"], data = _pack(given, frames or {})
    (BUILD / f"{name}.feeds.bin").write_bytes(data)
    made["results"], data = _pack(results, {})
    (BUILD / f"{name}.results.bin").write_bytes(data)
    return {**made, "data": f"/data/{name}.feeds.bin", "resultData": f"/data/{name}.results.bin"}


def _pack(arrays: zoo.Feeds, frames: Mapping[str, np.ndarray]) -> tuple[list[Info], bytes]:
    """Return the position of each array in the concatenated bytes."""
    parts: list[bytes] = []
    entries: list[Info] = []
    offset = 0
    for key, value in arrays.items():
        data = np.ascontiguousarray(frames.get(key, value)).tobytes()
        entry = {"name": key, "type": str(value.dtype), "dims": list(value.shape), "offset": offset}
        entries.append({**entry, "size": value.nbytes, "frames": len(frames.get(key, ()))})
        parts.append(data + bytes(-len(data) % 8))
        offset += len(parts[-1])
    return entries, b"".join(parts)


def tiny() -> str:
    """Return the address of a model of one addition, which measures the start of a runtime."""
    make = onnx.helper
    x, y = (make.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in "xy")
    graph = make.make_graph([make.make_node("Add", ["x", "x"], ["y"])], "tiny", [x], [y])
    BUILD.mkdir(parents=True, exist_ok=True)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), BUILD / "tiny.onnx")
    return "/data/tiny.onnx"
