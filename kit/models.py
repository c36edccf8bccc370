"""Whole networks with feeds and known outputs, as one table that native and browser tests share.

Most are exported architectures with random weights (kit/zoo, kit/light_models.py); the digit classifier of the demo and
the voice detector Silero have trained weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from kit import light_models, zoo
from kit.conformance.compare import assert_equal
from kit.speech import frames, speech

ROOT = Path(__file__).parents[1]
Outputs = list[np.ndarray]


@dataclass(frozen=True)
class Model:
    """check(outputs) raises AssertionError if they differ from the known ones."""

    name: str
    path: Callable[[], Path]
    feeds: Callable[[], zoo.Feeds]
    check: Callable[[Outputs], None]


def assert_close(expected: Outputs, actual: Outputs, tolerance: float) -> None:
    """|actual - expected| <= tolerance * max |expected| + 1e-3 * |expected| for floats, equality for the rest."""
    assert len(actual) == len(expected)
    for i, (left, right) in enumerate(zip(actual, expected, strict=True)):
        size = np.abs(right, dtype=np.float64).max(initial=0) if right.dtype.kind == "f" else 0.0
        rtol = 1e-3 if right.dtype.kind == "f" else 0.0
        assert_equal(right, left, rtol, float(tolerance * size), f"outputs[{i}]")


# The default is 100 times the float32 noise, 1e-6 between onnxruntime with and without optimisation. Quantised and fp16
# models round activations, so that a last bit moves an output by a whole step: these are the fractions by which
# onnxruntime's own outputs move if its weights are scaled by 1 + 3e-7 N(0, 1), or if it optimises.
TOLERANCE = {
    "llama_mini.dyn": 0.03,
    "llama_mini.fp16": 1e-3,
    "llama_mini.nb4": 0.01,
    "llama_mini.qdq": 0.03,
    "mobilenet_v2.qdq": 0.02,
}


def _zoo(name: str) -> Model:
    def check(outputs: Outputs) -> None:
        assert_close(zoo.expected(name), outputs, TOLERANCE.get(name, 1e-4))

    return Model(name, partial(zoo.materialize, name), partial(zoo.inputs, name), check)


def _empty_past(name: str) -> Model:
    """A decoder's first step: three tokens, an empty KV cache."""

    def feeds() -> zoo.Feeds:
        given = zoo.inputs(name)
        count = given["input_ids"].shape[1]
        given["attention_mask"] = given["attention_mask"][:, -count:]
        given["position_ids"] = np.tile(np.arange(count), (len(given["input_ids"]), 1))
        return {key: value[:, :, :0] if key.startswith("past") else value for key, value in given.items()}

    def check(outputs: Outputs) -> None:
        assert_close(zoo.expected(name, feeds(), "empty_past"), outputs, 1e-4)

    return Model(f"{name}.empty_past", partial(zoo.materialize, name), feeds, check)


def _with_outputs(name: str, more: list[str]) -> Path:
    """The zoo's model with inner float tensors as additional outputs."""
    path = zoo.CACHE / f"{name}.more.onnx"
    source = zoo.materialize(name)
    if not path.exists() or path.stat().st_mtime < source.stat().st_mtime:
        model = onnx.load(source)
        model.graph.output.extend(onnx.helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, None) for key in more)
        with zoo.replacing(path) as part:
            onnx.save(model, part)
    return path


def _minilm_dyn() -> Model:
    """Chaotic: the weights times 1 + 3e-7 N(0, 1) move onnxruntime's own last output by 45 % of its largest value (the
    first layer's by 1 %), so the first layer is compared, and the others must be finite."""
    name = "minilm.dyn"
    path = partial(_with_outputs, name, ["layer_norm_2"])

    def check(outputs: Outputs) -> None:
        expected = zoo.oracle(path().read_bytes(), zoo.inputs(name))
        assert [out.shape for out in outputs] == [out.shape for out in expected]
        assert all(np.isfinite(out).all() for out in outputs)
        assert_close(expected[2:], outputs[2:], 0.03)

    return Model(name, path, partial(zoo.inputs, name), check)


