"""Small models, each for one possible error of a runtime, with expected outputs from NumPy.

One table for native and browser tests. Feeds and outputs have the types of onnxruntime's Python API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

Runs = list[tuple[dict[str, Any], list[Any]]]


@dataclass(frozen=True)
class Probe:
    """runs: feeds and expected outputs, in order, on one session."""

    name: str
    model: bytes
    runs: Runs
    rtol: float = 1e-5
    atol: float = 1e-6


def _parsed(text: str, opset: int = 20) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def _probe(name: str, text: str, runs: Runs, opset: int = 20, **tolerances: float) -> Probe:
    return Probe(name, _parsed(text, opset).SerializeToString(), runs, **tolerances)


def _f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = _f32(1, -2, 3, -4)
GRID = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def _control() -> Iterator[Probe]:
    yield _probe(
        "if_at_run_time",
        """g (float[N] x, bool c) => (float[M] y) {
          y = If (c) <then_branch = t () => (float[M] a) { a = Neg (x) },
                      else_branch = e () => (float[M] b) { b = Concat <axis = 0> (x, x) }>
        }""",
        [({"x": X, "c": np.array(True)}, [-X]), ({"x": X, "c": np.array(False)}, [np.concatenate([X, X])])],
    )
    yield _probe(
        "loop_while_small",
        """g (int64 most, float[N] x) => (float[N] y, float[K, N] steps) {
          go = Constant <value = bool {1}> ()
          y, steps = Loop (most, go, x) <body = b (int64 i, bool c, float[N] s) => (bool more, float[N] t, float[N] o) {
            t = Add (s, s)  o = Identity (t)  total = ReduceSum <keepdims = 0> (t)
            limit = Constant <value = float {20.0}> ()  more = Less (total, limit)
          }>
        }""",
        [
            ({"most": np.array(10), "x": _f32(1, 2)}, [_f32(8, 16), np.stack([_f32(2, 4), _f32(4, 8), _f32(8, 16)])]),
            ({"most": np.array(1), "x": _f32(1, 2)}, [_f32(2, 4), _f32(2, 4)[None]]),
            ({"most": np.array(0), "x": _f32(1, 2)}, [_f32(1, 2), np.zeros((0, 2), np.float32)]),
        ],
    )
    yield _probe(
        "scan",
        """g (float[N] start, float[T, N] x) => (float[N] last, float[T, N] sums) {
          last, sums = Scan <num_scan_inputs = 1, body = b (float[N] s, float[N] e) => (float[N] t, float[N] o) {
            t = Add (s, e)  o = Mul (t, t)
          }> (start, x)
        }""",
        [({"start": np.ones(4, np.float32), "x": GRID}, [1 + GRID.sum(0), (1 + GRID.cumsum(0)) ** 2])],
    )


def _rotations() -> Iterator[Probe]:
    """Each step rotates a row by a product of bytes, which WebAssembly repeats without the executor."""
    row, turned = np.array([[7, 0, 255, 3]], np.uint8), np.roll(np.eye(4, dtype=np.int8), 1, 1)

    def run(steps: int, last: int) -> tuple[dict[str, Any], list[Any]]:
        count = min(steps, last + 1)
        rows = np.array([np.roll(row, n + 1) for n in range(count)], np.uint8).reshape(count, 1, 4)
        feeds = {"steps": np.array(steps), "last": np.array(last), "row": row, "w": turned}
        return feeds, [np.roll(row, count), rows, np.arange(count)]

    yield _probe(
        "loop_of_products",
        """g (int64 steps, int64 last, uint8[1, 4] row, int8[4, 4] w)
            => (uint8[1, 4] y, uint8[K, 1, 4] rows, int64[K] numbers) {
          y, rows, numbers = Loop <body = b (int64 i, bool c, uint8[1, 4] h)
              => (bool more, uint8[1, 4] v, uint8[1, 4] o, int64 j) {
            k = MatMulInteger (h, w)  v = Cast <to = 2> (k)  o = Identity (v)  j = Identity (i)  more = Less (i, last)
          }> (steps, , row)
        }""",
        [run(3000, 3000), run(1, 9), run(0, 9), run(3000, 2345), run(2, 9)],
    )


def _data_dependent() -> Iterator[Probe]:
    kept = GRID[GRID > 0]
    yield _probe(
        "nonzero_feeds_kernels",
        """g (float[R, C] x) => (float[K] y, float s, int64[2, K] where) {
          zero = Constant <value = float {0.0}> ()  m = Greater (x, zero)  where = NonZero (m)
          at = Transpose <perm = [1, 0]> (where)  picked = GatherND (x, at)  y = Exp (picked)
          s = ReduceSum <keepdims = 0> (y)
        }""",
        [
            ({"x": GRID}, [np.exp(kept), np.exp(kept).sum(), np.stack(np.nonzero(GRID > 0))]),
            ({"x": -np.abs(GRID)}, [_f32(), np.float32(0), np.zeros((2, 0), np.int64)]),
        ],
    )
    values, index, inverse, counts = np.unique(
        _i64(3, 1, 3, 2, 1, 3), return_index=True, return_inverse=True, return_counts=True
    )
    yield _probe(
        "unique",
        """g (int64[N] x) => (int64[K] y, int64[K] first, int64[N] back, int64[K] twice) {
          y, first, back, counts = Unique <sorted = 1> (x)  twice = Add (counts, counts)
        }""",
        [({"x": _i64(3, 1, 3, 2, 1, 3)}, [values, index, inverse, 2 * counts])],
    )
    yield _probe(
        "shape_from_data",
        """g (float x, int64[R] dims, int64 n) => (float[] y, int64[M] r) {
          y = Expand (x, dims)  zero = Constant <value = int64 {0}> ()  one = Constant <value = int64 {1}> ()
          r = Range (zero, n, one)
        }""",
        [
            ({"x": np.array(2, "f4"), "dims": _i64(2, 3), "n": np.array(4)}, [np.full((2, 3), 2, "f4"), np.arange(4)]),
            ({"x": np.array(2, "f4"), "dims": _i64(3, 1), "n": np.array(0)}, [np.full((3, 1), 2, "f4"), np.arange(0)]),
        ],
    )


def _other_values() -> Iterator[Probe]:
    yield _probe(
        "strings",
        "g (string[N] x, string[N] z) => (string[N] y) { y = StringConcat (x, z) }",
        [({"x": np.array(["a", "ß"], object), "z": np.array(["1", ""], object)}, [np.array(["a1", "ß"], object)])],
    )
    yield _probe(
        "sequences",
        """g (float[N] x, float[N] z, int64 i) => (float[N] y, seq(float[?]) s, int64 n) {
          s = SequenceConstruct (x, z, x)  one = SequenceAt (s, i)  y = Neg (one)  n = SequenceLength (s)
        }""",
        [({"x": X, "z": 2 * X, "i": np.array(1)}, [-2 * X, [X, 2 * X, X], np.array(3)])],
    )
    yield _probe(
        "optionals",
        """g (optional(float[N]) x) => (bool has, float[M] y) {
          has = OptionalHasElement (x)
          y = If (has) <then_branch = t () => (float[M] a) { got = OptionalGetElement (x)  a = Neg (got) },
                        else_branch = e () => (float[M] b) { b = Constant <value = float[1] {7.0}> () }>
        }""",
        [({"x": X}, [np.array(True), -X]), ({"x": None}, [np.array(False), _f32(7)])],
    )


def _element_types() -> Iterator[Probe]:
    base = np.array([0.1, -1.7, 3.3, 8.0])
    for name, dtype, rtol in [
        ("double", np.dtype(np.float64), 1e-12),
        ("float16", np.dtype(np.float16), 2e-3),
        ("bfloat16", np.dtype(ml_dtypes.bfloat16), 2e-2),
    ]:
        x = base.astype(dtype)
        y = (x.astype(np.float64) ** 2 + x.astype(np.float64)).astype(dtype)
        text = f"g ({name}[N] x) => ({name}[N] y) {{ q = Mul (x, x)  y = Add (q, x) }}"
        yield _probe(f"type_{name}", text, [({"x": x}, [y])], rtol=rtol)
    packed = np.array([-8, -1, 0, 3, 7], np.int8).astype(ml_dtypes.int4)
    yield _probe(
        "type_int4",
        "g (int4[N] x, float s) => (float[N] y) { y = DequantizeLinear (x, s) }",
        [({"x": packed, "s": np.array(0.5, "f4")}, [packed.astype(np.float32) * np.float32(0.5)])],
        opset=21,
    )
    flags = np.array([True, False, True, False]), np.array([True, True, False, False])
    yield _probe(
        "type_bool",
        "g (bool[N] x, bool[N] z) => (bool[N] y, bool[N] n) { y = And (x, z)  n = Not (x) }",
        [({"x": flags[0], "z": flags[1]}, [flags[0] & flags[1], ~flags[0]])],
    )
    big = 2**40
    yield _probe(
        "type_int64_beyond_32_bits",
        "g (int64[N] x, int64[N] z) => (int64[N] p, int64[N] d) { p = Mul (x, z)  d = Div (x, z) }",
        [({"x": _i64(big + 7, -7), "z": _i64(3, 2)}, [_i64(3 * big + 21, -14), _i64((big + 7) // 3, -3)])],
    )


def _shapes() -> Iterator[Probe]:
    yield _probe(
        "zero_size",
        """g (float[N, M] x, float[M, K] w) => (float[N, K] y, float[N] s, float[M] p) {
          y = MatMul (x, w)  one = Constant <value = int64[1] {1}> ()  s = ReduceSum <keepdims = 0> (x, one)
          zero = Constant <value = int64[1] {0}> ()  p = ReduceProd <keepdims = 0> (x, zero)
        }""",
        [
            (
                {"x": np.zeros((0, 3), "f4"), "w": np.ones((3, 2), "f4")},
                [np.zeros((0, 2), "f4"), _f32(), _f32(1, 1, 1)],
            ),
            ({"x": np.zeros((2, 0), "f4"), "w": np.ones((0, 2), "f4")}, [np.zeros((2, 2), "f4"), _f32(0, 0), _f32()]),
            ({"x": np.ones((2, 1), "f4"), "w": np.ones((1, 1), "f4")}, [np.ones((2, 1), "f4"), _f32(1, 1), _f32(1)]),
        ],
        opset=18,
    )
    yield _probe(
        "scalars",
        "g (float x, float z) => (float y, int64[0] s) { q = Mul (x, z)  y = Sqrt (q)  s = Shape (x) }",
        [({"x": np.array(2, "f4"), "z": np.array(8, "f4")}, [np.array(4, np.float32), _i64()])],
    )
    cube = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
    text = "g (float[A, B, C] x) => (float[A, B, C] y) { y = Softmax <axis = AXIS> (x) }"
    for opset, axis, flat in [(1, 1, True), (11, 1, True), (13, 1, False)]:
        rows = cube.reshape(2, 12) if flat else cube
        e = np.exp(rows - rows.max(1, keepdims=True))
        y = (e / e.sum(1, keepdims=True)).reshape(cube.shape)
        yield _probe(f"softmax_opset_{opset}", text.replace("AXIS", str(axis)), [({"x": cube}, [y])], opset=opset)


def _model_parts() -> Iterator[Probe]:
    text = """<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>
    g (float[N] x) => (float[N] y) { t = mine.scaled <by = 3.0> (x)  y = mine.scaled (t) }
    <domain: "mine", opset_import: ["" : 20]> scaled <by: float = 2.0> (a) => (b) {
      k = Constant <value_float: float = @by> ()  b = Mul (a, k)
    }"""
    yield Probe("local_function", onnx.parser.parse_model(text).SerializeToString(), [({"x": X}, [6 * X])])
    dense = np.zeros((4, 3), np.float32)
    dense[0, 1], dense[2, 0], dense[3, 2] = 2, -1, 5
    for name, indices in [("flat", np.flatnonzero(dense)), ("rows", np.argwhere(dense))]:
        model = _parsed("g (float[N, 4] x) => (float[N, 3] y) { y = MatMul (x, w) }")
        values = numpy_helper.from_array(dense[dense != 0], "w")
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices.astype(np.int64)), dense.shape)
        model.graph.sparse_initializer.append(sparse)
        yield Probe(f"sparse_initializer_{name}", model.SerializeToString(), [({"x": GRID}, [GRID @ dense])])


PROBES = {
    probe.name: probe
    for family in (_control, _rotations, _data_dependent, _other_values, _element_types, _shapes, _model_parts)
    for probe in family()
}
