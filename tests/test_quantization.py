"""Weights of fewer bits: the models that `quantize` writes, run here and by onnxruntime, and what its report says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, numpy_helper, parser

from pyruntime import InferenceSession, InvalidInput, InvalidModel, quantize
from pyruntime.cli import main
from pyruntime.ir.dtype import F32
from pyruntime.native.sessions.session import Session
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.sources import MemorySource
from pyruntime.quantization.codes import Coding, coding_model, spans

RNG = np.random.default_rng(5)
BOUNDS = {4: 0.13, 8: 0.012, 16: 1e-3}  # normally distributed weights in blocks of 32
MATRIX = np.asarray(RNG.standard_normal((100, 60)), np.float32)
TABLE = np.asarray(RNG.standard_normal((80, 96)), np.float32)
FILTERS = np.asarray(RNG.standard_normal((24, 40, 3, 3)), np.float32)
ROWS = {"x": np.asarray(RNG.standard_normal((2, 3, 100)), np.float32)}
FLAT = {"x": ROWS["x"][0]}
IDS = {"i": np.array([[0, 79], [-1, 5]])}
PICTURE = {"x": np.asarray(RNG.standard_normal((1, 40, 9, 9)), np.float32)}
BIAS = np.asarray(RNG.standard_normal(60), np.float32)


def graph(text: str, opset: int = 17, ir: int = 8, **weights: np.ndarray[Any, Any]) -> ModelProto:
    model = parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


HALVES = {"x": ROWS["x"].astype(np.float16)}
BRANCH = """g (bool c, float[2, 3, 100] x) => (float[2, 3, 60] y) {
  y = If (c) <then_branch = t () => (float[2, 3, 60] a) { a = MatMul(x, w) },
              else_branch = e () => (float[2, 3, 60] b) { p = MatMul(x, w)  b = Neg(p) }>
}"""
TIED = """g (int64[2, 2] i) => (float[2, 2, 80] y, float[2, 2, 96] e) {
  e = Gather(w, i)  t = Transpose<perm = [1, 0]>(w)  y = MatMul(e, t)
}"""


def with_own_weights(model: ModelProto, *weights: np.ndarray[Any, Any]) -> ModelProto:
    """Gives each branch its own weight of the same name."""
    for part, array in zip(model.graph.node[-1].attribute, weights, strict=True):
        part.g.initializer.append(numpy_helper.from_array(array, "w"))
    return model


CONSTANT = """g (float[2, 3, 100] x) => (float[2, 3, 60] y) { v = Identity(x)  y = MatMul(v, w) }"""
CASES: dict[str, tuple[ModelProto, dict[str, Any], dict[int, dict[str, int]]]] = {
    "MatMul": (
        graph("g (float[2, 3, 100] x) => (float[2, 3, 60] y) { y = MatMul(x, w) }", w=MATRIX),
        ROWS,
        {4: {"MatMulNBits": 1}, 8: {"MatMulNBits": 1}, 16: {"Cast": 1, "MatMul": 1}},
    ),
    "MatMul of half floats": (
        graph(
            "g (float16[2, 3, 100] x) => (float16[2, 3, 60] y) { y = MatMul(x, w) }", w=MATRIX.astype(np.float16)
        ),
        HALVES,
        {4: {"MatMulNBits": 1}, 8: {"MatMulNBits": 1}, 16: {"MatMul": 1}},
    ),
    "Gemm": (
        graph(
            "g (float[3, 100] x) => (float[3, 60] y) { y = Gemm<alpha = 0.5, beta = 2.0>(x, w, b) }",
            w=MATRIX,
            b=BIAS,
        ),
        FLAT,
        {4: {"MatMulNBits": 1, "Mul": 1, "Add": 1}, 16: {"Cast": 1, "Gemm": 1}},
    ),
    "Gemm of a transposed weight": (
        graph("g (float[3, 100] x) => (float[3, 60] y) { y = Gemm<transB = 1>(x, w) }", w=MATRIX.T.copy()),
        FLAT,
        {4: {"MatMulNBits": 1}, 8: {"MatMulNBits": 1}},
    ),
    "Gather": (
        graph("g (int64[2, 2] i) => (float[2, 2, 60] y) { y = Gather(w, i) }", w=MATRIX[:80]),
        IDS,
        {4: {"GatherBlockQuantized": 1}, 8: {"GatherBlockQuantized": 1}, 16: {"Cast": 1, "Gather": 1}},
    ),
    "Gather of an odd width": (
        graph("g (int64[2, 2] i) => (float[2, 2, 59] y) { y = Gather(w, i) }", w=MATRIX[:80, :59].copy()),
        IDS,
        {4: {"GatherBlockQuantized": 1}},
    ),
    "a lookup and a product of one matrix": (
        graph(TIED, w=TABLE),
        IDS,
        {
            4: {"GatherBlockQuantized": 1, "Reshape": 1, "MatMulNBits": 1},
            16: {"Cast": 2, "Gather": 1, "Transpose": 1, "MatMul": 1},
        },
    ),
    "Conv": (
        graph("g (float[1, 40, 9, 9] x) => (float[1, 24, 7, 7] y) { y = Conv(x, w) }", w=FILTERS),
        PICTURE,
        {4: {"DequantizeLinear": 1, "Conv": 1}, 8: {"DequantizeLinear": 1, "Conv": 1}, 16: {"Cast": 1, "Conv": 1}},
    ),
    "Conv, blocks of 4 bits": (
        graph("g (float[1, 40, 9, 9] x) => (float[1, 24, 7, 7] y) { y = Conv(x, w) }", 21, 10, w=FILTERS),
        PICTURE,
        {4: {"DequantizeLinear": 1, "Conv": 1}},
    ),
    "Conv before scales had an axis": (
        graph("g (float[1, 40, 9, 9] x) => (float[1, 24, 7, 7] y) { y = Conv(x, w) }", 11, 6, w=FILTERS),
        PICTURE,
        {4: {"Cast": 1, "Conv": 1}},
    ),
    "ConvTranspose": (
        graph(
            "g (float[1, 40, 9, 9] x) => (float[1, 24, 11, 11] y) { y = ConvTranspose(x, w) }",
            21,
            10,
            w=FILTERS.swapaxes(0, 1).copy(),
        ),
        PICTURE,
        {4: {"DequantizeLinear": 1, "ConvTranspose": 1}, 8: {"DequantizeLinear": 1, "ConvTranspose": 1}},
    ),
    "branches": (
        graph(BRANCH, w=MATRIX),
        {**ROWS, "c": np.array(False)},
        {4: {"If": 1}, 8: {"If": 1}},
    ),
    "branches with weights of one name": (
        with_own_weights(graph(BRANCH), MATRIX, 7 * MATRIX[::-1]),
        {**ROWS, "c": np.array(False)},
        {4: {"If": 1}, 16: {"If": 1}},
    ),
    "initializers that are inputs": (
        graph("g (float[2, 3, 100] x, float[100, 60] w) => (float[2, 3, 60] y) { y = MatMul(x, w) }", 8, 3, w=MATRIX),
        ROWS,
        {4: {"MatMulNBits": 1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "bits"), [(name, bits) for name, (_, _, by) in CASES.items() for bits in by])
def test_models_with_fewer_bits(case: str, bits: int) -> None:
    model, feeds, by = CASES[case]
    before = model.SerializeToString()
    found = quantize(model, bits, samples=[feeds], smallest=1000)
    assert model.SerializeToString() == before
    ops = [node.op_type for node in found.model.graph.node]
    assert {op: ops.count(op) for op in ops} == by[bits]
    onnx.checker.check_model(found.model)
    data = found.model.SerializeToString()
    ours = InferenceSession(data).run(None, feeds)
    theirs = onnxruntime.InferenceSession(data).run(None, feeds)
    exact = InferenceSession(before).run(None, feeds)
    for mine, its, all_bits in zip(ours, theirs, exact, strict=True):
        mine, its, all_bits = (np.asarray(y, np.float32) for y in (mine, its, all_bits))
        tolerance = (2e-3 if feeds is HALVES else 2e-6) * np.abs(all_bits).max()
        np.testing.assert_allclose(mine, its, rtol=0, atol=tolerance)
        assert np.linalg.norm(mine - all_bits) < 2 * BOUNDS[bits] * np.linalg.norm(all_bits)
    for layer in found.layers:
        if layer.bits == bits:
            assert layer.after < {4: 0.9, 8: 1.6, 16: 2.01}[bits] * np.prod(layer.shape)
        if layer.bits in BOUNDS and "branches" not in case and case != "MatMul of half floats":
            assert layer.error is not None and layer.error < BOUNDS[layer.bits]
    assert set(found.errors) == {o.name for o in model.graph.output}


def test_a_shared_matrix_lies_in_the_file_once() -> None:
    found = quantize(CASES["a lookup and a product of one matrix"][0], 4, smallest=1000)
    assert found.model.ByteSize() < TABLE.size * (0.5 + 4 / 32 + 0.5 / 32) + 1000


def decoded(rows: np.ndarray[Any, Any], bits: int, block: int) -> np.ndarray[Any, Any]:
    """Rows after they were codes. The model that computes the codes runs here."""
    weight = Weight("w", F32, rows.shape, MemorySource(rows.tobytes()), 0, rows.nbytes)
    coding = Coding(bits, block)
    session = Session(coding_model(weight, coding))
    parts = []
    for span in spans(weight, coding):
        feeds = {"w": np.frombuffer(span.read(weight), np.float32).reshape(span.dims)}
        packed, scales, zeros = session.run(["codes", "scales", "zeros"], feeds)
        assert np.isfinite(scales).all()
        codes, points = (x if bits == 8 else np.stack([x & 15, x >> 4], -1).reshape(-1) for x in (packed, zeros))
        points = points.reshape(len(rows), -1)[:, : -(-rows.shape[1] // block)].reshape(-1)
        parts.append((np.float32(codes.reshape(-1, block)) - points[:, None]) * scales[:, None])
    return np.concatenate(parts).reshape(len(rows), -1)[:, : rows.shape[1]]


def test_scales_lessen_the_error() -> None:
    """Against rounding with the range of each block as it is."""
    rows = np.asarray(np.random.default_rng(0).standard_normal((64, 128)), np.float32)
    blocks = rows.reshape(64, 4, 32)
    scale = (blocks.max(-1, keepdims=True) - blocks.min(-1, keepdims=True)) / 15
    plain = np.rint(blocks / scale) * scale
    assert np.linalg.norm(decoded(rows, 4, 32) - rows) < 0.98 * np.linalg.norm(plain - blocks)


@pytest.mark.parametrize("columns", [48, 50, 64, 65])
def test_rows_of_any_length(columns: int) -> None:
    """The last block of a row is filled with zeros, and its zero points fill whole bytes."""
    rows = MATRIX[:7, :1] * np.linspace(-1, 2, columns, dtype=np.float32)
    assert np.abs(decoded(rows, 4, 16) - rows).max() < 0.08 * np.abs(rows).max()


@pytest.mark.parametrize("values", [[0.0] * 32, [3.0] * 32, [-1e-30] * 32, [1e38, -1e38] * 16])
def test_blocks_at_the_ends_of_the_range(values: list[float]) -> None:
    rows = np.array([values], np.float32)
    for bits in (4, 8):
        assert np.abs(decoded(rows, bits, 32) - rows).max() <= 0.07 * np.abs(rows).max()


def test_a_weight_of_many_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes that are computed in parts are those that are computed at once."""
    names = ("MatMul", "a lookup and a product of one matrix", "Conv", "Gather of an odd width")

    def files() -> list[bytes]:
        return [quantize(CASES[name][0], bits, smallest=1000).to_bytes() for name in names for bits in (4, 8, 16)]

    whole = files()
    monkeypatch.setattr("pyruntime.quantization.codes._CHUNK", 700)
    assert files() == whole


