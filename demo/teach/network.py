"""Writes network.onnx beside this file: a small convolutional classifier of drawings with random weights.

    drawing (N, 1, 28, 28) -> conv 5x5, 12 -> relu -> max pool 2 -> conv 3x3, 24 -> relu -> max pool 2 -> linear, 32
    -> relu -> linear -> logits (N, CLASSES)

usage: python -m demo.teach.network
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CLASSES = 12  # symbols that a visitor may have; teach.js has the same number
SHAPES = {"conv1": (12, 1, 5, 5), "conv2": (24, 12, 3, 3), "hidden": (32, 24 * 7 * 7), "last": (CLASSES, 32)}


def weights(seed: int) -> dict[str, np.ndarray]:
    """He's initialisation; biases and the last layer are zeros, so that all symbols are equally likely at first."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for name, shape in SHAPES.items():
        scale = 0 if name == "last" else np.sqrt(2 / np.prod(shape[1:]))
        found[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        found[f"{name}_bias"] = np.zeros(shape[0], np.float32)
    return found


def to_onnx(values: dict[str, np.ndarray]) -> bytes:
    nodes, x = [], "drawing"
    for name in ("conv1", "conv2"):
        edge = SHAPES[name][2] // 2
        nodes += [
            helper.make_node("Conv", [x, name, f"{name}_bias"], [f"{name}_sum"], name, pads=[edge] * 4),
            helper.make_node("Relu", [f"{name}_sum"], [f"{name}_relu"], f"{name}_relu"),
            helper.make_node(
                "MaxPool", [f"{name}_relu"], [f"{name}_pool"], f"{name}_pool", kernel_shape=[2, 2], strides=[2, 2]
            ),
        ]
        x = f"{name}_pool"
    nodes += [
        helper.make_node("Flatten", [x], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "hidden", "hidden_bias"], ["hidden_sum"], "hidden", transB=1),
        helper.make_node("Relu", ["hidden_sum"], ["hidden_relu"], "hidden_relu"),
        helper.make_node("Gemm", ["hidden_relu", "last", "last_bias"], ["logits"], "last", transB=1),
    ]
    drawing = helper.make_tensor_value_info("drawing", TensorProto.FLOAT, ["N", 1, 28, 28])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])
    initializers = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "symbols", [drawing], [logits], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


if __name__ == "__main__":
    Path(__file__).with_name("network.onnx").write_bytes(to_onnx(weights(1)))
