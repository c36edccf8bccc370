"""Half floats are float32 between kernels: no more kernels than for float32, roundings only at casts, and the results
of onnxruntime, which also computes in float32 on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kit import field
from kit.small_models import model
from pyruntime import InferenceSession, SessionOptions

HALF, FLOAT, INT = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64
X = ("x", HALF, ["n", 8, 9, 7])


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float16)


def body(name: str, nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
    made = [[helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    return helper.make_graph(nodes, name, *made)


BRANCHES = [
    body("then", [node("Mul", "a a", "t"), node("Add", "t x", "out")], [], [("out", HALF, None)]),
    body("else", [node("Sub", "a x", "out")], [], [("out", HALF, None)]),
]
STEP = body(
    "step",
    [node("Identity", "c", "go"), node("Mul", "h half", "g"), node("Tanh", "g", "after"), node("Exp", "g", "scan")],
    [("i", INT, []), ("c", TensorProto.BOOL, []), ("h", HALF, None)],
    [("go", TensorProto.BOOL, []), ("after", HALF, None), ("scan", HALF, None)],
)
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "one tensor of many readers": (
        [node("Conv", "x w b", "a", pads=[1] * 4), node("Relu", "a", "r"), node("Conv", "r w2 b", "c", pads=[1] * 4),
         node("Add", "c r", "s"), node("GlobalAveragePool", "r", "g"), node("Mul", "s g", "y")],
        {"w": drawn(8, 8, 3, 3), "b": drawn(8), "w2": drawn(8, 8, 3, 3)},
    ),
    "an output that is read, too": (
        [node("Sigmoid", "x", "a"), node("MaxPool", "a", "y", kernel_shape=[3, 3]), node("Exp", "a", "e"),
         node("ReduceMax", "e", "z", axes=[1, 2])], {},
    ),
    "a reshape between": (
        [node("Exp", "x", "a"), node("Flatten", "a", "f", axis=2), node("Softmax", "f", "s"),
         node("MatMul", "s m", "y")],
        {"m": drawn(63, 5)},
    ),
    "what is moved": (
        [node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("ArgMax", "x", "i", axis=1, keepdims=0),
         node("Gather", "e i", "g"), node("Concat", "t g", "c", axis=3), node("LayerNormalization", "c s", "y")],
        {"e": drawn(8, 4), "s": drawn(12)},
    ),
    "transposed operands": (
        [node("Transpose", "x", "t", perm=[0, 1, 3, 2]), node("MatMul", "x t", "p"), node("Softmax", "p", "s"),
         node("Transpose", "x", "u", perm=[0, 3, 2, 1]), node("Conv", "u w", "y"), node("MatMul", "s x", "z")],
        {"w": drawn(5, 7, 1, 1)},
    ),
    "branches": (
        [node("Neg", "x", "a"), node("ReduceSum", "a", "u", keepdims=0), node("Greater", "u b", "c"),
         node("If", "c", "y", then_branch=BRANCHES[0], else_branch=BRANCHES[1])],
        {"b": np.array(0, np.float16)},
    ),
    "a loop": (
        [node("Abs", "x", "a"), node("Loop", "m t a", "l z", body=STEP), node("Add", "l a", "y")],
        {"m": np.array(3), "t": np.array(True), "half": np.array(0.5, np.float16)},
    ),
    "a procedure": (
        [node("Exp", "x", "a"), node("CumSum", "a ax", "c"), node("TopK", "c k", "y i", axis=1), node("Log", "y", "z")],
        {"ax": np.array(1), "k": np.array([3])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime(case: str, batch: int) -> None:
    nodes, initializers = CASES[case]
    outputs = [(n, HALF, None) for n in ("y", "z") if any(n in made.output for made in nodes)]
    data = model(nodes, [X], outputs, initializers).SerializeToString()
    feeds = {"x": np.random.default_rng(batch).normal(size=(batch, 8, 9, 7)).astype(np.float16)}
    expected = onnxruntime.InferenceSession(data).run(None, feeds)
    for ours, theirs in zip(InferenceSession(data).run(None, feeds), expected, strict=True):
        assert ours.dtype == np.float16
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("family", ["residual", "light_detector"])
def test_as_few_kernels_as_of_float32(family: str) -> None:
    """At most one more, which converts the input."""
    f16, f32 = [_calls(field.materialize(f"{family}.{scheme}", small=True)) for scheme in ("f16", "f32")]
    assert f16 <= f32 + 1


def _calls(path: Path) -> int:
    main = InferenceSession(path)._native.latest().header["blocks"][1]
    return sum(len(step["calls"]) for step in main["steps"])


DISCRETE: dict[str, list[onnx.NodeProto]] = {
    "IsInf": [node("IsInf", "a", "y")],
    "Equal": [node("Equal", "a inf", "y")],
    "Less": [node("Less", "a edge", "y")],
    "Sign": [node("Sign", "a", "y")],
    "Floor": [node("Floor", "a", "y")],
    "Ceil, with the fraction": [node("Ceil", "a", "c"), node("Sub", "c a", "d"), node("Min", "d one", "y")],
    "Mod": [node("Mod", "a edge", "m", fmod=1), node("IsNaN", "m", "y")],
    "Cast to bool": [node("Cast", "a", "y", to=TensorProto.BOOL)],
    "Cast to float": [node("Cast", "a", "f", to=FLOAT), node("IsInf", "f", "y")],
    "NonZero": [node("NonZero", "a", "y")],
    "ArgMax": [node("ArgMax", "a", "y", axis=0)],
    "TopK": [node("TopK", "a k", "v y")],
    "Where": [node("GreaterOrEqual", "a edge", "b"), node("Where", "b one zero", "y")],
    "a sum": [node("ReduceSum", "a zeroth", "s", keepdims=0), node("IsInf", "s", "y")],
}


@pytest.mark.parametrize(
    ("case", "provider", "level"),
    [
        *[(case, "wasm", "all") for case in DISCRETE],
        *[("IsInf", "wasm", level) for level in ("disabled", "basic", "extended")],
        *[(case, "webgpu", "all") for case in ("IsInf", "Floor", "Cast to bool", "a sum")],
    ],
)
def test_discrete_results_read_the_rounded_value(case: str, provider: str, level: str) -> None:
    """Products that overflow, vanish, or round across an integer; at each level as in the reference."""
    constants = {"inf": drawn(1) * 0 + np.float16(np.inf), "edge": np.full(1, 2042, np.float16), "k": np.array([2]),
                 "one": np.ones(1, np.float16), "zero": np.zeros(1, np.float16), "zeroth": np.array([0])}  # fmt: skip
    data = model([node("Mul", "x x", "a"), *DISCRETE[case]], [("x", HALF, ["n"])], [], constants)
    data.opset_import[0].version = 20
    data.graph.output.append(onnx.ValueInfoProto(name="y"))
    x = np.array([300, 2, -301, 0, 1e-4, 45.2, 45.19, 0.001], np.float16)
    with np.errstate(all="ignore"):
        (want,) = ReferenceEvaluator(data).run(None, {"x": x})
    options = SessionOptions(graph_optimization_level=level)
    (got,) = InferenceSession(data.SerializeToString(), options, providers=[provider]).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("to", [HALF, TensorProto.BFLOAT16])
def test_a_cast_rounds(to: int) -> None:
    """A cast rounds between kernels and inside a kernel; 1e5 becomes infinite in float16."""
    nodes = [node("Exp", "x", "e"), node("Cast", "e", "h", to=to), node("Cast", "h", "y", to=FLOAT),
             node("ReduceMax", "h", "m"), node("Cast", "m", "z", to=FLOAT)]  # fmt: skip
    x = np.log(np.array([1.0003, 2.0007, 300.3, 1e5], np.float32))
    inputs, outputs = [("x", FLOAT, [4])], [("y", FLOAT, None), ("z", FLOAT, None)]
    rounded = onnxruntime.InferenceSession(model(nodes[:3], inputs, outputs[:1]).SerializeToString())
    expected = rounded.run(None, {"x": x})[0]
    y, z = InferenceSession(model(nodes, inputs, outputs).SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y, expected)
    assert z == expected.max()


def test_what_a_half_cannot_hold_between_kernels() -> None:
    """As in onnxruntime, 300 squared is not infinite on its way through a sum."""
    nodes = [node("Mul", "x x", "a"), node("ReduceSum", "a", "s"), node("Sqrt", "s", "y")]
    data = model(nodes, [("x", HALF, [3])], [("y", HALF, None)]).SerializeToString()
    x = np.array([300, 400, 0], np.float16)
    expected = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    assert InferenceSession(data).run(None, {"x": x})[0] == expected == 500


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, -65504, 6e-8, -6e-8, 6.1e-5, 1e-5], np.float16)


@pytest.mark.parametrize("kn", [(512, 512), (513, 511), (515, 517), (511, 1025), (2, 131073), (131075, 2)], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64])
def test_large_weights_stay_halves(kn: tuple[int, int], rows: int) -> None:
    """Products with half weights equal those with float32 weights: for one row, a few rows, and blocks."""
    k, n = kn
    w = drawn(k, n)
    x = np.random.default_rng(rows).normal(size=(rows, k)).astype(np.float32)
    wide = [node("Cast", "x", "h", to=HALF), node("MatMul", "h w", "p"), node("Cast", "p", "y", to=FLOAT)]
    data = model(wide, [("x", FLOAT, ["m", k])], [("y", FLOAT, None)], {"w": w}).SerializeToString()
    got = InferenceSession(data).run(None, {"x": x})[0]
    exact = x.astype(np.float16).astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(got, exact, rtol=1e-3, atol=1e-3 * np.sqrt(k))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("finite", [False, True])
def test_every_half_is_read_as_it_is(rows: int, turned: bool, finite: bool) -> None:
    """One row each of all finite halves, and in every column one that is special, in a row of its own; by Gemm. Where
    all are finite, none is looked at for that."""
    w = np.zeros((64, 4096), np.float16)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(16, 4096)
    w[:16] = np.where(np.isfinite(halves), halves, 1)
    columns = np.arange(4096)
    special = SPECIAL[np.isfinite(SPECIAL)] if finite else SPECIAL
    w[16 + columns % 48, columns] = special[columns % special.size]
    held = np.ascontiguousarray(w.T) if turned else w
    nodes = [node("Gemm", "x w", "y", transB=int(turned))]
    data = model(nodes, [("x", HALF, ["m", 64])], [("y", HALF, None)], {"w": held}).SerializeToString()
    session = InferenceSession(data)
    for at in (0, 1, 7, 15, 16, 17, 30, 63):
        x = np.zeros((rows, 64), np.float16)
        x[:, at] = 1
        with np.errstate(invalid="ignore"):
            expected = x.astype(np.float32) @ w.astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected.astype(np.float16))


def test_memory_of_large_weights() -> None:
    """Memory equals the size in the file: no float32 copy is kept."""
    w, inputs, outputs = drawn(1024, 2048), [("x", HALF, [1, 1024])], [("y", HALF, None)]
    session = InferenceSession(model([node("MatMul", "x w", "y")], inputs, outputs, {"w": w}).SerializeToString())
    session.run(None, {"x": drawn(1, 1024)})
    assert session.memory().weights < 1.05 * w.nbytes