def test_weights_as_numbers_and_in_other_files(tmp_path: Path) -> None:
    """Floats that are fields of their own, and external data, give what raw bytes give."""
    model = mixed()
    expected = quantize(model, 4, keep=["b"], smallest=1000).to_bytes()
    onnx.save(mixed(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    assert quantize(tmp_path / "m.onnx", 4, keep=["b"], smallest=1000).to_bytes() == expected
    for tensor in model.graph.initializer:
        tensor.float_data.extend(numpy_helper.to_array(tensor).reshape(-1))
        tensor.ClearField("raw_data")
    found = quantize(model, 4, keep=["b"], smallest=1000).model
    raw = {t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(expected).graph.initializer}
    for tensor in found.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), raw.pop(tensor.name))
    assert not raw


def mixed() -> ModelProto:
    """Two products; the second's weights are far from evenly distributed, so that 4 bits cost more there."""
    outliers = MATRIX.copy()
    outliers[::8] *= 30
    text = "g (float[3, 100] x) => (float[3, 60] y) { a = MatMul(x, v)  b = MatMul(x, w)  y = Add(a, b) }"
    return graph(text, v=MATRIX, w=outliers)


def test_a_bound_of_the_error() -> None:
    feeds = dict(FLAT)
    bits = {}
    for bound in (0.5, 0.08, 0.004, 1e-4, 1e-9):
        found = quantize(mixed(), 4, samples=[feeds], max_error=bound, smallest=1000)
        assert all(error <= bound for error in found.errors.values())
        bits[bound] = [layer.bits for layer in found.layers]
    assert bits[0.5] == [4, 4] and bits[1e-9] == [32, 32]
    sums = [sum(found) for found in bits.values()]
    assert sums == sorted(sums) and len(set(sums)) > 2


