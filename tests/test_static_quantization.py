"""Static quantisation: the models that `quantize_static` writes, in both engines and beside those of onnxruntime's
quantize_static from the same samples."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
from onnxruntime.quantization import quantize_static as by_onnxruntime

from kit.training_networks import T, convolutional, model, node, random
from pyruntime import InferenceSession, InvalidInput, compare_models, quantize_static
from pyruntime.cli import main

Feeds = dict[str, Any]
METHODS = {
    "range": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}
RNG = np.random.default_rng(3)


def normal(count: int, *shape: int) -> list[Feeds]:
    return [{"x": RNG.normal(size=shape).astype(np.float32)} for _ in range(count)]


def net(nodes: list[Any], y: list[Any], x: list[Any], **weights: tuple[int, ...]) -> bytes:
    return model(nodes, {"x": (T.FLOAT, x)}, {"y": (T.FLOAT, y)}, random(1, **weights))


def residual() -> bytes:
    nodes = [
        node("Conv", "x w1 b1", "a", pads=[1] * 4), node("Relu", "a", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w2 b2", "c", pads=[1] * 4, group=2), node("Add", "p c", "s"), node("Relu", "s", "t"),
        node("Conv", "t w3", "d"), node("Sigmoid", "d", "e"), node("Mul", "d e", "f"),
        node("Concat", "t f", "g", axis=1), node("Clip", "g", "k"),
        node("GlobalAveragePool", "k", "m"), node("Flatten", "m", "n"), node("Gemm", "n w4 b4", "y", transB=1),
    ]  # fmt: skip
    shapes: Any = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 4, 3, 3), "b2": (8,), "w3": (8, 8, 1, 1)}
    return net(nodes, ["N", 5], ["N", 3, 12, 12], **shapes, w4=(5, 16), b4=(5,))


def block() -> bytes:
    """Of a transformer: products along the last axis, a sum that nothing quantises, and an output in the middle."""
    nodes = [
        node("MatMul", "x q", "a"), node("MatMul", "x k", "b"), node("Transpose", "b", "t", perm=[0, 2, 1]),
        node("MatMul", "a t", "s"), node("Softmax", "s", "p"), node("MatMul", "x v", "u"),
        node("MatMul", "p u", "o"), node("Add", "x o", "h"), node("MatMul", "h up", "m"), node("Gelu", "m", "g"),
        node("MatMul", "g down", "d"), node("Add", "h d", "y"),
    ]  # fmt: skip
    return net(nodes, ["N", 6, 16], ["N", 6, 16], q=(16, 16), k=(16, 16), v=(16, 16), up=(16, 32), down=(32, 16))


def inner_output() -> bytes:
    """A convolution whose result is an output of the model and read by another one."""
    text = """<ir_version: 8, opset_import: ["" : 13]>
        g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y, float[1, 2, 8, 8] z) {
         y = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Relu(y)  z = Conv(r, v) }"""
    made = parser.parse_model(text)
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(w, name) for name, w in random(2, w=(4, 3, 3, 3), v=(2, 4, 1, 1)).items()
    )
    return made.SerializeToString()


CASES: dict[str, tuple[bytes, list[Feeds], dict[str, int]]] = {
    "LeNet": (
        convolutional(),
        [{"image": RNG.random((4, 1, 8, 8), np.float32)} for _ in range(3)],
        {"Relu": 0, "QuantizeLinear": 6},
    ),
    "residual": (residual(), normal(3, 2, 3, 12, 12), {"Relu": 0}),
    "transformer": (block(), normal(3, 2, 6, 16), {}),
    "inner output": (inner_output(), normal(3, 1, 3, 8, 8), {"Relu": 0}),
    "zeros": (residual(), [{"x": np.zeros((1, 3, 12, 12), np.float32)}], {}),
}  # fmt: skip


class Reader(CalibrationDataReader):
    def __init__(self, samples: list[Feeds]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> Any:
        return next(self._rest, None)


def error(data: bytes, expected: list[Any], samples: list[Feeds]) -> float:
    found = [onnxruntime.InferenceSession(data).run(None, feeds) for feeds in samples]
    pairs = [(x, y) for xs, ys in zip(expected, found, strict=True) for x, y in zip(xs, ys, strict=True)]
    return float(np.sqrt(sum(np.square(y - x).sum() for x, y in pairs) / sum(np.square(x).sum() for x, _ in pairs)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [name for name in CASES if name != "zeros"])
def test_beside_onnxruntime(name: str, method: str, tmp_path: Path) -> None:
    data, samples, counts = CASES[name]
    found = quantize_static(data, samples, calibration=method)
    small = found.to_bytes()
    onnx.checker.check_model(onnx.load_from_string(small), full_check=True)
    (tmp_path / "x.onnx").write_bytes(data)
    reader, options = Reader(samples), {"calibrate_method": METHODS[method], "per_channel": True}
    by_onnxruntime(tmp_path / "x.onnx", tmp_path / "y.onnx", reader, **options)
    expected = [onnxruntime.InferenceSession(data).run(None, feeds) for feeds in samples]
    own, theirs = (error(x, expected, samples) for x in (small, (tmp_path / "y.onnx").read_bytes()))
    assert own <= max(1.1 * theirs, 0.02)
    for feeds in samples:  # codes next to a half may differ, because sums are rounded otherwise
        a, b = (cls(small).run(None, feeds)[0] for cls in (InferenceSession, onnxruntime.InferenceSession))
        np.testing.assert_allclose(a, b, atol=0.03 * np.abs(b).max())
    ops = Counter(n.op_type for n in onnx.load_from_string(small).graph.node)
    assert all(ops[op] == count for op, count in counts.items())
    assert all(0.2 < layer.after / layer.before < 0.7 for layer in found.layers)


@pytest.mark.parametrize("size", [1e-37, 1e36, 1e37])
def test_activations_far_from_one(size: float) -> None:
    """Sums of codes are near 1e5: times the scale of large activations alone, they would be infinite."""
    nodes = [node("Conv", "x w", "a"), node("Flatten", "a", "f"), node("Gemm", "f v", "y", transB=1)]
    data = net(nodes, ["N", 4], ["N", 8, 4, 4], w=(8, 8, 3, 3), v=(4, 32))
    samples = [{"x": size * feeds["x"]} for feeds in normal(2, 3, 8, 4, 4)]
    small = quantize_static(data, samples).to_bytes()
    for feeds in samples:
        a, b = (cls(small).run(None, feeds)[0] for cls in (InferenceSession, onnxruntime.InferenceSession))
        assert np.isfinite(b).all()
        np.testing.assert_allclose(a, b, rtol=0, atol=0.03 * np.abs(b).max())


def test_names_that_are_in_use() -> None:
    """Exporters name a layer's constants after its result, and models may be quantised already in part."""
    nodes = [node("Conv", "x qdq/x.scale y.bias", "q"), node("Conv", "q q.scale", "y")]
    shapes: Any = {"qdq/x.scale": (4, 3, 1, 1), "y.bias": (4,), "q.scale": (2, 4, 1, 1)}
    data, samples = net(nodes, [1, 2, 4, 4], [1, 3, 4, 4], **shapes), normal(1, 1, 3, 4, 4)
    small = quantize_static(data, samples).to_bytes()
    assert error(small, [onnxruntime.InferenceSession(data).run(None, samples[0])], samples) < 0.03