def _yolo_nms() -> Model:
    """Scores of different boxes differ by less than rounding errors, so that the last bit decides which boxes are
    detected: onnxruntime itself has found 481 or 476.
    Boxes and scores are compared with the oracle; detections with the oracle's for the same boxes and scores.
    """
    name, cut = "yolo_nms", ["boxes", "scores"]
    path = partial(_with_outputs, name, cut)

    def check(outputs: Outputs) -> None:
        expected = zoo.oracle(path().read_bytes(), zoo.inputs(name))
        *detections, boxes, scores = outputs
        assert_close(expected[-2:], [boxes, scores], 1e-4)
        graph = onnx.load(path()).graph
        model = onnx.shape_inference.infer_shapes(onnx.load(path()))
        tail = onnx.utils.Extractor(model).extract_model(cut, [out.name for out in graph.output][:-2])
        known = zoo.oracle(tail.SerializeToString(), {"boxes": boxes, "scores": scores})
        assert_close(known, detections, 0.0)

    return Model(name, path, partial(zoo.inputs, name), check)


def _drawn(name: str) -> Model:
    def check(outputs: Outputs) -> None:
        expected = zoo.expected_of(light_models.materialize(name), light_models.inputs(name))
        assert_close(expected, outputs, TOLERANCE.get(name, 1e-4))

    return Model(name, partial(light_models.materialize, name), partial(light_models.inputs, name), check)


def _digits() -> Model:
    """The demo's classifier, with trained weights, which must recognise its twenty samples."""
    path = ROOT / "demo" / "digits" / "digits.onnx"
    samples = json.loads(path.with_name("samples.json").read_text())

    def feeds() -> zoo.Feeds:
        pixels = np.array([sample["pixels"] for sample in samples], np.float32)
        return {"image": pixels.reshape(-1, 1, 28, 28) / np.float32(255)}

    def check(outputs: Outputs) -> None:
        assert outputs[0].argmax(1).tolist() == [sample["label"] for sample in samples]
        assert_close(zoo.oracle(path.read_bytes(), feeds()), outputs, 1e-4)

    return Model("digits", lambda: path, feeds, check)


SPECIAL = {"minilm.dyn": _minilm_dyn, "yolo_nms": _yolo_nms}
MODELS = {
    model.name: model
    for model in [
        _digits(),
        *(_drawn(name) for name in light_models.NAMES),
        *(SPECIAL[name]() if name in SPECIAL else _zoo(name) for name in zoo.names()),
        _empty_past("gpt2_tiny"),
        _empty_past("llama_mini"),
    ]
}


def silero_path(version: str = "v5") -> Path:
    """The path of the voice detector Silero, with trained weights, in the npm package vad-web: v5, v6 or legacy."""
    return ROOT / "node_modules" / "@ricky0123" / "vad-web" / "dist" / f"silero_vad_{version}.onnx"


# version -> samples of a frame, samples of the previous frame before it (the client of v5 sends none)
SILERO = {"v5": (512, 0), "v6": (512, 64), "legacy": (1536, 0)}


def silero_frames(version: str = "v5", count: int = 100) -> np.ndarray:
    """float32 (count, samples a frame) of generated speech."""
    size, context = SILERO[version]
    sound = frames(speech(count * size / 16000 + 0.1, seed=2), size)[:count]
    before = np.vstack([np.zeros_like(sound[:1]), sound[:-1]])[:, size - context :]
    return np.hstack([before, sound])


def silero(session: Any, version: str = "v5", count: int = 100) -> np.ndarray:
    """The speech probability of each frame, with the state fed back; session: with onnxruntime's `run`."""
    rate = np.array(16000, np.int64)
    shapes = {"h": (2, 1, 64), "c": (2, 1, 64)} if version == "legacy" else {"state": (2, 1, 128)}
    state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    found = []
    for frame in silero_frames(version, count):
        probability, *after = session.run(None, {"input": frame[None], "sr": rate, **state})
        state = dict(zip(state, after, strict=True))
        found.append(probability.item())
    return np.array(found)
