"""Products by weights from DequantizeLinear on the GPU: the quantised codes stay there, not floats."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from pyruntime.native.sessions.session import Session

pytest.importorskip("wgpu")

K, N, BLOCK = 288, 256, 32


def model(kind: int, turned: bool, zero: bool, by_block: bool, gemm: bool) -> bytes:
    """turned: weights are [N, K] and transposed, by Gemm itself if it is one."""
    rng = np.random.default_rng(3)
    low, high = {T.INT8: (-128, 128), T.UINT8: (0, 256), T.INT4: (-8, 8), T.UINT4: (0, 16)}[kind]
    along, shape = (1, (N, K)) if turned else (0, (K, N))
    codes, zeros = rng.integers(low, high, shape), rng.integers(low, high, shape)
    steps = list(shape)
    steps[along] //= BLOCK
    count = steps if by_block else [N]
    scales = (rng.random(count) / 8 + 0.01).astype(np.float32)
    weights = [h.make_tensor("w", kind, shape, codes.ravel().tolist()), nh.from_array(scales, "s")]
    if zero:
        few = zeros.ravel()[: int(np.prod(count))].tolist()
        weights.append(h.make_tensor("z", kind, count, few))
    axis = {"axis": along, "block_size": BLOCK} if by_block else {"axis": 1 - along}
    nodes = [h.make_node("DequantizeLinear", ["w", "s", *["z"] * zero], ["d"], **axis)]
    if turned and not gemm:
        nodes.append(h.make_node("Transpose", ["d"], ["t"]))
    product = h.make_node("Gemm", ["x", "d"], ["y"], transB=int(turned)) if gemm else None
    nodes.append(product or h.make_node("MatMul", ["x", "t" if turned else "d"], ["y"]))
    x, y = h.make_tensor_value_info("x", T.FLOAT, ["M", K]), h.make_tensor_value_info("y", T.FLOAT, ["M", N])
    graph = h.make_graph(nodes, "g", [x], [y], weights)
    return bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10).SerializeToString())


@pytest.mark.parametrize("gemm", [False, True], ids=["MatMul", "Gemm"])
@pytest.mark.parametrize("by_block", [True, False], ids=["blocks", "columns"])
@pytest.mark.parametrize("turned", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize(("kind", "zero"), [(T.INT8, False), (T.UINT8, True), (T.INT4, True), (T.UINT4, False)])
def test_codes_stay(kind: int, zero: bool, turned: bool, by_block: bool, gemm: bool) -> None:
    data = model(kind, turned, zero, by_block, gemm)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # rows stay floats
    peer = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    session = Session(data, providers=["webgpu"])
    for rows in (1, 5, 33):
        x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
        (want,) = peer.run(None, {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    scales, bits = K * N // BLOCK if by_block else N, 8 if kind in (T.INT8, T.UINT8) else 4
    assert session.memory().providers["webgpu"].weights <= K * N * bits // 8 + 5 * scales + 1024


@pytest.mark.parametrize("zero", [None, 3, "columns"])
def test_codes_of_integer_products_stay(zero: int | str | None) -> None:
    """A product of codes, as dynamic quantisation writes it. Neither operand becomes a tensor of int32, and the product
    of both scales is no kernel of its own: two find the range, and zero point, codes and product take one each."""
    random = np.random.default_rng(3)
    weights = [nh.from_array(random.integers(-127, 128, (K, N)).astype(np.int8), "w")]
    weights.append(nh.from_array(np.array(0.01, np.float32), "s"))
    if zero is not None:
        points = random.integers(-9, 9, N) if zero == "columns" else np.array(zero)
        weights.append(nh.from_array(points.astype(np.int8), "z"))
    nodes = [
        h.make_node("DynamicQuantizeLinear", ["x"], ["codes", "scale", "point"]),
        h.make_node("MatMulInteger", ["codes", "w", "point", *["z"] * (zero is not None)], ["sums"]),
        h.make_node("Cast", ["sums"], ["floats"], to=T.FLOAT),
        h.make_node("Mul", ["scale", "s"], ["both"]),
        h.make_node("Mul", ["floats", "both"], ["y"]),
    ]
    x, y = h.make_tensor_value_info("x", T.FLOAT, ["M", K]), h.make_tensor_value_info("y", T.FLOAT, ["M", N])
    graph = h.make_graph(nodes, "g", [x], [y], weights)
    data = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10).SerializeToString()
    peer, session = onnxruntime.InferenceSession(data), Session(data, providers=["webgpu"])
    for rows in (1, 5, 33):
        given = random.standard_normal((rows, K)).astype(np.float32)
        (want,) = peer.run(None, {"x": given})
        np.testing.assert_allclose(session.run(None, {"x": given})[0], want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    assert session.memory().providers["webgpu"].weights <= K * N + 5 * N + 1024
    assert session.explain()["placement"] == {"webgpu": 5}
