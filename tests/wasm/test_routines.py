"""Routines as models meet them: operands through views, epilogues, symbolic sizes, against onnxruntime unoptimised."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from kit import zoo
from pyruntime import InferenceSession, SessionOptions

RNG = np.random.default_rng(5)


def node(op: str, inputs: str, output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attrs)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes: list[Any], feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray], symbolic: bool) -> bytes:
    def info(name: str, x: np.ndarray) -> Any:
        shape = [f"{name}{n}" for n in range(x.ndim)] if symbolic else x.shape
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape)

    graph = helper.make_graph(
        nodes,
        "g",
        [info(k, v) for k, v in feeds.items()],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.fixture(params=[True, False], ids=["relaxed", "plain"])
def relaxed(request: Any) -> bool:
    return request.param


def check(
    nodes: list[Any],
    feeds: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    relaxed: bool = True,
    symbolic: bool = False,
) -> None:  # fmt: skip
    data = model(nodes, feeds, weights, symbolic)
    session = InferenceSession(data, SessionOptions(relaxed_simd=relaxed))
    (got,) = session.run(None, feeds)
    with np.errstate(all="ignore"):
        (want,) = zoo.oracle(data, feeds)
    assert got.dtype == want.dtype
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    else:
        np.testing.assert_array_equal(got, want)


SIZES = (1, 5, 6, 7, 8, 9, 13)


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("constant", [True, False])
def test_matmul_sizes(relaxed: bool, m: int, constant: bool) -> None:
    for n, k in itertools.product(SIZES, (1, 3, 8)):
        a, b = floats(m, k), floats(k, n)
        feeds, weights = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
        check([node("MatMul", "a b", "y")], feeds, weights, relaxed, symbolic=(n + k) % 2 == 0)


BATCHES = [
    ((2, 3), (2, 3)),
    ((2, 3), (1, 3)),
    ((2, 1), (2, 3)),
    ((2, 1), (1, 3)),
    ((3,), ()),
    ((), (3,)),
    ((4, 2, 3), (2, 1)),
]


@pytest.mark.parametrize(("left", "right"), BATCHES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_matmul_batches(left: tuple[int, ...], right: tuple[int, ...], symbolic: bool) -> None:
    for m in (1, 7):
        a, b = floats(*left, m, 5), floats(*right, 5, 9)
        check([node("MatMul", "a b", "y")], {"a": a, "b": b}, {}, symbolic=symbolic)


@pytest.mark.parametrize("perm", list(itertools.permutations(range(4))))
def test_operands_through_transposes(perm: tuple[int, ...]) -> None:
    back = np.argsort(perm)
    for m in (1, 9):
        a, b = floats(2, 3, m, 8), floats(2, 3, 8, 7)
        given = [node("Transpose", "p", "a", perm=perm), node("Transpose", "q", "b", perm=perm)]
        feeds = {"p": a.transpose(back), "q": b.transpose(back)}
        check([*given, node("MatMul", "a b", "y")], feeds, {})
        check([*given, node("MatMul", "a b", "c"), node("Transpose", "c", "y", perm=perm)], feeds, {})


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("symbolic", [False, True])
def test_attention_heads(relaxed: bool, batch: int, symbolic: bool) -> None:
    """(B, S, H·D) split into heads, scores with a mask, heads joined: no copies in between."""
    x, mask = floats(batch, 11, 24), floats(batch, 1, 1, 11)
    weights = {f"w{i}": floats(24, 24) / 5 for i in "qkv"}
    weights |= {"split": np.array([0, 0, 3, 8]), "join": np.array([0, 0, 24]), "scale": np.array(0.35, np.float32)}
    nodes = []
    for i, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes += [node("MatMul", f"x w{i}", f"m{i}"), node("Reshape", f"m{i} split", f"r{i}")]
        nodes.append(node("Transpose", f"r{i}", f"t{i}", perm=perm))
    nodes += [node("MatMul", "tq tk", "s"), node("Mul", "s scale", "s2"), node("Add", "s2 mask", "s3")]
    nodes += [node("Softmax", "s3", "p", axis=-1), node("MatMul", "p tv", "o")]
    nodes += [node("Transpose", "o", "ot", perm=(0, 2, 1, 3)), node("Reshape", "ot join", "y")]
    check(nodes, {"x": x, "mask": mask}, weights, relaxed, symbolic)


EPILOGUES = {
    "bias": [node("Add", "c row", "y")],
    "relu": [node("Add", "c row", "d"), node("Relu", "d", "y")],
    "scalar": [node("Mul", "c one", "y")],
    "column": [node("Mul", "c column", "y")],
    "residual": [node("Add", "c row", "d"), node("Add", "d full", "e"), node("Relu", "e", "y")],
    "silu": [node("Add", "c row", "d"), node("Sigmoid", "d", "e"), node("Mul", "d e", "y")],
    "gelu": [node("Div", "c two", "d"), node("Erf", "d", "e"), node("Add", "e one", "f"), node("Mul", "c f", "y")],
    "both": [node("Relu", "c", "d"), node("Add", "c d", "y")],
    "cast": [node("Cast", "c", "y", to=onnx.TensorProto.INT32)],
    "transposed": [node("Add", "c row", "d"), node("Transpose", "d", "y", perm=(1, 0))],
    "reversed": [node("Sub", "row c", "d"), node("Max", "d c", "y")],
}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_matmul_epilogues(relaxed: bool, name: str, symbolic: bool) -> None:
    for m, n in ((1, 9), (7, 5), (13, 24)):
        weights = {"row": floats(n), "one": np.array(1, np.float32), "two": np.array(2, np.float32), "b": floats(4, n)}
        weights |= {"column": floats(m, 1), "full": floats(m, n)}
        check([node("MatMul", "a b", "c"), *EPILOGUES[name]], {"a": floats(m, 4)}, weights, relaxed, symbolic)


CONVOLUTIONS = [  # channels, filters, group, window, stride, pad, dilation
    (3, 7, 1, 3, 1, 1, 1),
    (8, 16, 1, 1, 1, 0, 1),
    (8, 16, 1, 1, 2, 0, 1),
    (6, 9, 3, 3, 1, 1, 2),
    (8, 8, 8, 3, 1, 1, 1),
    (8, 8, 8, 5, 2, 2, 1),
    (4, 4, 4, 7, 3, 6, 2),
    (4, 4, 4, 3, 2, 600, 600),  # reaches too far to be copied with its pads
    (4, 8, 4, 3, 1, 0, 1),
    (5, 6, 1, 2, 3, 1, 1),
]
AFTER = {
    "none": [],
    "relu": [node("Relu", "c", "y")],
    "norm": [node("BatchNormalization", "c s t m v", "d"), node("Clip", "d zero six", "y")],
    "residual": [node("Sigmoid", "c", "d"), node("Mul", "c d", "e"), node("Add", "e c", "y")],
    "along": [node("Add", "c along", "y")],
}


@pytest.mark.parametrize("shape", CONVOLUTIONS)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("rank", [1, 2])
def test_convolutions(shape: tuple[int, ...], after: str, rank: int) -> None:
    channels, filters, group, window, stride, pad, dilation = shape
    attrs: dict[str, Any] = {"group": group, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
    attrs["dilations"] = [dilation] * rank
    for batch, symbolic in ((1, False), (2, True)):
        size = [11, 9][:rank]
        out = [(d + 2 * pad - dilation * (window - 1) - 1) // stride + 1 for d in size]
        weights = {"w": floats(filters, channels // group, *[window] * rank), "b": floats(filters)}
        weights |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32), "along": floats(out[-1])}
        weights |= {k: floats(filters) for k in "stm"} | {"v": np.abs(floats(filters)) + 0.5}
        x = floats(batch, channels, *size)
        last = node("Conv", "x w b", "c" if AFTER[after] else "y", **attrs)
        check([last, *AFTER[after]], {"x": x}, weights, symbolic=symbolic)


# channels, filters, batch, pads
WINOGRAD = [(16, 16, 1, [1] * 4), (17, 40, 2, [1, 0, 2, 1]), (16, 33, 1, [0, 2, 2, 0]), (3, 1, 2, [1] * 4)]


@pytest.mark.parametrize("size", [(12, 12), (13, 15), (14, 17), (33, 16), (12, 50)])
@pytest.mark.parametrize("after", AFTER)
def test_winograd(relaxed: bool, size: tuple[int, int], after: str) -> None:
    for channels, filters, batch, pads in WINOGRAD:
        out = [d + pads[n] + pads[n + 2] - 2 for n, d in enumerate(size)]
        if min(out) < 12:
            continue
        weights = {"w": floats(filters, channels, 3, 3) / 12, "b": floats(filters), "along": floats(out[-1])}
        weights |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
        weights |= {k: floats(filters) for k in "stm"} | {"v": np.abs(floats(filters)) + 0.5}
        last = node("Conv", "x w b", "c" if AFTER[after] else "y", pads=pads)
        for symbolic in (False, True):
            check([last, *AFTER[after]], {"x": floats(batch, channels, *size)}, weights, relaxed, symbolic)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("huge", [np.inf, -np.inf, np.nan])
def test_special_values_reach_only_their_windows_in_winograd(huge: float, after: str) -> None:
    """Infinite and NaN inputs, at edges and between tiles; two thirds of the weights are 0."""
    x = floats(2, 5, 13, 19)
    x[0, 1, 0, 0] = x[0, 4, 12, 18] = x[1, 2, 3, 4] = x[1, 0, 7, 15] = x[1, 3, 7, 17] = huge
    weights = {"w": floats(6, 5, 3, 3) * RNG.integers(0, 3, (6, 5, 3, 3)) / 4, "b": floats(6), "along": floats(19)}
    weights["w"] = np.where(RNG.random((6, 5, 1, 1)) < 0.7, weights["w"], 0).astype(np.float32)
    weights |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    weights |= {k: floats(6) for k in "stm"} | {"v": np.abs(floats(6)) + 0.5}
    last = node("Conv", "x w b", "c" if AFTER[after] else "y", pads=[1] * 4)
    for symbolic in (False, True):
        check([last, *AFTER[after]], {"x": x}, weights, symbolic=symbolic)


def test_winograd_overflows_only_where_sums_do() -> None:
    x, w = np.zeros((1, 5, 13, 19), np.float32), np.ones((6, 5, 3, 3), np.float32)
    x[0, 1, 4, 6], x[0, 3, 4, 6] = 1e38, -1e38  # sums of a transform reach 7 times that
    data = model([node("Conv", "x w", "y", pads=[1] * 4)], {"x": x}, {"w": w}, symbolic=False)
    assert (abs(InferenceSession(data).run(None, {"x": x})[0]) < 1e33).all()


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (4, 16), (2, 17)])
def test_winograd_of_small_images_of_unknown_size(size: tuple[int, int]) -> None:
    weights = {"w": floats(16, 16, 3, 3) / 12}
    check([node("Conv", "x w", "y", pads=[1] * 4)], {"x": floats(2, 16, *size)}, weights, symbolic=True)


@pytest.mark.parametrize("turned", ["", "B", "A"])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_doubles(relaxed: bool, turned: str, threads: int) -> None:
    """Edges of tiles and blocks, few rows in place, batches that broadcast, and an infinity."""
    nodes = [node("MatMul", "a b", "y")]
    for name in turned:
        nodes = [
            node("Transpose", name.lower(), "t", perm=[0, 2, 1]),
            node("MatMul", "a t" if name == "B" else "t b", "y"),
        ]
    shapes = [(1, 1, 1), (2, 5, 17), (3, 300, 33), (4, 4, 4), (5, 7, 3), (9, 0, 5), (200, 3, 150), (17, 270, 131)]
    options = SessionOptions(relaxed_simd=relaxed)
    options.intra_op_num_threads = threads
    data = model(nodes, {"a": np.zeros((2, 1, 1)), "b": np.zeros((2, 1, 1))}, {}, symbolic=True)
    session = InferenceSession(data, options)
    for m, k, n in shapes:
        for batches in ((2, 2), (1, 3), (3, 1)):
            a, b = RNG.standard_normal((batches[0], m, k)), RNG.standard_normal((batches[1], k, n))
            a[0, -1, -1:] = np.inf
            with np.errstate(invalid="ignore"):
                want = a @ b
            feeds = {"a": a.swapaxes(1, 2) if turned == "A" else a, "b": b.swapaxes(1, 2) if turned == "B" else b}
            (got,) = session.run(None, {name: np.ascontiguousarray(x) for name, x in feeds.items()})
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12, err_msg=f"{m} {k} {n} {batches}")


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("right", [np.uint8, np.int8])
@pytest.mark.parametrize("m", [1, 4, 5, 9])
def test_integer_products_over_the_full_range(relaxed: bool, left: type, right: type, m: int) -> None:
    for n, k in itertools.product((1, 7, 8, 17), (1, 2, 5, 64)):
        a = RNG.integers(np.iinfo(left).min, np.iinfo(left).max, (m, k), left, endpoint=True)
        b = RNG.integers(np.iinfo(right).min, np.iinfo(right).max, (k, n), right, endpoint=True)
        a[0], b[:, 0] = np.iinfo(left).max, np.iinfo(right).min
        zeros = {"az": np.array(np.iinfo(left).min + 3, left), "bz": np.array(np.iinfo(right).max - 1, right)}
        session = InferenceSession(
            model([node("MatMulInteger", "a b az bz", "y")], {"a": a}, {"b": b, **zeros}, False),
            SessionOptions(relaxed_simd=relaxed),
        )
        (got,) = session.run(None, {"a": a})
        want = (a.astype(np.int32) - zeros["az"].astype(np.int32)) @ (b.astype(np.int32) - zeros["bz"].astype(np.int32))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("zeros", [True, False])
def test_products_of_few_bits(relaxed: bool, bits: int, zeros: bool) -> None:
    for (k, size), n, m in itertools.product(((16, 16), (40, 32), (70, 16), (416, 128)), (1, 8, 19), (1, 2, 7)):
        blocks = -(-k // size)
        weights = {
            "b": RNG.integers(0, 255, (n, blocks, size * bits // 8), np.uint8, endpoint=True),
            "s": np.abs(floats(n * blocks)) / 16,
        }
        if zeros:
            weights["z"] = RNG.integers(0, 255, n * -(-blocks * bits // 8), np.uint8, endpoint=True)
        attrs = {"K": k, "N": n, "bits": bits, "block_size": size, "domain": "com.microsoft"}
        y = helper.make_node("MatMulNBits", ["a", *weights], ["c"], **attrs)
        a = floats(m, k)
        options = SessionOptions(relaxed_simd=relaxed)
        (got,) = InferenceSession(model([y, node("Relu", "c", "y")], {"a": a}, weights, False), options).run(
            None, {"a": a}
        )
        want = np.maximum(a.astype(np.float64) @ few_bits(weights, bits, k).T, 0)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_scales_behind_a_cast_are_constant() -> None:
    """As converters to half floats leave them."""
    weights = {"b": RNG.integers(0, 255, (24, 3, 16), np.uint8), "s": np.abs(floats(72)).astype(np.float16)}
    attrs = {"K": 96, "N": 24, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    a = floats(1, 96)
    nodes = [node("Cast", "s", "wide", to=1), node("MatMulNBits", "a b wide", "y", **attrs)]
    session = InferenceSession(model(nodes, {"a": a}, weights, False))
    (got,) = session.run(None, {"a": a})
    np.testing.assert_allclose(got, a @ few_bits(weights, 4, 96).T, rtol=1e-4, atol=1e-4)
    assert "matmul_nbits4" in str(session.profile({"a": a}))


def few_bits(weights: dict[str, np.ndarray], bits: int, k: int) -> np.ndarray:
    """The weights (N, K) that codes, scales and zero points stand for."""

    def unpacked(x: np.ndarray, count: int) -> np.ndarray:
        all_bits = np.unpackbits(x, axis=-1, count=count * bits, bitorder="little")
        return all_bits.reshape(*x.shape[:-1], count, bits) @ 2.0 ** np.arange(bits)

    codes = weights["b"]
    n, blocks, _ = codes.shape
    values = unpacked(codes, codes.shape[2] * 8 // bits)
    zero: Any = float(1 << (bits - 1))
    if "z" in weights:
        zero = unpacked(weights["z"].reshape(n, -1), blocks)[..., None]
    return ((values - zero) * weights["s"].reshape(n, blocks, 1)).reshape(n, -1)[:, :k]
