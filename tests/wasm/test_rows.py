"""Row fusion around reductions: maps before and after softmax and the like, against onnxruntime unoptimised."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from kit import zoo
from pyruntime import InferenceSession

RNG = np.random.default_rng(11)
SIZES = [(2, 3, 7), (1, 1, 1), (3, 1, 4), (2, 5, 8), (4, 2, 9), (2, 3, 1), (0, 3, 4)]

# name -> (nodes as (operator, inputs, output), kernels that are left of them)
GRAPHS: dict[str, tuple[list[tuple[str, str, str]], int]] = {
    "mask before": ([("Add", "x m", "a"), ("Softmax", "a", "y")], 1),
    "mask read twice": ([("Add", "x m", "a"), ("Softmax", "a", "s"), ("Mul", "s a", "y")], 1),
    "mask read by others": ([("Add", "x m", "a"), ("Softmax", "a", "s"), ("Transpose", "a", "t"),
                             ("MatMul", "s t", "y")], 3),
    "nan to zero": ([("Softmax", "x", "s"), ("IsNaN", "s", "n"), ("Where", "n zero s", "y")], 1),
    "mask and nan": ([("Add", "x m", "a"), ("Softmax", "a", "s"), ("IsNaN", "s", "n"), ("Where", "n zero s", "y")], 1),
    "exp read again": ([("Exp", "x", "e"), ("ReduceSum", "e last", "r"), ("Div", "e r", "d"), ("Sqrt", "d", "q"),
                        ("Mul", "q e", "y")], 0),
    "exp read again through a cheap map": ([("Exp", "x", "e"), ("ReduceSum", "e last", "r"), ("Neg", "e", "c"),
                                            ("Div", "e r", "d"), ("ReduceMax", "d last", "b"), ("Div", "d b", "f"),
                                            ("Mul", "f c", "y")], 0),
}  # fmt: skip


def build(nodes: list[tuple[str, str, str]], symbolic: bool, shape: tuple[int, ...], mask: tuple[int, ...]) -> bytes:
    attrs: dict[str, Any] = {"Softmax": {"axis": -1}, "Transpose": {"perm": [0, 2, 1]}}
    made = [helper.make_node(op, i.split(), [o], **attrs.get(op, {})) for op, i, o in nodes]
    names = {n for _, i, _ in nodes for n in i.split()}
    given = {"x": shape, "m": mask}
    inputs = [
        helper.make_tensor_value_info(n, 1, [f"{n}{i}" if symbolic else d for i, d in enumerate(s)])
        for n, s in given.items()
        if n in names
    ]
    weights = {"zero": np.array(0, np.float32), "last": np.array([-1])}
    constants = [onnx.numpy_helper.from_array(v, k) for k, v in weights.items() if k in names]
    graph = helper.make_graph(made, "g", inputs, [onnx.ValueInfoProto(name="y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_rows(name: str, symbolic: bool) -> None:
    nodes, _ = GRAPHS[name]
    for shape in SIZES:
        for mask in {shape, (1, *shape[1:]), (shape[0], 1, shape[2])}:
            x, m = (RNG.standard_normal(s).astype(np.float32) for s in (shape, mask))
            m[RNG.random(mask) < 0.3] = -np.inf
            data = build(nodes, symbolic, shape, mask)
            session = InferenceSession(data)
            feeds = {i.name: {"x": x, "m": m}[i.name] for i in session.get_inputs()}
            with np.errstate(all="ignore"):
                (want,) = zoo.oracle(data, feeds)
            np.testing.assert_allclose(session.run(None, feeds)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n, (_, left) in GRAPHS.items() if left])
def test_kernels_left(name: str) -> None:
    nodes, left = GRAPHS[name]
    session = InferenceSession(build(nodes, False, (2, 5, 9), (1, 5, 9)))
    calls = [c["kernel"] for s in session._native.latest().header["blocks"][1]["steps"] for c in s["calls"]]
    assert len(calls) == left, calls
