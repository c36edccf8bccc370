"""The native session and the browser's model agree on the dims for which a Program must be compiled."""

from __future__ import annotations

import json

import numpy as np
import onnx.parser
import onnx.reference
import onnxruntime
import pytest

from pyruntime import InferenceSession, InvalidInput, SessionOptions, browser
from pyruntime.runtime.session_rules import MAX_PROGRAMS

# Two values that decide ranks, the second computed with the first: axes of Unsqueeze.
MODEL = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 2] x) => (float y) {
        most = ReduceMax <keepdims = 0> (x)
        axis = Cast <to = 7> (most)
        flat = Constant <value = int64[1] {-1}> ()
        first = Reshape (axis, flat)
        up = Unsqueeze (x, first)
        total = ReduceSum <keepdims = 0> (up)
        other = Cast <to = 7> (total)
        second = Reshape (other, flat)
        y = Unsqueeze (up, second)
    }""")
MODEL.graph.output[0].ClearField("type")
CHAIN = MODEL.SerializeToString()


@pytest.mark.parametrize("values", [[[0, 1]], [[2, 0]], [[0, 0], [0, 0]]])
def test_values_that_follow_from_values(values: list[list[float]]) -> None:
    x = np.array(values, np.float32)
    up = np.expand_dims(x, int(x.max()))
    want = np.expand_dims(up, int(x.sum()))
    session = InferenceSession(CHAIN)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want, strict=True)
    assert session._native.programs.needs.inner == {"first", "second"}

    model = browser.create(lambda at, size, name="": CHAIN[at : at + size], len(CHAIN), "{}")
    assert model.main is None
    feeds = json.dumps({"x": {"dtype": "float32", "dims": x.shape, "data": x.ravel().tolist()}})
    compiled = next(filter(None, (model.specialise(feeds) for _ in range(3))))
    assert model.programs.needs == session._native.programs.needs
    dims = json.loads(compiled.json)["outputs"][0]["value"]["dims"]
    assert [d for d in dims if d != "s0"] == [d for axis, d in enumerate(want.shape) if dims[axis] != "s0"]
    assert len(dims) == want.ndim


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_the_dims_of_filters_that_are_fed(op: str) -> None:
    """The model is compiled for them, because kernels for filters of any size are about thirty times slower."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[N, C, H, W] x, float[F, G, K, L] w) => (float[N, M, P, Q] y)
        {{ y = {op} <strides = [2, 1]> (x, w) }}"""
    data = onnx.parser.parse_model(text).SerializeToString()
    session, peer = InferenceSession(data), onnx.reference.ReferenceEvaluator(data)
    rng = np.random.default_rng(1)
    for x, w in ((2, 3, 7, 5), (3, 3, 3, 2)), ((1, 2, 5, 5), (2, 2, 1, 4)), ((2, 3, 9, 6), (3, 3, 3, 2)):
        feeds = {name: rng.random(shape, np.float32) for name, shape in (("x", x), ("w", w))}
        np.testing.assert_allclose(session.run(None, feeds)[0], peer.run(None, feeds)[0], 1e-5, 1e-6)
    assert {str(d) for d in session._native.programs.needs.dims} == {"F", "G", "K", "L"}
    with pytest.raises(InvalidInput, match="fix these dims by free_dimension_overrides: F, G, K, L"):
        session.export()


@pytest.mark.parametrize("depth", [3, 12])
def test_dims_of_dims(depth: int) -> None:
    """Each part's size has that of the whole twice: written out, the twelfth would have half a million parts."""
    nodes = "".join(f"a{i}, x{i + 1}, b{i} = Split <axis = 0, num_outputs = 3> (x{i}) " for i in range(depth))
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[N] x0) => (float[M] x{depth}) {{ {nodes} }}'
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    for size in (3**depth, 3**depth + 5):
        x = want = np.arange(size, dtype=np.float32)
        for _ in range(depth):
            part = -(-len(want) // 3)
            want = want[part : 2 * part]
        np.testing.assert_array_equal(session.run(None, {"x0": x})[0], want, strict=True)
    assert not session._native.programs.needs.dims


@pytest.mark.parametrize("threads", [1, 2])
def test_the_cost_of_kernels_whose_dims_are_long(threads: int) -> None:
    """The cost, which decides whether threads pay off, is estimated from the dims."""
    data = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[?, ?, ?, ?, ?] x, float[?, ?, ?, ?, ?] w) => (float[N, M, O, P, Q] y)
        { y = ConvTranspose (x, w) }""").SerializeToString()
    session = InferenceSession(data, SessionOptions(intra_op_num_threads=threads))
    peer = onnx.reference.ReferenceEvaluator(data)
    for size in (3, 2):
        feeds = {"x": np.ones((1, 2, size, 4, 5), np.float32), "w": np.ones((2, 2, size, size, size), np.float32)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], peer.run(None, feeds)[0])


COUNTED = """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
g (float[n] x, float[n] w) => (float[] y) {
  doubled = Add (x, x)
  weights = Abs (w)
  y = own.pick (doubled, weights)
}
<domain: "own", opset_import: ["" : 20]>
pick (x, w) => (y) {
  zero = Constant <value: tensor = int64 {0}> ()
  scaled = Mul (x, w)
  flags = Cast <to = 9> (scaled)
  found = Compress <axis = 0> (x, flags)
  count = Size (found)
  some = Greater (count, zero)
  y = If (some) <then_branch = some_branch () => (float[n] y) { y = Neg (found) },
                 else_branch = none_branch () => (float y) { y = ReduceSum <keepdims = 0> (x) }>
}"""


def test_how_many_there_are_decides_on_ranks() -> None:
    """In a function, by what follows from several values of the main graph."""
    data = onnx.parser.parse_model(COUNTED).SerializeToString()
    session, peer = InferenceSession(data), onnxruntime.InferenceSession(data)
    for w in ([0, 0, 0], [0, 1, -1], [0, 0, 0], [2, 1, 0]):
        feeds = {"x": np.float32([1, 2, 3]), "w": np.float32(w)}
        (got,), (expected,) = session.run(None, feeds), peer.run(None, feeds)
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got, expected)


def test_a_full_table_forgets_the_oldest_program() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[N] x, int64[R] shape) => (float y) { y = Reshape (x, shape) }""")
    model.graph.output[0].ClearField("type")
    session = InferenceSession(model.SerializeToString())
    executors, keys = session._native.executors, []
    for n in range(1, MAX_PROGRAMS + 2):
        feeds = {"x": np.arange(n, dtype=np.float32), "shape": np.array([1, n])}
        assert session.run(None, feeds)[0].shape == (1, n)
        keys.append(list(executors)[-1])
    assert list(executors) == keys[1:]
    assert session.run(None, {"x": np.float32([5]), "shape": np.array([1, 1])})[0].tolist() == [[5]]
    assert list(executors) == [*keys[2:], keys[0]]
