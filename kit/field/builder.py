"""Builds a graph with random weights from a generator that is seeded by the model's name."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str]


def generator(key: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(zlib.crc32(key.encode())))


class Net:
    """Calling it adds a node: `net("Relu", x)` gives the name of the result, `outputs=2` a list of names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.random = generator(name)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.count = 0

    def __call__(self, op: str, *inputs: str, outputs: int = 0, **attributes: Any) -> Any:
        self.count += 1
        made = [f"{op.lower()}_{self.count}" + (f"_{n}" if outputs else "") for n in range(outputs or 1)]
        self.nodes.append(helper.make_node(op, list(inputs), made, name=f"{op}_{self.count}", **attributes))
        return made if outputs else made[0]

    def input(self, name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(dims)))
        return name

    def constant(self, value: Any, kind: Any = np.int64) -> str:
        name = f"c_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, kind), name))
        return name

    def weight(self, *shape: int, fan: int = 0, size: float = 1.0, offset: float = 0.0) -> str:
        """Normal values that keep the magnitude of activations; fan: the terms of a sum."""
        scale = size / math.sqrt(fan or math.prod(shape[1:]) or 1)
        return self.constant(offset + scale * self.random.standard_normal(shape), np.float32)

    def conv(
        self, x: str, channels: int, filters: int, size: int | tuple[int, ...] = 1, stride: int = 1, group: int = 1,
        dilation: int = 1, act: str = "",
    ) -> str:  # fmt: skip
        """A convolution padded to the input's extents over the stride; act: an activation after it."""
        window = size if isinstance(size, tuple) else (size, size)
        rank = len(window)
        pads = [dilation * (k - 1) // 2 for k in window]
        gain = 1.4 if act else 1.0  # an activation halves the sum of squares
        y = self(
            "Conv", x, self.weight(filters, channels // group, *window, size=gain), self.weight(filters, fan=100),
            kernel_shape=window, strides=[stride] * rank, pads=pads * 2, dilations=[dilation] * rank, group=group,
        )  # fmt: skip
        return self.act(y, act)

    def act(self, x: str, kind: str) -> str:
        """An activation as exporters write it."""
        if kind == "silu":
            return str(self("Mul", x, self("Sigmoid", x)))
        if kind == "hardswish":
            return str(self("HardSwish", x))
        if kind == "gelu":
            half = self("Erf", self("Div", x, self.constant(2**0.5, np.float32)))
            both = self("Mul", x, self("Add", half, self.constant(1, np.float32)))
            return str(self("Mul", both, self.constant(0.5, np.float32)))
        if kind == "relu6":
            return str(self("Clip", x, self.constant(0, np.float32), self.constant(6, np.float32)))
        return str(self(kind, x)) if kind else x

    def linear(self, x: str, width: int, out: int, act: str = "") -> str:
        """A matrix product and a bias."""
        y = self("MatMul", x, self.weight(width, out, fan=width))
        return self.act(self("Add", y, self.weight(out, fan=100)), act)

    def norm(self, x: str, width: int) -> str:
        """A layer normalisation over the last axis."""
        one = self.weight(width, fan=100, offset=1)
        return str(self("LayerNormalization", x, one, self.weight(width, fan=100), axis=-1))

    def reshape(self, x: str, *shape: int) -> str:
        return str(self("Reshape", x, self.constant(shape)))

    def transpose(self, x: str, *order: int) -> str:
        return str(self("Transpose", x, perm=order))

    def slice(self, x: str, axis: int, start: int, end: int) -> str:
        return str(self("Slice", x, *[self.constant([n]) for n in (start, end, axis)]))

    def roll(self, x: str, axis: int, by: int) -> str:
        """torch.roll as exporters write it: the end before the beginning."""
        parts = self.slice(x, axis, -by, 1 << 30), self.slice(x, axis, 0, -by)
        return str(self("Concat", *parts, axis=axis))

    def attention(self, x: str, batch: int, length: int, width: int, heads: int) -> str:
        """Self attention of `heads` heads over (batch, length, width); 0 or -1 for unknown dims."""
        size = width // heads
        q, k, v = [self.reshape(self.linear(x, width, width), batch, length, heads, size) for _ in range(3)]
        scores = self("MatMul", self.transpose(q, 0, 2, 1, 3), self.transpose(k, 0, 2, 3, 1))
        scores = self("Softmax", self("Mul", scores, self.constant(size**-0.5, np.float32)), axis=-1)
        mixed = self.transpose(self("MatMul", scores, self.transpose(v, 0, 2, 1, 3)), 0, 2, 1, 3)
        return self.linear(self.reshape(mixed, batch, length, width), width, width)

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, results, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
