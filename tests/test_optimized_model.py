"""Models that `save_optimized` writes: onnxruntime computes with them what it computes with the originals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import pyruntime
from pyruntime import InferenceSession, InvalidModel, NotSupported, OrtValue, SessionOptions

X = np.arange(6, dtype=np.float32).reshape(2, 3)
XY = "g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 2, 3}>"
# name: opset, text, operators that are left
CASES: dict[str, tuple[int, str, list[str]]] = {
    "constants": (
        17, """g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 2, 3}, int64[2] s = {1, 3}> {
            a = Add(w, w)  dead = Neg(x)  b = Reshape(a, s)  y = Mul(x, b)
        }""", ["Mul"],
    ),
    "an output": (17, "g () => (float[2] y) { k = Constant<value = float[2] {1, 2}>()  y = Exp(k) }", []),
    "nodes in another order": (17, f"{XY} {{ y = Add(x, b)  b = Exp(a)  a = Neg(w) }}", ["Add"]),
    "a branch reads them": (
        17, """g (float[N, 3] x, bool c) => (float[N, 3] y) <float[3] w = {1, 2, 3}> {
            a = Exp(w)
            y = If(c) <then_branch = t () => (float[N, 3] u) { u = Add(x, a) },
                       else_branch = e () => (float[N, 3] v) { v = Sub(x, w) }>
        }""", ["If"],
    ),
    "large results stay": (
        17, """g (float[N, 3] x) => (float[N, 3] y) <float[1] w = {2}, int64[2] s = {60000, 3}> {
            a = Expand(w, s)  b = ReduceMean<keepdims = 0>(a)  y = Mul(x, b)
        }""", ["Expand", "ReduceMean", "Mul"],
    ),
    "codes stay": (
        17, """g (float[N, 3] x) => (float[N, 3] y) <int8[3] w = {1, 2, 3}, float s = {0.5}> {
            a = DequantizeLinear(w, s)  b = Neg(a)  y = Mul(x, b)
        }""", ["DequantizeLinear", "Neg", "Mul"],
    ),
    "a default is an input": (
        17, """g (float[N, 3] x, float[3] w) => (float[N, 3] y) <float[3] w = {1, 2, 3}> {
            a = Exp(w)  y = Mul(x, a)
        }""", ["Exp", "Mul"],
    ),
    "strings stay": (
        19, """g (float[N, 3] x) => (float[N, 3] y, string[1] t) <string[1] w = {"a"}> {
            t = Identity(w)  y = Neg(x)
        }""", ["Identity", "Neg"],
    ),
    "half floats": (17, f"{XY} {{ a = Cast<to = 10>(w)  b = Neg(a)  c = Cast<to = 1>(b)  y = Mul(x, c) }}", ["Mul"]),
    "random numbers stay": (
        17, f"{XY} {{ r = RandomNormalLike<seed = 1.0>(w)  z = Mul(r, q)  q = Sub(w, w)  y = Add(x, z) }}",
        ["RandomNormalLike", "Mul", "Add"],
    ),
}  # fmt: skip


def model(case: str, ir: int = 8) -> onnx.ModelProto:
    opset, text, _ = CASES[case]
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {text}')


def feeds(proto: onnx.ModelProto) -> dict[str, Any]:
    known = {"x": X, "c": np.array(True)}
    return {v.name: known[v.name] for v in proto.graph.input if v.name in known}


def results(data: bytes, fed: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return list(onnxruntime.InferenceSession(data, options).run(None, fed))


@pytest.mark.parametrize("case", CASES)
def test_save_optimized(case: str, tmp_path: Path) -> None:
    proto = model(case)
    pyruntime.save_optimized(proto.SerializeToString(), tmp_path / "o.onnx")
    made = onnx.load(tmp_path / "o.onnx")
    assert sorted(n.op_type for n in made.graph.node) == sorted(CASES[case][2])
    read = {name for n in made.graph.node for name in n.input} | {o.name for o in made.graph.output}
    inner = {name for n in made.graph.node for a in n.attribute for m in a.g.node for name in m.input}
    assert {t.name for t in made.graph.initializer} <= read | inner
    for a, b in zip(
        results(made.SerializeToString(), feeds(proto)), results(proto.SerializeToString(), feeds(proto)), strict=True
    ):
        np.testing.assert_array_equal(a, b) if a.dtype == object else np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_option_and_external_data(tmp_path: Path) -> None:
    proto = model("constants")
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    InferenceSession(tmp_path / "m.onnx", options)
    made = (tmp_path / "o.onnx").read_bytes()
    np.testing.assert_array_equal(results(made, {"x": X})[0], X * np.arange(0, 6, 2))
    options.add_initializer("w", OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    with pytest.raises(NotSupported, match="optimized_model_filepath"):
        InferenceSession(tmp_path / "m.onnx", options)


def test_files_before_version_4(tmp_path: Path) -> None:
    """Their initializers are inputs, too."""
    proto = model("constants", ir=3)
    for tensor in proto.graph.initializer:
        proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    pyruntime.save_optimized(proto, tmp_path / "o.onnx")
    made = onnx.load(tmp_path / "o.onnx")
    onnx.checker.check_model(made)
    assert [v.name for v in made.graph.input] == ["x"] and [n.op_type for n in made.graph.node] == ["Mul"]
    np.testing.assert_array_equal(results(made.SerializeToString(), {"x": X})[0], X * [2, 4, 6])


def test_what_is_no_file_of_onnx(tmp_path: Path) -> None:
    program = InferenceSession(model("constants").SerializeToString()).export(True)
    with pytest.raises(InvalidModel, match="not an ONNX model"):
        pyruntime.save_optimized(program, tmp_path / "o.onnx")