def test_weights_that_stay() -> None:
    infinite = MATRIX.copy()
    infinite[3, 3] = np.inf
    text = "g (float[3, 100] x) => (float[3, 60] y) { a = MatMul(x, v)  b = MatMul(x, w)  y = Add(a, b) }"
    found = quantize(graph(text, v=infinite, w=1e5 * MATRIX), 16, smallest=1000)
    assert [layer.bits for layer in found.layers] == [32, 32]
    kept = quantize(mixed(), 8, keep=["a"], smallest=1000)
    assert [layer.bits for layer in kept.layers] == [32, 8]


@pytest.mark.parametrize("alpha", [1.0, -1e-2, 1e-4, 300.0])
@pytest.mark.parametrize("size", [1.0, 1e-2, 3e-4, 3e-5, 1e-6])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_scales_of_any_size(dtype: str, size: float, alpha: float) -> None:
    """Codes belong to the scale that is stored; a weight whose scales the type cannot hold stays."""
    feeds = {"x": np.asarray(FLAT["x"] / np.clip(size * abs(alpha), 1e-4, 1e3), dtype)}
    name = {"float16": "float16", "float32": "float"}[dtype]
    text = f"g ({name}[3, 100] x) => ({name}[3, 60] y) {{ y = Gemm<alpha = {alpha:.9f}>(x, w) }}"
    model = graph(text, w=np.asarray(size * MATRIX, dtype))
    for bits in (4, 8):
        found = quantize(model, bits, smallest=1000, samples=[feeds])
        assert found.errors["y"] < BOUNDS[bits] and np.isfinite(found.errors["y"])
        assert dtype == "float16" or [layer.bits for layer in found.layers] == [bits]


