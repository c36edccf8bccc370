"""Quantised operators of ONNX Runtime, compared with it; refused models."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from kit.small_models import model
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import UnsupportedOp
from pyruntime.frontend.trace_graph import TensorSpec, trace_graph
from pyruntime.ir.dtype import F32
from pyruntime.ir.kernel import Call
from pyruntime.onnx.load import load
from pyruntime.onnx.weight_values import elements
from tests.ops.dynamic import Case, arrays, build, check

B = ({"B": 3}, {"B": 1}, {"B": 0})


def value(x: Any, kind: Any = np.float32) -> Any:
    return (lambda shape, sizes, rng: np.full(shape, x), kind, "")


def scales(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.uniform(0.01, 0.1, shape)


def near(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(100, 150, shape)


def small(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(-20, 20, shape)


def weights(shape: Any, sizes: Any, rng: Any) -> Any:
    """int8 that onnxruntime multiplies exactly on every processor: it adds pairs of products in 16 bits on some."""
    return rng.integers(-63, 64, shape)


U8, I8, I32 = np.uint8, np.int8, np.int32
A = {"a": (U8, "B 4 5"), "a_scale": value(0.02), "a_zero": value(120, U8)}
OTHER = {"b": (U8, "4 5"), "b_scale": value(0.03), "b_zero": value(7, U8)}
OUT = {"y_scale": value(0.05), "y_zero": value(130, U8)}
IMAGE = {"x": (U8, "B 2 5 4"), "x_scale": value(0.02), "x_zero": value(120, U8)}


def nbits(
    bits: int, n: int, k: int, block: int, *, zeros: str = "", bias: bool = False, kind: Any = np.float32
) -> Case:
    blocks = -(-k // block)
    inputs: dict[str, Any] = {
        "a": (kind, f"B 2 {k}"), "b": (U8, f"{n} {blocks} {block * bits // 8}"),
        "scales": (scales, kind, f"{n} {blocks}"),
    }  # fmt: skip
    if zeros == "packed":
        inputs["zeros"] = (U8, f"{n} {-(-blocks * bits // 8)}")
    elif zeros:
        inputs["zeros"] = (kind, f"{n} {blocks}")
    if bias:
        inputs |= {} if zeros else {"_z": ""}
        inputs |= {"_g": "", "bias": (kind, f"{n}")}
    fixed = frozenset(k for k in inputs if k in ("b", "scales", "zeros", "bias"))
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    return Case("MatMulNBits", attrs, inputs, B, fixed, tolerance=2e-3 if kind is np.float16 else 1e-4,
                name=f"MatMulNBits {bits} {n}x{k}/{block} {zeros}{' bias' * bias} {np.dtype(kind)}")  # fmt: skip


CASES = [
    nbits(4, 5, 32, 16), nbits(4, 3, 48, 16, zeros="packed"), nbits(4, 3, 40, 32, zeros="packed", bias=True),
    nbits(4, 4, 32, 16, zeros="float", bias=True), nbits(8, 3, 32, 16), nbits(8, 3, 48, 16, zeros="packed"),
    nbits(2, 3, 32, 16, bias=True), nbits(4, 4, 32, 32, kind=np.float16),
    Case("QLinearAdd", {}, {**A, **OTHER, **OUT}, B), Case("QLinearMul", {}, {**A, **OTHER, **OUT}, B),
    Case("QLinearSigmoid", {}, {**A, "y_scale": value(0.004), "y_zero": value(0, U8)}, B),
    Case("QLinearLeakyRelu", {"alpha": 0.2}, {**A, **OUT}, B),
    Case("QLinearAveragePool", {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1], "strides": [2, 1]}, {**IMAGE, **OUT},
         B[:2]),
    Case("QLinearGlobalAveragePool", {}, {**IMAGE, **OUT}, B[:2]),
    Case("QLinearGlobalAveragePool", {"channels_last": 1}, {**IMAGE, **OUT}, B[:2]),
    Case("QLinearWhere", {}, {"c": (lambda s, z, r: r.integers(0, 2, s), np.bool_, "B 4 1"), **A, **OTHER, **OUT}, B),
    Case("QLinearSoftmax", {"axis": -1, "opset": 13},
         {**A, "y_scale": value(1 / 256), "y_zero": value(0, U8)}, B[:2]),
    Case("QLinearSoftmax", {"axis": 1, "opset": 11},
         {**A, "y_scale": value(1 / 256), "y_zero": value(0, U8)}, B[:2]),
    Case("QLinearConcat", {"axis": 1}, {**OUT, **A, "c": (U8, "B 2 5"), "c_scale": value(0.01), "c_zero": value(3, U8)},
         B),
    Case("QGemm", {}, {"a": (U8, "B 5"), "a_scale": value(0.02), "a_zero": value(120, U8), "b": (U8, "5 4"),
                       "b_scale": value(0.03), "b_zero": value(7, U8), "c": (small, I32, "4"), **OUT}, B[:2]),
    Case("QGemm", {"transB": 1, "alpha": 0.5},
         {"a": (U8, "B 5"), "a_scale": value(0.02), "a_zero": value(120, U8), "b": (weights, I8, "4 5"),
          "b_scale": (scales, np.float32, "4"), "b_zero": (small, I8, "4")}, B[:2], name="QGemm per column"),
    Case("DynamicQuantizeMatMul", {}, {"a": "B 5", "b": (U8, "5 4"), "b_scale": value(0.03), "b_zero": value(7, U8),
                                       "bias": "4"}, B[:2]),
    Case("DynamicQuantizeMatMul", {}, {"a": "B 2 5", "b": (weights, I8, "5 4"), "b_scale": (scales, np.float32, "4")},
         B[:2], name="DynamicQuantizeMatMul per column"),
    Case("MatMulIntegerToFloat", {}, {"a": (U8, "B 5"), "b": (U8, "5 4"), "as": value(0.02), "bs": value(0.03),
                                      "az": value(120, U8), "bz": value(7, U8), "bias": "4"}, B[:2]),
    Case("QuantizeLinear", {}, {"x": "B 4", "s": value(0.02), "z": value(-3, np.int16)}, B),
    Case("QuantizeLinear", {}, {"x": (np.float16, "B 4"), "s": value(4e-4, np.float16), "z": value(-3, np.int16)}, B,
         name="quotients beyond a half's digits"),
    Case("DequantizeLinear", {"axis": 1}, {"x": (U8, "B 4"), "s": (scales, np.float32, "4"), "z": (near, U8, "4")}, B),
    Case("GatherBlockQuantized", {"bits": 4, "block_size": 16, "quantize_axis": 1},
         {"data": (U8, "6 16"), "i": (lambda s, z, r: r.integers(0, 6, s), np.int64, "B 2"),
          "scales": (scales, np.float32, "6 2"), "zeros": (U8, "6 1")}, B,
         frozenset({"data", "scales", "zeros"})),
]  # fmt: skip

OFFICIAL = [
    Case("QLinearConv", {"pads": [1, 1, 1, 1], "group": 2},
         {"x": (U8, "B 4 5 4"), "xs": value(0.02), "xz": value(120, U8), "w": (weights, I8, "4 2 3 3"),
          "ws": (scales, np.float32, "4"), "wz": (lambda s, z, r: np.zeros(s), I8, "4"), "ys": value(0.2),
          "yz": value(128, U8), "b": (small, I32, "4")}, B, frozenset({"w", "ws", "wz", "b"}), domain=""),
    Case("ConvInteger", {"strides": [2]}, {"x": (U8, "B 2 T"), "w": (U8, "3 2 3"), "xz": value(9, U8)},
         ({"B": 2, "T": 7}, {"B": 1, "T": 4}), domain=""),
    Case("MatMulInteger", {},
         {"a": (U8, "B 5"), "b": (weights, I8, "5 4"), "az": value(120, U8), "bz": (small, I8, "4")}, B[:2], domain=""),
    Case("MatMulInteger", {},
         {"a": (U8, "K"), "b": (weights, I8, "K 4"), "az": (U8, "one"), "bz": (small, I8, "4")},
         ({"K": 5, "one": 1}, {"K": 3, "one": 1}), domain="", name="MatMulInteger of a vector"),
    Case("DynamicQuantizeLinear", {}, {"x": "B T"}, ({"B": 2, "T": 3}, {"B": 1, "T": 1}), outputs=("y", "s", "z"),
         domain=""),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES + OFFICIAL, ids=str)
def test_against_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("op", "scales"), [("QLinearAdd", (0.3, 0.3, 0.6)), ("QLinearMul", (0.3, 0.7, 0.42))])
def test_ties_of_all_codes(op: str, scales: tuple[float, ...]) -> None:
    """Compared with the exact sum or product. The sum's scales have ratios of 1/2: half of the sums are ties between
    two codes."""
    codes = np.arange(256)
    a = (lambda s, z, r: codes[:, None], U8, "256 1")
    b = (lambda s, z, r: codes[None], U8, "1 256")
    names = dict(zip(("a_scale", "b_scale", "y_scale"), (value(s) for s in scales), strict=True))
    parts = {"a": a, "a_scale": names["a_scale"], "a_zero": value(120, U8), "b": b, "b_scale": names["b_scale"],
             "b_zero": value(7, U8), "y_scale": names["y_scale"], "y_zero": value(128, U8)}  # fmt: skip
    left, right, out = [Fraction(float(np.float32(s))) for s in scales]

    def exact(_: Any, feeds: Any) -> list[np.ndarray]:
        x, y = codes[:, None] - 120, codes[None] - 7
        steps = (x * (left / out) + y * (right / out)) if op == "QLinearAdd" else x * y * (left * right / out)
        return [np.clip(np.vectorize(round)(steps).astype(int) + 128, 0, 255).astype(U8)]

    check(Case(op, {}, parts, ({},), tolerance=0.0), exact)


def weights_of(case: Case, m: Any) -> np.ndarray:
    """(N, K) by the definition: the codes of a block are one row of bits, lowest first."""
    given = {w.name: numpy_helper.to_array(w) for w in m.graph.initializer}
    bits, size, n, k = (case.attrs[key] for key in ("bits", "block_size", "N", "K"))

    def row(packed: np.ndarray, count: int) -> np.ndarray:
        each = np.unpackbits(packed, axis=-1, bitorder="little")[..., : count * bits]
        return each.reshape(*packed.shape[:-1], count, bits) @ (1 << np.arange(bits))

    blocks = -(-k // size)
    zeros = given.get("zeros", np.full((n, blocks), 1 << (bits - 1)))
    zeros = row(zeros, blocks) if zeros.dtype == np.uint8 else zeros
    group = given.get("g", np.arange(k) // size)
    codes = row(given["b"], size).reshape(n, -1)[:, :k]
    return ((codes - zeros[:, group]) * given["scales"][:, group]).astype(np.float32)


def in_any_order(case: Case, uneven: bool = False) -> Case:
    """The same with g_idx. uneven: blocks have more or fewer elements than the block size."""
    k, size = case.attrs["K"], case.attrs["block_size"]
    of_places = np.arange(k) ** (1 + uneven) // k**uneven // size
    group = (lambda shape, sizes, rng: rng.permutation(of_places), I32, f"{k}")
    absent = {} if "zeros" in case.inputs else {"_z": ""}
    return replace(case, inputs={**case.inputs, **absent, "g": group}, weights=case.weights | {"g"})


def test_blocks_in_any_order() -> None:
    check(in_any_order(nbits(4, 3, 48, 16)))


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize(("bits", "level"), [(2, 0), (3, 0), (4, 0), (4, 4), (8, 0), (8, 4)])
def test_blocks_in_any_order_in_sessions(provider: str, bits: int, level: int) -> None:
    for uneven in (False, True):
        case = in_any_order(nbits(bits, 33, 200, 32, zeros="packed"), uneven)
        case.attrs["accuracy_level"] = level
        given = arrays(case, B[0])
        made = build(case, given)
        (y,) = InferenceSession(made.SerializeToString(), providers=[provider]).run(None, {"a": given["a"]})
        exact = given["a"] @ weights_of(case, made).T
        rounding = 0.0 if level == 0 else 1e-2 if provider == "webgpu" else 1e-3  # a GPU may round rows to 8 bits
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4 + rounding * np.abs(exact).max())


@pytest.mark.parametrize("uneven", [False, True])
def test_which_order_keeps_the_routine(uneven: bool) -> None:
    """Otherwise codes are read one by one."""
    case = in_any_order(nbits(4, 3, 48, 16), uneven)
    graph = load(build(case, arrays(case, B[0])).SerializeToString())
    traced = trace_graph(graph, {"a": TensorSpec(F32, (3, 2, 48))}, elements, {})
    calls = [kernel for kernel in traced.block.kernels if isinstance(kernel, Call)]
    assert [call.routine for call in calls] == ["matmul_nbits"] * (not uneven)


FEW_ROWS = [(7, 32, 16), (8, 40, 32), (9, 30, 16), (17, 64, 64), (16, 129, 128), (24, 3, 16)]


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "float"])
def test_few_rows(rows: int, bits: int, zeros: str) -> None:
    """Around panels of 8 columns and groups of 4 k; the memory after a row of the input is not used."""
    for n, k, block in FEW_ROWS:
        case = nbits(bits, n, k, block, zeros=zeros, bias=rows == 2)
        case = replace(case, inputs={**case.inputs, "a": (np.float32, f"B {k}")})
        given = arrays(case, {"B": rows})
        made = build(case, given)
        for relaxed in (None, False):
            session = InferenceSession(made.SerializeToString(), SessionOptions(relaxed_simd=relaxed))
            (y,) = session.run(None, {"a": given["a"]})
            np.testing.assert_allclose(y, given["a"] @ weights_of(case, made).T + bias_of(made), rtol=1e-4, atol=1e-4)


LEVEL_4 = [(7, 32, 16), (8, 40, 32), (9, 30, 16), (150, 129, 128), (8, 300, 256), (3, 600, 512)]


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "float"])
def test_rows_that_may_be_quantised(rows: int, bits: int, zeros: str) -> None:
    """With accuracy_level 4 the error is at most that of half steps of 1/32767. The difference from onnxruntime may be
    twice the error of half steps of 1/127, which onnxruntime uses on most processors."""
    for n, k, block in LEVEL_4:
        case, given = level_4(bits, n, k, block, rows, zeros)
        given["a"][:, ::7] *= 20
        given["a"][:, block : 2 * block] = 0
        made = build(case, given)
        session = InferenceSession(made.SerializeToString(), SessionOptions(intra_op_num_threads=rows))
        (y,) = session.run(None, {"a": given["a"]})
        weights = weights_of(case, made).T
        exact = given["a"] @ weights + bias_of(made)
        half_steps = np.abs(given["a"]).max() / 254 * np.abs(weights).sum(0) + 1e-5 * np.abs(exact).max()
        assert (np.abs(y - exact) <= half_steps / 100).all()
        if block <= 256 and (bits == 4 or zeros != "float"):  # others onnxruntime has not
            (peer,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"a": given["a"]})
            assert (np.abs(y - peer) <= 2 * half_steps).all()


def level_4(bits: int, n: int, k: int, block: int, rows: int, zeros: str = "") -> tuple[Case, dict[str, Any]]:
    case = nbits(bits, n, k, block, zeros=zeros, bias=rows == 2)
    inputs = {**case.inputs, "a": (np.float32, f"B {k}")}
    case = replace(case, inputs=inputs, attrs={**case.attrs, "accuracy_level": 4})
    return case, arrays(case, {"B": rows})


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e37])
def test_quantised_rows_keep_what_is_no_code(bits: int, value: float) -> None:
    """Non-finite elements make only their own row non-finite; the steps of very large elements stay finite."""
    case, given = level_4(bits, 8, 64, 32, 2)
    given["a"][0, 5] = value
    (y,) = InferenceSession(build(case, given).SerializeToString()).run(None, {"a": given["a"]})
    assert np.isfinite(y[1]).all() and np.isfinite(y[0]).all() == np.isfinite(value)


@pytest.mark.parametrize("zeros", ["", "packed"])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_rows_of_tiny_numbers(bits: int, zeros: str) -> None:
    """Subnormal steps lose digits, but codes do not wrap: zeros would be less accurate."""
    for exponent in range(-44, -32):
        case, given = level_4(bits, 8, 64, 32, 1, zeros)
        given["a"] = (given["a"] * 10.0**exponent).astype(np.float32)
        made = build(case, given)
        (y,) = InferenceSession(made.SerializeToString()).run(None, {"a": given["a"]})
        exact = given["a"].astype(np.float64) @ weights_of(case, made).T
        assert np.abs(y - exact).max() <= 1.01 * np.abs(exact).max()


def middle_codes(made: Any, k: int) -> None:
    """Row k of the weights becomes 0 in the first four columns, the middle of their codes."""
    (codes,) = [w for w in made.graph.initializer if w.name == "b"]
    values = numpy_helper.to_array(codes).copy()
    values[:4, 0, k // 2] = values[:4, 0, k // 2] & (0xF0 if k % 2 == 0 else 0x0F) | (8 << 4 * (k % 2))
    codes.CopyFrom(numpy_helper.from_array(values, codes.name))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    "large,small,far",
    [(1.0, 1.0, 1e-6), (1e3, 1.0, 1e-5), (2.0**18, 1.0, 1e-3), (2.0**24, 1.0, 1e-6), (1e37, 1e-3, 1e-6),
     (1e-36, 1e-38, 1e-6), (1.0, 0.0, 1e-6), (-1e30, 1e25, 1e-4), (1e37, 1e-20, 1e-6)],
)  # fmt: skip
def test_rows_that_may_not_be_quantised(large: float, small: float, far: float, rows: int) -> None:
    """A large element is multiplied by weights of 0, so the sum of the small ones beside it remains, with all its
    digits."""
    case = nbits(4, 40, 96, 32)
    case = replace(case, inputs={**case.inputs, "a": (np.float32, "B 96")})
    given = arrays(case, {"B": rows})
    given["a"] = (np.random.default_rng(5).uniform(0.5, 1, (rows, 96)) * small).astype(np.float32)
    given["a"][:, 7] = large
    made = build(case, given)
    middle_codes(made, 7)
    (y,) = InferenceSession(made.SerializeToString()).run(None, {"a": given["a"]})
    weights = weights_of(case, made).T.astype(np.float64)
    assert (weights[7, :4] == 0).all()
    exact, sums = (x @ w for x, w in ((given["a"].astype(np.float64), weights), (np.abs(given["a"]), np.abs(weights))))
    assert (np.abs(y - exact) <= far * sums).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_no_numbers(bits: int, value: float) -> None:
    case, given = level_4(bits, 8, 64, 32, 2)
    case = replace(case, attrs={**case.attrs, "accuracy_level": 0})
    given["a"][0, 5] = value
    made = build(case, given)
    (y,) = InferenceSession(made.SerializeToString()).run(None, {"a": given["a"]})
    with np.errstate(invalid="ignore"):
        exact = given["a"] @ weights_of(case, made).T + bias_of(made)
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


def bias_of(m: Any) -> Any:
    return next((numpy_helper.to_array(w) for w in m.graph.initializer if w.name == "bias"), 0)


# ONNX Runtime's CPU has kernels for 2, 4 and 8 bits alone, and takes no zero points with g_idx.
@pytest.mark.parametrize(
    "case",
    [
        *[nbits(bits, 3, 48, 16, zeros=zeros) for bits in (3, 5, 6, 7) for zeros in ("packed", "")],
        *[in_any_order(nbits(bits, 3, 40, 16, zeros="packed", kind=kind))
          for bits in range(2, 9) for kind in (np.float32, np.float16)],
        in_any_order(nbits(4, 3, 48, 16, zeros="packed"), uneven=True),
        in_any_order(nbits(4, 3, 48, 16, zeros="float")),
    ],
    ids=str,
)  # fmt: skip
def test_by_the_definition(case: Case) -> None:
    check(case, lambda m, feeds: [(feeds["a"] @ weights_of(case, m).T + bias_of(m)).astype(feeds["a"].dtype)])


@pytest.mark.parametrize(
    ("attrs", "inputs"),
    [
        ({"K": 16, "N": 2, "bits": 9, "block_size": 16}, {}),
        ({"K": 16, "N": 2, "bits": 4, "block_size": 24}, {}),
        ({"K": 16, "N": 2, "bits": 4, "block_size": 16, "weight_prepacked": 1}, {}),
    ],
)
def test_refused(attrs: dict[str, int], inputs: dict[str, Any]) -> None:
    base = {"a": "B 16", "b": (U8, "2 1 8"), "scales": "2 1", **inputs}
    with pytest.raises(UnsupportedOp, match="bits 9|weight_prepacked|block_size 24"):
        check(Case("MatMulNBits", attrs, base, B), None)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_a_zero_point_alone_makes_qgemm_quantise(scaled: bool, kind: type) -> None:
    """As in onnxruntime: the default scale is 1; a scale without a zero point divides."""
    names = ["a", "as", "az", "b", "bs", "bz", "c", "ys" * scaled, "yz" * (kind is np.uint8)]
    u8 = partial(np.array, dtype=np.uint8)
    values = {
        "as": np.array(0.1, "f4"), "az": u8(3), "b": np.arange(12, dtype=np.uint8).reshape(3, 4), "bz": u8(5),
        "bs": np.array(0.2, "f4"), "c": np.arange(4, dtype=np.int32) * 100, "ys": np.array(0.5, "f4"), "yz": u8(7),
    }  # fmt: skip
    node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", alpha=0.5)
    out = ("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
    made = model([node], [("a", TensorProto.UINT8, [2, 3])], [out], {n: x for n, x in values.items() if n in names})
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    feeds = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3) * 9}
    data = made.SerializeToString()
    (got,), (want,) = [make(data).run(None, feeds) for make in (InferenceSession, onnxruntime.InferenceSession)]
    assert got.dtype == want.dtype == kind
    np.testing.assert_allclose(got, want, rtol=1e-6)
