"""A chain of kernels that no pass can fuse, to measure costs for each kernel."""

from __future__ import annotations

from onnx import TensorProto, helper


def chain(count: int) -> bytes:
    """y = x after `count` running sums along its first axis, x (2, 3)."""
    names = ["x", *(f"sum{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("CumSum", [names[i], "axis"], [names[i + 1]]) for i in range(count)]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])  # noqa: E731
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [0])
    graph = helper.make_graph(nodes, "chain", [value("x")], [value("y")], [axis])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