@pytest.mark.parametrize(("size", "bits"), [(1e-2, 16), (1e-5, 32), (1e-10, 32), (1e4, 16), (1e5, 32)])
def test_weights_that_half_floats_hold(size: float, bits: int) -> None:
    text = "g (float[3, 100] x) => (float[3, 60] y) { y = MatMul(x, w) }"
    found = quantize(graph(text, w=size * MATRIX), 16, smallest=1000, samples=[FLAT])
    assert [layer.bits for layer in found.layers] == [bits] and found.errors["y"] < BOUNDS[16]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bits": ({"bits": 3}, "bits is 3"),
    "pattern": ({"keep": ["head*"]}, 'no layer has a name like "head*"'),
    "no samples": ({"max_error": 0.1}, "max_error needs samples"),
    "block": ({"block_size": 24}, "block_size is 24"),
    "small weights": ({"smallest": 10**6}, "no layer has a weight of 1000000 floats"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    options, text = REFUSED[case]
    with pytest.raises(InvalidInput, match=re.escape(text)):
        quantize(mixed(), **{"smallest": 1000, **options})
    with pytest.raises(InvalidModel, match="this is not an ONNX model but a text file"):
        quantize(b"no model")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mixed(), path)
    options = ["--bits", "4", "--smallest", "1000", "--random"]
    assert main(["export", str(path), str(tmp_path / "m.pyrt"), *options]) == 0
    assert "largest error of a layer" in capsys.readouterr().out
    small = str(tmp_path / "small.onnx")
    assert main(["export", str(path), small, "--onnx", "--keep", "b", *options]) == 0
    text = capsys.readouterr().out
    assert 'in "a"' in text and "error of output" in text
    program = InferenceSession(str(tmp_path / "m.pyrt")).run(None, FLAT)[0]
    exact, kept = (InferenceSession(str(name)).run(None, FLAT)[0] for name in (path, small))
    assert 0 < np.abs(kept - exact).max() < np.abs(program - exact).max()
    assert main(["export", str(path), small, "--onnx"]) == 2
    assert "need --bits" in capsys.readouterr().err
    assert main(["export", str(path), small, "--onnx", *options, "--relaxed"]) == 2
    assert "leave out --onnx" in capsys.readouterr().err


def test_large_models_keep_weights_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyruntime.onnx.model_file.LARGEST", 1000)
    found = quantize(mixed(), 8, samples=[FLAT], smallest=1000)
    found.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").is_file()
    a, b = (
        InferenceSession(source).run(None, FLAT)[0]
        for source in (str(tmp_path / "m.onnx"), found.model.SerializeToString())
    )
    np.testing.assert_array_equal(a, b)
    assert TensorProto.EXTERNAL not in {t.data_location for t in found.model.graph.initializer}
