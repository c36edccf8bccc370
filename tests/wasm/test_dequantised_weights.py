"""Weights that DequantizeLinear makes floats, as exporters write them, keep the size of their codes
(docs/design/low-bit-weights.md#dequantizelinear-weights)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import ExecutionError
from tests.wasm.test_routines import node

K, N = 260, 253  # no multiples of blocks, nor of panels
RANGES = {T.INT2: (-2, 2), T.UINT2: (0, 4), T.INT4: (-8, 8), T.UINT4: (0, 16), T.INT8: (-128, 128), T.UINT8: (0, 256)}
RNG = np.random.default_rng(7)


class Weights(NamedTuple):
    """block: 0 where a scale is of a column (`one`: of all), zeros: "", "all" different, or "same". stored: the matrix
    lies transposed. By: what reads it. cast: where Casts stand, of "scales" or "weights"."""

    kind: int
    block: int
    zeros: str = ""
    stored: bool = False
    half: bool = False
    by: str = "MatMul"
    cast: str = ""
    one: bool = False

    @property
    def bits(self) -> int:
        return {T.INT8: 8, T.UINT8: 8, T.INT2: 2, T.UINT2: 2}.get(self.kind, 4)


CASES = [
    Weights(T.UINT4, 32, "all"), Weights(T.INT4, 16), Weights(T.INT4, 64, "all", True), Weights(T.UINT4, 128, "same"),
    Weights(T.UINT4, 32), Weights(T.INT4, 20, "same"), Weights(T.INT8, 32), Weights(T.UINT8, 64, "all"),
    Weights(T.INT2, 32), Weights(T.UINT2, 16, "all"), Weights(T.INT4, 0), Weights(T.INT4, 0, "all", True),
    Weights(T.INT8, 0, "", True), Weights(T.UINT8, 0, "same", one=True), Weights(T.INT4, K),
    Weights(T.UINT4, 32, "all", half=True), Weights(T.INT8, 0, "", half=True), Weights(T.INT4, 32, "", cast="scales"),
    Weights(T.UINT4, 32, "all", cast="weights"), Weights(T.INT4, 32, "all", True, by="Gemm"),
    Weights(T.UINT4, 16, "", by="Gemm"), Weights(T.UINT4, 32, "all", True, by="Gemm transB"),
]  # fmt: skip


def codes(kind: int, shape: tuple[int, ...], high: int = 0) -> np.ndarray:
    low, end = RANGES[kind]
    return RNG.integers(low, high or end, shape)


def tensor(name: str, kind: int, values: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, values.shape, values.ravel())


def halves(x: Any) -> np.ndarray:
    return np.asarray(x, np.float16)


def made(case: Weights, table: tuple[int, int]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], np.ndarray]:
    """Nodes and initializers that make "w" of this shape; what it is, in float64."""
    axis = 1 if case.stored else 0
    steps = [-(-d // case.block) if n == axis else d for n, d in enumerate(table)] if case.block else [table[1 - axis]]
    steps = [] if case.one else steps
    code, scale = codes(case.kind, table), RNG.uniform(0.01, 0.02, steps).astype(np.float32)
    narrow = case.half or case.cast
    scale = np.asarray(halves(scale) if narrow else scale)
    middle = sum(RANGES[case.kind]) // 2
    zero = codes(case.kind, tuple(steps)) if case.zeros == "all" else np.full(steps, middle + (case.kind == T.INT4))
    weights = [tensor("codes", case.kind, code), numpy_helper.from_array(scale, "scales")]
    nodes, names = [], ["codes", "scales"]
    if case.cast == "scales":
        nodes.append(node("Cast", "scales", "wide", to=T.FLOAT))
        names[1] = "wide"
    if case.zeros:
        weights.append(tensor("zeros", case.kind, zero))
        names.append("zeros")
    attrs = {"axis": axis, "block_size": case.block} if case.block else {} if case.one else {"axis": 1 - axis}
    nodes.append(node("DequantizeLinear", " ".join(names), "w", **attrs))

    def spread(x: np.ndarray) -> np.ndarray:
        if case.block:
            return np.repeat(x, case.block, axis)[: table[0], : table[1]]
        return x if case.one else np.expand_dims(x, axis)

    real = (code - (spread(zero) if case.zeros else 0)) * spread(scale.astype(np.float64))
    return nodes, weights, real


def product(case: Weights, readers: int = 1) -> tuple[bytes, np.ndarray]:
    nodes, weights, real = made(case, (N, K) if case.stored else (K, N))
    b, of = "w", T.FLOAT16 if case.half else T.FLOAT
    if case.cast == "weights":
        nodes.append(node("Cast", b, "wide", to=T.FLOAT))
        b = "wide"
    if case.stored and case.by != "Gemm transB":
        nodes.append(node("Transpose", b, "turned", perm=[1, 0]))
        b = "turned"
    gemm = {"alpha": 0.5, "transB": int(case.by == "Gemm transB")} if case.by != "MatMul" else {}
    nodes += [node(case.by.split()[0], f"x{n} {b}", f"y{n}", **gemm) for n in range(readers)]
    inputs = [helper.make_tensor_value_info(f"x{n}", of, ["rows", K]) for n in range(readers)]
    outputs = [helper.make_tensor_value_info(f"y{n}", of, ["rows", N]) for n in range(readers)]
    real = (real.T if case.stored else real) * gemm.get("alpha", 1)
    return serialised(case.kind, nodes, inputs, outputs, weights), real


def serialised(kind: int, nodes: Any, inputs: Any, outputs: Any, weights: Any) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    opset = 25 if kind in (T.INT2, T.UINT2) else 21
    ir = 13 if opset > 21 else 10
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def bytes_of(session: InferenceSession) -> int:
    return session.memory().providers["wasm"].weights


def peer(data: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime, which by itself quantises rows in front of such weights."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case: Weights) -> None:
    data, real = product(case)
    session = InferenceSession(data)
    for rows in (1, 2, 5):
        x = RNG.standard_normal((rows, K)).astype(np.float16 if case.half else np.float32)
        (got,) = session.run(None, {"x0": x})
        near = 2e-3 if case.half or case.cast == "weights" else 2e-6
        want = x.astype(np.float64) @ real
        np.testing.assert_allclose(got, want, rtol=0, atol=near * abs(want).max())
        if case.kind not in (T.INT2, T.UINT2):
            np.testing.assert_allclose(got, peer(data, {"x0": x})[0], rtol=0, atol=near * abs(want).max())
    reference = onnx.reference.ReferenceEvaluator(onnx.load_from_string(data)).run(None, {"x0": x})[0]
    np.testing.assert_allclose(got, reference, rtol=0, atol=near * abs(want).max())
    padded = 272 * 256
    blocks = -(-K // case.block) if case.block else 1
    assert bytes_of(session) <= padded * case.bits / 8 + 2 * 4 * 256 * blocks + 4096


def test_two_readers_share_the_codes() -> None:
    case = Weights(T.UINT4, 32, "all")
    one = InferenceSession(product(case)[0])
    data, real = product(case, 2)
    feeds = {f"x{n}": RNG.standard_normal((2, K)).astype(np.float32) for n in range(2)}
    two = InferenceSession(data)
    for got, x in zip(two.run(None, feeds), feeds.values(), strict=True):
        np.testing.assert_allclose(got, x @ real, rtol=0, atol=1e-4)
    assert bytes_of(two) <= bytes_of(one) + 1024


@pytest.mark.parametrize("block", [6, 2], ids=str)
def test_blocks_that_groups_do_not_fill_are_made_floats(block: int) -> None:
    data, real = product(Weights(T.INT4, block, "all"))
    x = RNG.standard_normal((3, K)).astype(np.float32)
    np.testing.assert_allclose(InferenceSession(data).run(None, {"x0": x})[0], x @ real, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rounded", [True, False])
def test_a_rounding_that_the_model_asks_for_stays(rounded: bool) -> None:
    """Weights of 2049 parts are 2048 as halves."""
    half = [node("Cast", "w", "half", to=T.FLOAT16), node("Cast", "half", "wide", to=T.FLOAT)]
    y = by_scales(1, half if rounded else [node("Identity", "w", "wide")], np.full(N, 2049 / 2048, np.float32))
    np.testing.assert_array_equal(y, np.full((1, N), K * (1 if rounded else 2049 / 2048), np.float32))


def test_scales_of_rows() -> None:
    """No code has the scale of its column or block."""
    scales = RNG.uniform(0.01, 0.02, K).astype(np.float32)
    np.testing.assert_allclose(by_scales(0, [node("Identity", "w", "wide")], scales), scales.sum(), rtol=1e-5)


def by_scales(axis: int, between: list[onnx.NodeProto], scales: np.ndarray) -> np.ndarray:
    """The product of ones by codes that are 1, with scales along an axis."""
    nodes = [node("DequantizeLinear", "codes scales", "w", axis=axis), *between, node("MatMul", "x wide", "y")]
    weights = [tensor("codes", T.INT8, np.ones((K, N), int)), numpy_helper.from_array(scales, "scales")]
    values = [helper.make_tensor_value_info(name, T.FLOAT, ["rows", n]) for name, n in (("x", K), ("y", N))]
    data = serialised(T.INT8, nodes, values[:1], values[1:], weights)
    return InferenceSession(data).run(None, {"x": np.ones((1, K), np.float32)})[0]


# ── embeddings ────────────────────────────────────────────────────────────────────────────────────────────────────

TABLES = [
    (Weights(T.UINT4, 32, "all", True), 1), (Weights(T.INT4, 16, "", True), 2), (Weights(T.INT8, 0, "", True), 1),
    (Weights(T.UINT8, 32, "all", True, half=True), 2),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLES, ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["", "tied"])
def test_embeddings_stay_codes(case: tuple[Weights, int], tied: bool) -> None:
    """Gathered by so many nodes; tied: the table makes logits as well."""
    what, gathers = case
    words, width = 520, 160
    nodes, weights, real = made(what, (words, width))
    nodes += [node("Gather", "w ids", f"y{n}") for n in range(gathers)]
    of = T.FLOAT16 if what.half else T.FLOAT
    outputs = [helper.make_tensor_value_info(f"y{n}", of, ["batch", "tokens", width]) for n in range(gathers)]
    if tied:
        nodes += [node("Transpose", "w", "turned", perm=[1, 0]), node("MatMul", "y0 turned", "logits")]
        outputs.append(helper.make_tensor_value_info("logits", of, ["batch", "tokens", words]))
    ids = helper.make_tensor_value_info("ids", T.INT64, ["batch", "tokens"])
    data = serialised(what.kind, nodes, [ids], outputs, weights)
    session, feeds = InferenceSession(data), {"ids": np.array([[3, -1, 519], [0, -520, 7]])}
    got, near = session.run(None, feeds), 3e-3 if what.half else 2e-6
    for x, y in zip(got, peer(data, feeds), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=near * abs(y).max())
    np.testing.assert_allclose(got[0], real[feeds["ids"]], rtol=1e-3, atol=1e-6)
    tables = what.bits / 8 + tied * (what.bits / 8 + 0.05)
    steps = words * (-(-width // what.block) if what.block else 1) * (4 + 1 + 8 * tied)
    assert bytes_of(session) <= words * width * tables + steps + 4096
    with pytest.raises(ExecutionError, match="520"):
        session.run(None, {"ids": np.array([[words]])})


# ── packed weights ────────────────────────────────────────────────────────────────────────────────────────────────


def looped() -> tuple[bytes, np.ndarray]:
    """A loop whose body is traced twice, since what it carries grows, with int4 weights of its own."""
    case = Weights(T.INT4, 0)
    nodes, weights, real = made(case, (256, 256))
    nodes += [node("MatMul", "x w", "y"), node("Concat", "carried y", "more", axis=0), node("Identity", "go", "on")]
    body = helper.make_graph(
        nodes, "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", T.INT64, []), ("go", T.BOOL, []),
                                                                ("carried", T.FLOAT, None))],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("on", T.BOOL), ("more", T.FLOAT))], weights,
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "x"], ["out"], body=body)
    inputs = [helper.make_tensor_value_info("n", T.INT64, []), helper.make_tensor_value_info("x", T.FLOAT, [1, 256])]
    return serialised(T.INT4, [loop], inputs, [helper.make_tensor_value_info("out", T.FLOAT, ["rows", 256])], []), real


@pytest.mark.parametrize("level", ["disabled", "basic", "all"])
def test_weights_of_a_body_that_is_traced_twice(level: str) -> None:
    data, real = looped()
    x = RNG.standard_normal((1, 256)).astype(np.float32)
    session = InferenceSession(data, SessionOptions(graph_optimization_level=level))
    (got,) = session.run(None, {"n": np.array(3), "x": x})
    np.testing.assert_allclose(got, np.concatenate([x, *[x.astype(np.float64) @ real] * 3]), rtol=1e-4, atol=1e-4)


def test_elements_are_taken_out_once_where_nothing_is_optimised() -> None:
    """Not in each run: there they would be bytes beside the run's other values."""
    nodes, weights, real = made(Weights(T.UINT4, 32, "", True), (520, 160))
    gather = helper.make_node("GatherBlockQuantized", ["codes", "ids", "scales"], ["y"], domain="com.microsoft",
                              block_size=32, quantize_axis=1)  # fmt: skip
    ids = helper.make_tensor_value_info("ids", T.INT64, [2])
    graph = helper.make_graph([gather], "g", [ids], [helper.make_tensor_value_info("y", T.FLOAT, None)], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    session = InferenceSession(data, SessionOptions(graph_optimization_level="disabled"))
    (got,) = session.run(None, {"ids": np.array([519, 3])})
    np.testing.assert_allclose(got, real[[519, 3]], rtol=1e-5, atol=1e-6)
    assert session.memory().providers["wasm"].peak < 520 * 160 // 2
