"""`verify(ranges=True)` names the first node whose values a half float cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kit import zoo
from pyruntime import InferenceSession
from pyruntime.errors import InvalidInput

HALF = TensorProto.FLOAT16


def model(text: str, weights: dict[str, Any] | None = None, opset: int = 17, functions: str = "") -> bytes:
    """text: inputs, outputs and nodes; weights: half floats"""
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}, "own" : 1]> g {text} {functions}')
    for name, value in (weights or {}).items():
        made.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float16), name))
    return bytes(made.SerializeToString())


def constant(value: Any) -> str:
    bits = ", ".join(str(b) for b in np.atleast_1d(np.array(value, np.float16)).view(np.uint16))
    return f"Constant <value = float16[{np.size(value)}] {{{bits}}}> ()"


NORM = """(float16[N, 4] x) => (float16[N, 4] y)
    { h = Mul (x, w) s = Mul (h, h) m = ReduceMean <axes=[-1]> (s) r = Sqrt (m) y = Div (h, r) }"""
MASK = """(float16[N, 4] x, bool[N, 4] m) => (float16[N, 4] y)
    { q = Where (m, x, low) e = Softmax <axis = -1> (q) y = Mul (e, w) }"""
SUM = "(float16[N, 4] x) => (float16[N, 4] y) { s = Add (x, low) t = Add (s, x) y = Softmax <axis = -1> (t) }"
CAST = f"""(float[4] x) => (float16[4] y)
    {{ h = Cast <to = 10> (x) c = {constant([300.0])} p = Mul (h, c) f = Cast <to = 1> (p) t = Tanh (f)
       y = Cast <to = 10> (t) }}"""
CALL = "(float16[4] x) => (float16[4] y) { y = own.Square (x) }"
SQUARE = '<opset_import: ["" : 17], domain: "own"> Square (a) => (b) { c = Mul (a, a) d = Tanh (c) b = Mul (c, c) }'
BRANCH = """(float16[4] x, bool c) => (float16[4] y) { y = If (c)
    <then_branch = t () => (float16[4] r) { r = Exp (x) }, else_branch = e () => (float16[4] r2) { r2 = Neg (x) }> }"""
TRUE = np.ones((1, 4), bool)


def given(value: float, dtype: Any = np.float16, rank: int = 2) -> Any:
    return np.full((1, 4)[2 - rank :], value, dtype)


@pytest.mark.parametrize(
    ("made", "feeds", "node", "magnitude"),
    [
        (model(NORM, {"w": 2.0}), {"x": given(100)}, "", 0),
        (model(NORM, {"w": 2.0}), {"x": given(200)}, 'Mul "s"', 160000),  # what follows fits again
        (model(MASK, {"w": 2.0, "low": -np.inf}), {"x": given(1), "m": TRUE}, "", 0),  # a mask is no fault
        (model(MASK, {"w": 2.0, "low": -np.inf}), {"x": given(1), "m": ~TRUE}, "", 0),
        (model(SUM, {"low": -65504}), {"x": given(-9)}, "", 0),
        (model(SUM, {"low": -65504}), {"x": given(-60000)}, 'Add "t"', 185504),
        (model(CAST), {"x": given(200, np.float32, 1)}, "", 0),
        (model(CAST), {"x": given(300, np.float32, 1)}, 'Mul "p"', 90000),
        (model(CAST), {"x": given(1e6, np.float32, 1)}, 'Cast "h"', 1e6),
        (model(CALL, functions=SQUARE), {"x": given(10, rank=1)}, "", 0),
        (model(CALL, functions=SQUARE), {"x": given(20, rank=1)}, 'own.Square "y"', 160000),
        (model(BRANCH), {"x": given(12, rank=1), "c": np.array(True)}, 'If "y"', np.exp(12)),
        (model(BRANCH), {"x": given(100, rank=1), "c": np.array(True)}, 'If "y"', np.inf),  # beyond float32, too
        (model(BRANCH), {"x": given(100, rank=1), "c": np.array(False)}, "", 0),
    ],
)
def test_first_node(made: bytes, feeds: dict[str, Any], node: str, magnitude: float) -> None:
    found = InferenceSession(made).verify(feeds, ranges=True)
    assert found.ok is (not node) and found.checked > 0  # type: ignore[union-attr]
    if node:
        assert found.first.node.startswith(f"{node} (") and found.first.magnitude == pytest.approx(magnitude)  # type: ignore


def test_a_decoder_stays_in_range() -> None:
    """Its mask does not count; float32 caches and integers pass through."""
    name = "llama_mini.fp16"
    found = InferenceSession(zoo.materialize(name)).verify(zoo.inputs(name), ranges=True)
    assert found.ok and found.checked > 300  # type: ignore[union-attr]


def test_refused() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [value], [out])
    session = InferenceSession(helper.make_model(graph, ir_version=9).SerializeToString())
    with pytest.raises(InvalidInput, match="computes no half floats"):
        session.verify({"x": np.ones(2, np.float32)}, ranges=True)
    exported = InferenceSession(model(NORM, {"w": 2.0}))
    exported = InferenceSession(exported.export(weights=True))
    with pytest.raises(InvalidInput, match="holds no model"):
        exported.verify({"x": given(1)}, ranges=True)
