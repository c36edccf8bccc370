"""EfficientNet-Lite0 (https://arxiv.org/abs/1905.11946) with weights of ImageNet, as an ONNX model for other classes.

    picture (N, 3, SIDE, SIDE) in [-1, 1] -> frozen blocks -> head: conv 1x1, relu6, mean -> scores (N, CLASSES)

Convolutions contain the batch normalisations. Weights are float16, which start-up converts to float32. Those of the
last layer are zeros.

usage: python -m demo.yours.network WEIGHTS.pth MODEL.onnx      scripts/site_models.py calls it
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from demo.yours.weights import read_tensors

SIDE, CLASSES = 160, 6  # classes that a visitor may have; yours.js has the same numbers
STRIDES = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]  # of the blocks' depthwise convolutions
EPSILON = 1e-3  # of batch normalisations


class Graph:
    """Nodes and weights of the model."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], f"{op}_{len(self.nodes)}", **attributes))
        return out

    def weight(self, name: str, value: np.ndarray) -> str:
        self.weights[name] = value.astype(np.float16)
        return self.add("Cast", name, to=TensorProto.FLOAT)

    def conv(self, x: str, source: str, norm: str, stride: int = 1, act: bool = True, name: str = "") -> str:
        """A convolution with the batch normalisation after it, and ReLU6."""
        weight, t = self.tensors[f"{source}.weight"], {k: self.tensors[f"{norm}.{k}"] for k in NORM}
        scale = t["weight"] / np.sqrt(t["running_var"] + EPSILON)
        name, group = name or source.lstrip("_"), len(weight) if weight.shape[1] == 1 else 1
        w = self.weight(name, weight * scale[:, None, None, None])
        b = self.weight(f"{name}_bias", t["bias"] - t["running_mean"] * scale)
        x = self.add("Conv", x, w, b, auto_pad="SAME_UPPER", strides=[stride] * 2, group=group)
        return self.add("Clip", x, "zero", "six") if act else x


NORM = ("weight", "bias", "running_mean", "running_var")


def features(graph: Graph) -> str:
    x = graph.conv("picture", "_conv_stem", "_bn0", 2)
    for n, stride in enumerate(STRIDES):
        block, start = f"_blocks.{n}.", x
        if f"{block}_expand_conv.weight" in graph.tensors:
            x = graph.conv(x, f"{block}_expand_conv", f"{block}_bn0")
        x = graph.conv(x, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        x = graph.conv(x, f"{block}_project_conv", f"{block}_bn2", act=False)
        shapes = [graph.tensors[f"{block}{part}.weight"].shape for part in ("_depthwise_conv", "_project_conv")]
        inputs = graph.tensors.get(f"{block}_expand_conv.weight", np.zeros((1, shapes[0][0]))).shape[1]
        if stride == 1 and inputs == shapes[1][0]:
            x = graph.add("Add", x, start)
    return graph.conv(x, "_conv_head", "_bn1", name="head.conv")


def convert(path: Path, classes: int = CLASSES) -> bytes:
    """The model's file. With 1000 classes, the last layer is that of ImageNet."""
    graph = Graph(read_tensors(path))
    pooled = graph.add("Flatten", graph.add("GlobalAveragePool", features(graph)))
    last, bias = np.zeros((classes, 1280)), np.zeros(classes)
    if classes == 1000:
        last, bias = graph.tensors["_fc.weight"], graph.tensors["_fc.bias"]
    last_name, bias_name = graph.weight("head.last", last), graph.weight("head.last_bias", bias)
    graph.add("Gemm", pooled, last_name, bias_name, transB=1, out="scores")
    info, limits = helper.make_tensor_value_info, {"zero": np.float32(0), "six": np.float32(6)}
    made = helper.make_graph(
        graph.nodes, "pictures",
        [info("picture", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])], [info("scores", TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in {**graph.weights, **limits}.items()],
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(convert(Path(sys.argv[1])))
