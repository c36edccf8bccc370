"""A transformer of small operators, as exporters without fusions write them, to measure compilation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS = 64, 4


class _Builder:
    """Collects nodes and weights under unique names."""

    def __init__(self) -> None:
        self.nodes: list = []
        self.weights: list = []
        self.generator = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: object) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.generator.standard_normal(shape, dtype=np.float32) * np.float32(shape[0] ** -0.5))

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def norm(self, x: str) -> str:
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1], keepdims=1))
        square = self.node("Pow", centred, self.number(2))
        variance = self.node("Add", self.node("ReduceMean", square, axes=[-1], keepdims=1), self.number(1e-5))
        scaled = self.node("Div", centred, self.node("Sqrt", variance))
        return self.node("Add", self.node("Mul", scaled, self.weight(WIDTH)), self.weight(WIDTH))

    def split(self, x: str, perm: Sequence[int]) -> str:
        """Split (batch, tokens, width) into heads, with sizes from the Shape operator, as exporters with free dims
        do."""
        shape = self.node("Shape", x)
        sizes = [self.node("Gather", shape, self.constant(np.int64(axis)), axis=0) for axis in (0, 1)]
        sizes = [self.node("Unsqueeze", size, self.constant(np.array([0], np.int64))) for size in sizes]
        heads = [self.constant(np.array([n], np.int64)) for n in (HEADS, WIDTH // HEADS)]
        target = self.node("Concat", *sizes, *heads, axis=0)
        return self.node("Transpose", self.node("Reshape", x, target), perm=list(perm))

    def attention(self, x: str) -> str:
        q, k, v = (self.linear(x, WIDTH, WIDTH) for _ in range(3))
        q, k, v = self.split(q, (0, 2, 1, 3)), self.split(k, (0, 2, 3, 1)), self.split(v, (0, 2, 1, 3))
        scores = self.node("Div", self.node("MatMul", q, k), self.number((WIDTH / HEADS) ** 0.5))
        mixed = self.node("Transpose", self.node("MatMul", self.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        joined = self.node("Reshape", mixed, self.constant(np.array([0, 0, WIDTH], np.int64)))
        return self.linear(joined, WIDTH, WIDTH)

    def feedforward(self, x: str) -> str:
        x = self.linear(x, WIDTH, 4 * WIDTH)
        inner = self.node("Add", self.node("Erf", self.node("Div", x, self.number(2**0.5))), self.number(1))
        return self.linear(self.node("Mul", self.node("Mul", x, inner), self.number(0.5)), 4 * WIDTH, WIDTH)


def transformer(nodes: int = 1500) -> bytes:
    """Build at least this many nodes, in whole layers; x (batch, tokens, 64) float32 -> y."""
    built = _Builder()
    x = "x"
    while len(built.nodes) < nodes:
        x = built.node("Add", x, built.attention(built.norm(x)))
        x = built.node("Add", x, built.feedforward(built.norm(x)))
    built.nodes[-1].output[0] = "y"
    shape = ["batch", "tokens", WIDTH]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(built.nodes, f"transformer_{len(built.nodes)}", values[:1], values[1:], built.weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