def moved_constant() -> bytes:
    nodes = [
        node("Transpose", "b", "c", perm=[3, 0, 1, 2]), node("Conv", "x w", "a"), node("Add", "a c", "d"),
        node("Conv", "d v", "y"),
    ]  # fmt: skip
    return net(nodes, ["N", 2, 8, 8], ["N", 3, 8, 8], w=(4, 3, 1, 1), b=(4, 1, 1, 1), v=(2, 4, 1, 1))


def dead_channel() -> bytes:
    """Weights near 0 beside a bias: in the scale of their sums it has more than 32 bits."""
    weights = {"w": np.ones((2, 3, 3, 3), np.float32), "b": np.array([0.5, -2], np.float32)}
    weights["w"][1] = 1e-9
    return model([node("Conv", "x w b", "y")], {"x": (T.FLOAT, ["N", 3, 8, 8])}, {"y": (T.FLOAT, None)}, weights)


def one_bias() -> bytes:
    """For all columns of the product."""
    return model([node("Gemm", "x w b", "y")], {"x": (T.FLOAT, ["N", 8])}, {"y": (T.FLOAT, None)},
                 {**random(1, w=(8, 16)), "b": np.array([0.5], np.float32)})  # fmt: skip


UNCOMMON = {
    "a bias of one element": (one_bias(), normal(2, 5, 8)),
    "a sample without rows": (one_bias(), [*normal(1, 0, 8), *normal(1, 5, 8)]),
    "four different numbers": (moved_constant(), [{"x": np.zeros((1, 3, 8, 8), np.float32)}]),
    "subnormal numbers": (moved_constant(), [{"x": np.full((1, 3, 8, 8), 1e-42, np.float32)}]),
    "a constant that moves": (moved_constant(), normal(2, 2, 3, 8, 8)),
    "a dead channel": (dead_channel(), normal(2, 2, 3, 8, 8)),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", UNCOMMON)
def test_uncommon_values(name: str, method: str) -> None:
    data, samples = UNCOMMON[name]
    expected = [onnxruntime.InferenceSession(data).run(None, feeds) for feeds in samples]
    for trainable in (False, True):
        small = quantize_static(data, samples, calibration=method, trainable=trainable).to_bytes()
        assert error(small, expected, samples) < 0.05


@pytest.mark.parametrize("method", METHODS)
def test_numbers_at_the_end_of_the_range_alone(method: str) -> None:
    """As masks and one-hot codes have them: no range is without these."""
    x = RNG.integers(0, 2, (1, 3, 8, 8)).astype(np.float32)
    data = net([node("Conv", "x w", "y")], [1, 4, 8, 8], [1, 3, 8, 8], w=(4, 3, 1, 1))
    assert quantize_static(data, [{"x": x}], calibration=method).errors["y"] < 0.02


def test_outliers_are_left_out() -> None:
    """One number of many is a hundred times as large as the others: a range without it loses less."""
    x = RNG.normal(size=(1, 3, 96, 96)).astype(np.float32)
    x[0, 0, 0, 0] = 100
    nodes = [node("Conv", "x w", "y")]
    data = net(nodes, [1, 4, 96, 96], [1, 3, 96, 96], w=(4, 3, 1, 1))
    held = normal(1, 1, 3, 96, 96)
    expected = onnxruntime.InferenceSession(data).run(None, held[0])[0]
    errors = {}
    for method in METHODS:
        small = quantize_static(data, [{"x": x}], calibration=method, percentile=99.9).to_bytes()
        y = onnxruntime.InferenceSession(small).run(None, held[0])[0]
        errors[method] = np.sqrt(np.square(y - expected).sum() / np.square(expected).sum())
    assert errors["range"] > 0.1 and errors["percentile"] < 0.03 and errors["entropy"] < 0.03


def test_trainable_computes_the_same() -> None:
    data, samples, _ = CASES["residual"]
    kept, folded = (quantize_static(data, samples, trainable=which).to_bytes() for which in (True, False))
    results = [InferenceSession(x).run(None, samples[0])[0] for x in (kept, folded)]
    np.testing.assert_allclose(*results, atol=0.02 * np.abs(results[0]).max())  # biases are floats in the first
    assert len(kept) > 1.3 * len(folded)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (convolutional(), {"samples": []}, "needs samples"),
    (convolutional(), {"samples": [np.zeros((1, 1, 8, 8), np.float32)]}, "a dict of tensors by name"),
    (convolutional(), {"samples": [{"image": np.full((1, 1, 8, 8), np.nan, np.float32)}]}, '"image" has numbers'),
    (convolutional(), {"samples": [{"image": np.zeros((0, 1, 8, 8), np.float32)}]}, "has no numbers"),
    (convolutional(), {"calibration": "mean"}, "range, percentile, entropy"),
    (convolutional(), {"percentile": 10.0}, "above 50"),
    (convolutional(), {"keep": ["nothing"]}, "no layer has a name"),
    (convolutional(), {"keep": ["*"]}, "no Conv, Gemm or MatMul"),
    (parser.parse_model('<ir_version: 8, opset_import: ["" : 12]> g (float[1] x) => (float[1] y) { y = Neg(x) }'), {},
     "opset 12"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "options", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_refused(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        quantize_static(data, **{"samples": [{"image": np.zeros((1, 1, 8, 8), np.float32)}], **options})


IMAGE = np.zeros((2, 1, 8, 8), np.float32)
UNFIT: list[tuple[bytes, Any, str]] = [
    (convolutional(), {"image": IMAGE}, 'a sample has no "label"'),
    (convolutional(), {"image": IMAGE, "label": np.arange(3)}, "3 labels for 2 places"),
    (convolutional(), IMAGE, "needs samples"),
    (model([node("Flatten", "image", "y")], {"image": (T.FLOAT, None)}, {"y": (T.FLOAT, None)}, {}), {"image": IMAGE},
     "shapes"),
]  # fmt: skip


@pytest.mark.parametrize(("after", "feeds", "message"), UNFIT, ids=[row[2] for row in UNFIT])
def test_comparisons_refused(after: bytes, feeds: Any, message: str) -> None:
    labels = None if "shapes" in message else "label"
    with pytest.raises(InvalidInput, match=message):
        compare_models(convolutional(), after, [feeds], labels=labels)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_comparisons_of_what_is_not_finite(number: float) -> None:
    shapes: Any = {"x": (T.FLOAT, ["N", 3])}, {"y": (T.FLOAT, None)}
    plain, other = (model([node("Mul", "x w", "y")], *shapes, {"w": np.float32([1, w, 3])}) for w in (2, number))
    for pair, which in (((plain, other), "second"), ((other, plain), "first")):
        with pytest.raises(InvalidInput, match=f"the {which} model's first output has numbers that are not finite"):
            compare_models(*pair, [{"x": np.ones((2, 3), np.float32)}])


def test_comparison_and_command(tmp_path: Path, capsys: Any) -> None:
    data, samples, _ = CASES["LeNet"]
    (tmp_path / "m.onnx").write_bytes(data)
    labels = [onnxruntime.InferenceSession(data).run(None, feeds)[0].argmax(1) for feeds in samples]
    (tmp_path / "samples").mkdir()
    for n, (feeds, y) in enumerate(zip(samples, labels, strict=True)):
        np.savez(tmp_path / f"samples/{n}.npz", **feeds, y=y)
    paths = [str(tmp_path / name) for name in ("m.onnx", "small.onnx", "samples")]
    assert main(["quantize", *paths[:2], "--samples", paths[2], "--labels", "y", "--calibration", "percentile"]) == 0
    printed = capsys.readouterr().out
    assert "c1" in printed and "labels that are right" in printed and "100.0%" in printed
    found = compare_models(*paths[:2], [{**f, "y": y} for f, y in zip(samples, labels, strict=True)], labels="y")
    assert found.accuracy is not None and found.accuracy[0] == 1.0 and found.accuracy[1] == found.agreement
    assert found.size[1] < 0.6 * found.size[0] and found.error < 0.05 and min(found.seconds) > 0
    with pytest.raises(InvalidInput, match="needs samples"):
        compare_models(*paths[:2], [])
    np.savez(tmp_path / "one.npz", image=IMAGE, y=np.int64(3))
    assert main(["quantize", *paths[:2], "--samples", str(tmp_path / "one.npz"), "--labels", "y"]) != 0
    assert "1 labels for 2 places" in capsys.readouterr().err
