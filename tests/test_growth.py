"""The time to compile grows with a model as its size does: four times the size, about four times the time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import onnx
import pytest
from onnx import helper

from pyruntime import InferenceSession

LINEAR, MOST = 4, 10  # times; what grows with the square of the size takes 16
FLOAT = onnx.TensorProto.FLOAT
Model = onnx.ModelProto


def model(nodes: list[onnx.NodeProto], outputs: list[str], rows: int = 4, **rest: object) -> Model:
    x = helper.make_tensor_value_info("x", FLOAT, [rows])
    graph = helper.make_graph(nodes, "growth", [x], [onnx.ValueInfoProto(name=name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("own", 1)], **rest)


def chain(n: int) -> Model:
    names = ["x", *(f"y{i}" for i in range(n))]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in zip(names, names[1:], strict=False)]
    return model(nodes, names[-1:])


def parts(n: int) -> Model:
    """One Split of many outputs."""
    names = [f"y{i}" for i in range(n)]
    return model([helper.make_node("Split", ["x"], names, axis=0, num_outputs=n)], names, rows=n)


def operands(op: str) -> Callable[[int], Model]:
    def build(n: int) -> Model:
        names = [f"y{i}" for i in range(n)]
        nodes = [helper.make_node("Exp", ["x"], [name]) for name in names]
        return model([*nodes, helper.make_node(op, names, ["y"], **({"axis": 0} if op == "Concat" else {}))], ["y"])

    build.__name__ = op
    return build


def calls(n: int) -> Model:
    """A function of ten nodes, called again and again."""
    names = ["x", *(f"y{i}" for i in range(n // 10))]
    inner = ["a", *(f"b{i}" for i in range(10))]
    body = [helper.make_node("Neg", [a], [b]) for a, b in zip(inner, inner[1:], strict=False)]
    function = helper.make_function("own", "Ten", ["a"], ["b9"], body, [helper.make_opsetid("", 20)])
    nodes = [helper.make_node("Ten", [a], [b], domain="own") for a, b in zip(names, names[1:], strict=False)]
    return model(nodes, names[-1:], functions=[function])


def seconds(made: Model) -> float:
    data = made.SerializeToString()
    gc.collect()
    start = time.process_time()
    InferenceSession(data)
    return time.process_time() - start


CASES = [(chain, 300), (parts, 150), *[(operands(op), 150) for op in ("Sum", "Max", "Concat")], (calls, 300)]


@pytest.mark.parametrize(("build", "size"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_time_to_compile(build: Callable[[int], Model], size: int) -> None:
    small, large = build(size), build(LINEAR * size)
    seconds(small)
    few = min(seconds(small) for _ in range(3))
    ratio = seconds(large) / few
    if ratio >= MOST:  # once more: other processes share the processor's caches
        ratio = min(ratio, seconds(large) / few)
    assert ratio < MOST, f"{LINEAR} times the size takes {ratio:.1f} times as long"
