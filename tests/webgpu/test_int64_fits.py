"""int64 and uint64 on the GPU: never silently wrong, and not left on the CPU without need."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from pyruntime import InferenceSession
from pyruntime.errors import ShapeError

EDGE = np.array([2**31 - 1, -(2**31), 2**30, -1], np.int64)
SMALL = np.array([7, -3, 0, 2**15], np.int64)
FLOATS = np.array([3e9, -5e9, 1.5, -0.5], np.float32)
MOST = np.iinfo(np.int64).max


def model(nodes, feeds, free=False):
    """nodes: (op, inputs, output, attributes), the last output the model's; arrays in place of names are constants."""
    made, weights = [], []
    for op, inputs, output, attributes in nodes:
        names = []
        for x in inputs:
            if not isinstance(x, str):
                weights.append(onnx.numpy_helper.from_array(np.asarray(x), f"c{len(weights)}"))
                x = weights[-1].name
            names.append(x)
        made.append(helper.make_node(op, names, [output], **attributes))
    infos = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{n}{i}" for i in range(x.ndim)] if free else x.shape
        )
        for n, x in feeds.items()
    ]  # fmt: skip
    graph = helper.make_graph(made, "g", infos, [onnx.ValueInfoProto(name=nodes[-1][2])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(nodes, feeds, at_home, free=False):
    made = model(nodes, feeds, free)
    session = InferenceSession(made.SerializeToString(), providers=["webgpu"])
    (actual,) = session.run(None, feeds)
    (expected,) = ReferenceEvaluator(made).run(None, feeds)
    np.testing.assert_array_equal(actual, expected)
    told = session.explain()["nodes"]
    reasons = [node["why"] for node in told if node["place"] == "wasm"]
    assert bool(reasons) == at_home, told
    assert all("32 bits" in why or "64-bit" in why for why in reasons)


def one(op, *inputs, **attributes):
    return [(op, inputs, "y", attributes)]


OVER = {
    "add": (one("Add", "x", "z"), {"x": EDGE, "z": EDGE}),
    "add 1": (one("Add", "x", np.int64(1)), {"x": EDGE}),
    "sub": (one("Sub", "x", "z"), {"x": EDGE, "z": -EDGE}),
    "mul": (one("Mul", "x", np.int64(3)), {"x": EDGE}),
    "neg": (one("Neg", "x"), {"x": EDGE}),
    "abs": (one("Abs", "x"), {"x": EDGE}),
    "div": (one("Div", "x", "z"), {"x": EDGE, "z": np.full(4, -1, np.int64)}),
    "pow": (one("Pow", "x", np.int64(3)), {"x": SMALL}),
    "sum": (one("ReduceSum", "x", keepdims=0), {"x": EDGE[[0, 0, 2, 2]]}),
    "prod": (one("ReduceProd", "x", keepdims=0), {"x": EDGE[[2, 2]]}),
    "cumsum": (one("CumSum", "x", np.int64(0)), {"x": EDGE[[0, 0, 0, 1]]}),
    "matmul": (one("MatMul", "x", "z"), {"x": EDGE[None], "z": EDGE[:, None]}),
    "cast": (one("Cast", "x", to=onnx.TensorProto.INT64), {"x": FLOATS}),
    "unsigned cast": (one("Cast", "x", to=onnx.TensorProto.INT64), {"x": np.array([2**32 - 1, 5], np.uint32)}),
    "constant": (one("Where", "c", np.int64(MOST), "x"), {"c": np.array([True, False, True, False]), "x": SMALL}),
    "compared constant": (one("Less", "x", np.int64(2**31)), {"x": EDGE}),
    "uint64": (one("Sub", "x", "z"), {"x": np.array([3, 5], np.uint64), "z": np.array([4, 5], np.uint64)}),
    "empty max": (one("ReduceMin", "x", np.array([1]), keepdims=0), {"x": np.zeros((2, 0), np.int64)}),
    "inner": ([("Add", ("x", "x"), "s", {}), ("Sub", ("s", "x"), "y", {})], {"x": EDGE}),
}


@pytest.mark.parametrize("name", OVER)
def test_what_may_not_fit_is_right_and_at_home(name):
    nodes, feeds = OVER[name]
    check(nodes, feeds, at_home=True)


rng = np.random.default_rng(0)
X = rng.standard_normal((3, 5)).astype(np.float32)
BELOW = {
    "argmax + 1": ([("ArgMax", ("x",), "a", {"axis": 1}), ("Add", ("a", np.int64(1)), "y", {})], {"x": X}),
    "sum of truths": ([("Cast", ("x",), "a", {"to": onnx.TensorProto.INT64}), ("ReduceSum", ("a",), "y", {})],
                      {"x": X > 0}),
    "sum of bytes": ([("Cast", ("x",), "a", {"to": onnx.TensorProto.INT64}), ("Mul", ("a", "a"), "y", {})],
                     {"x": np.arange(250, 256, dtype=np.uint8)}),
    "clipped": ([("Clip", ("x", np.int64(-1000), np.int64(1000)), "a", {}), ("Mul", ("a", "a"), "y", {})], {"x": EDGE}),
    "quotient": (one("Div", "x", np.int64(7)), {"x": EDGE}),
    "remainder": ([("Mod", ("x", np.int64(7)), "a", {}), ("Add", ("a", "a"), "y", {})], {"x": EDGE}),
    "largest": (one("Max", "x", np.int64(-(2**31))), {"x": EDGE}),
    "compared": (one("Less", "x", "z"), {"x": EDGE, "z": SMALL}),
    "taken": (one("Gather", "x", "i"), {"x": EDGE, "i": np.array([-1, 0, 3])}),
    "rounded sine": ([("Sin", ("x",), "a", {}), ("Mul", ("a", np.float32(1e6)), "b", {}),
                      ("Floor", ("b",), "c", {}), ("Cast", ("c",), "y", {"to": onnx.TensorProto.INT64})], {"x": X * 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", BELOW)
def test_what_fits_is_on_the_gpu(name):
    nodes, feeds = BELOW[name]
    check(nodes, feeds, at_home=False)


POSITIONS = [
    ("Shape", ("x",), "s", {"start": 0, "end": 1}),
    ("Squeeze", ("s",), "n", {}),
    ("Shape", ("past",), "t", {"start": 0, "end": 1}),
    ("Squeeze", ("t",), "p", {}),
    ("Range", (np.int64(0), "n", np.int64(1)), "r", {}),
    ("Add", ("r", "p"), "y", {}),
]


def test_positions_after_a_cache():
    """Sums of an index and a free dim, as decoders have them: dims of feeds are bounded."""
    feeds = {"x": np.zeros((3, 2), np.float32), "past": np.zeros((5, 2), np.float32)}
    check(POSITIONS, feeds, at_home=False, free=True)
    session = InferenceSession(model(POSITIONS, feeds, free=True).SerializeToString(), providers=["webgpu"])
    with pytest.raises(ShapeError, match="past0.*too large for the GPU's integers"):
        session.run(None, feeds | {"past": np.zeros((2**30, 0), np.float32)})
