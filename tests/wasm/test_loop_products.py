"""Products inside of loops in machine code: the block function gets them, and results are those of onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from kit.machine_code import machine_code_calls
from pyruntime import InferenceSession, SessionOptions
from pyruntime.providers.wasm.native.function import STOP
from tests.ops.compare import by_onnxruntime

from .native import each_kind, needs_code

STEPS = 5
# Body of a Scan with the state h (rows, width), u (rows, width) of the step, and weights from outside; products that
# machine code computes. `a` and `b` are the weights' extents
BODIES = {
    "a row": ("p = MatMul (h, w)  s = Add (p, u)  v = Tanh (s)", "w: {n} {n}", 1),
    "two in a chain": (
        "p = MatMul (h, w)  q = Relu (p)  s = MatMul (q, back)  t = Add (s, u)  v = Tanh (t)",
        "w: {n} 70; back: 70 {n}", 2,
    ),
    "a transposed matrix": (
        "p = Gemm <transB = 1> (h, w, bias)  s = Add (p, u)  v = Tanh (s)", "w: {n} {n}; bias: {n}", 1,
    ),
    "a matrix of each row": (
        "a = Unsqueeze (h, one)  p = MatMul (a, w)  q = Squeeze (p, one)  s = Add (q, u)  v = Tanh (s)",
        "w: {r} {n} {n}", 1,
    ),
    "columns of a matrix": (
        "a = Slice (w, three, end, one)  p = MatMul (h, a)  s = Add (p, u)  v = Tanh (s)", "w: {n} {m}", 1,
    ),
    "gates": (
        """p = MatMul (h, w)  i, f = Split <axis = 1, num_outputs = 2> (p)  g = Sigmoid (i)  s = Add (f, u)
        t = Tanh (s)  v = Mul (g, t)""",
        "w: {n} {two}", 1,
    ),
}  # fmt: skip
SIZES = [(1, 16), (1, 17), (1, 64), (1, 65), (1, 200), (2, 16), (3, 63), (13, 72)]  # rows, columns


def weights_of(described: str, rng: np.random.Generator, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    found = {}
    for each in described.format(**sizes).split("; "):
        name, _, shape = each.partition(": ")
        extents = [int(d) for d in shape.split()]
        found[name] = rng.standard_normal(extents).astype(np.float32) / np.float32(extents[-1] ** 0.5)
    return found


def scan(name: str, rows: int, columns: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    body, described, _ = BODIES[name]
    sizes = {"r": rows, "n": columns, "m": columns + 5, "two": 2 * columns}
    shape = f"float[{rows}, {columns}]"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[T, {rows}, {columns}] x, {shape} start) => ({shape} last, float[T, {rows}, {columns}] y) {{
            last, y = Scan <num_scan_inputs = 1, body = b ({shape} h, {shape} u) => ({shape} v, {shape} o)
                {{ {body}  o = Identity (v) }}>
                (start, x)
        }}""")
    rng = np.random.default_rng(columns)
    constants: dict[str, np.ndarray] = {"one": np.array([1]), "three": np.array([3]), "end": np.array([columns + 3])}
    for key, value in {**constants, **weights_of(described, rng, sizes)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, key))
    feeds = {"x": rng.standard_normal((STEPS, rows, columns)), "start": rng.standard_normal((rows, columns))}
    return model, {key: x.astype(np.float32) for key, x in feeds.items()}


@each_kind
@pytest.mark.parametrize("name", BODIES)
def test_products_of_bodies(name: str, kind: str) -> None:
    for rows, columns in SIZES:
        model, feeds = scan(name, rows, columns)
        with machine_code_calls() as calls:
            session = InferenceSession(model.SerializeToString(), SessionOptions(native_code=kind))
        assert "written as one procedure" in [n["loop"] for n in session.explain()["nodes"]]
        assert calls.count("block") >= BODIES[name][2], (rows, columns)
        for got, want in zip(session.run(None, feeds), by_onnxruntime(model, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@needs_code
def test_webassembly_does_what_machine_code_declines() -> None:
    model, feeds = scan("gates", 3, 65)
    session = InferenceSession(model.SerializeToString())
    want = session.run(None, feeds)
    for words in session._native.latest().host.native._words:
        words[STOP // 8] = 1
    for got, expected in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        assert (got != expected).any()  # sums in another order


def test_without_machine_code() -> None:
    for name in BODIES:
        model, feeds = scan(name, 1, 64)
        session = InferenceSession(model.SerializeToString(), SessionOptions(native_code=False))
        for got, want in zip(session.run(None, feeds), by_onnxruntime(model, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


CELLS = {"RNN": 1, "GRU": 3, "LSTM": 4}  # gates


@each_kind
@pytest.mark.parametrize("op", CELLS)
def test_recurrent_operators(op: str, kind: str) -> None:
    gates, rng = CELLS[op], np.random.default_rng(2)
    for batch, units in ((1, 16), (2, 33), (3, 64), (5, 130)):
        shapes = {"w": (2, gates * units, 7), "r": (2, gates * units, units), "b": (2, 2 * gates * units)}
        model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
            g (float[T, {batch}, 7] x) => (float[T, 2, {batch}, {units}] y, float[2, {batch}, {units}] h)
            {{ y, h = {op} <direction = "bidirectional", hidden_size = {units}> (x, w, r, b) }}""")
        for name, shape in shapes.items():
            value = (rng.standard_normal(shape) / units**0.5).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        with machine_code_calls() as calls:
            session = InferenceSession(model.SerializeToString(), SessionOptions(native_code=kind))
        assert calls.count("block") >= gates
        feeds = {"x": rng.standard_normal((STEPS, batch, 7)).astype(np.float32)}
        for got, want in zip(session.run(None, feeds), by_onnxruntime(model, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
