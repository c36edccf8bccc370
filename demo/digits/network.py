"""A small convolutional network in NumPy that can learn, and the same network as an ONNX model.

    x (N, 1, 28, 28) -> conv 5x5, 16 -> relu -> max pool 2 -> conv 3x3, 32 -> relu -> max pool 2 -> linear -> (N, 10)

Shapes: images (N, C, H, W), weights (M, C, K, K). Convolutions are padded to keep H and W.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# name -> shape of a weight; each has a bias beside it
LAYERS = {"conv1": (16, 1, 5, 5), "conv2": (32, 16, 3, 3), "linear": (32 * 7 * 7, 10)}


class Network:
    """Weights, and one pass forward (`forward`) or forward and backward with an Adam step (`learn`)."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.weights: dict[str, np.ndarray] = {}
        for name, shape in LAYERS.items():
            inputs = shape[0] if name == "linear" else int(np.prod(shape[1:]))
            self.weights[name] = (generator.standard_normal(shape) * np.sqrt(2 / inputs)).astype(np.float32)
            self.weights[f"{name}_bias"] = np.zeros(shape[1] if name == "linear" else shape[0], np.float32)
        self.moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in self.weights.items()}

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Logits (N, 10)."""
        return self._layers(x)[0]

    def _layers(self, x: np.ndarray) -> tuple[np.ndarray, list[Any]]:
        w, kept = self.weights, []
        for name in ("conv1", "conv2"):
            columns = _columns(x, w[name].shape[2])
            before = np.einsum("nhwk,mk->nmhw", columns, w[name].reshape(len(w[name]), -1), optimize=True)
            before += w[f"{name}_bias"][:, None, None]
            x, mask = _pool(np.maximum(before, 0))
            kept.append((name, columns, before > 0, mask))
        flat = x.reshape(len(x), -1)
        return flat @ w["linear"] + w["linear_bias"], [*kept, flat]

    def learn(self, x: np.ndarray, labels: np.ndarray, rate: float, step: int) -> float:
        """One Adam step down the mean cross entropy of a batch, which is returned."""
        logits, (*convolutions, flat) = self._layers(x)
        logits -= logits.max(1, keepdims=True)
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        rows = np.arange(len(x))
        loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())
        slope = probabilities
        slope[rows, labels] -= 1
        slope /= len(x)
        slopes = {"linear": flat.T @ slope, "linear_bias": slope.sum(0)}
        slope = (slope @ self.weights["linear"].T).reshape(len(x), 32, 7, 7)
        for name, columns, positive, mask in reversed(convolutions):
            slope = _unpool(slope, mask) * positive
            weight = self.weights[name]
            slopes[f"{name}_bias"] = slope.sum((0, 2, 3))
            slopes[name] = np.einsum("nmhw,nhwk->mk", slope, columns, optimize=True).reshape(weight.shape)
            if name != "conv1":  # gradient of the input: a convolution with flipped weights
                turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3).reshape(weight.shape[1], -1)
                slope = np.einsum("nhwk,ck->nchw", _columns(slope, weight.shape[2]), turned, optimize=True)
        self._descend(slopes, rate, step)
        return loss

    def _descend(self, slopes: dict[str, np.ndarray], rate: float, step: int) -> None:
        for name, slope in slopes.items():
            mean, square = self.moments[name]
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            change = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
            self.weights[name] -= (rate * change).astype(np.float32)


def _columns(x: np.ndarray, size: int) -> np.ndarray:
    """Every padded window of an image: (N, C, H, W) -> (N, H, W, C * size * size)."""
    edge = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = sliding_window_view(padded, (size, size), (2, 3)).transpose(0, 2, 3, 1, 4, 5)
    return np.ascontiguousarray(windows).reshape(*windows.shape[:3], -1)


def _pool(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest element of every 2x2 block, and a mask of its position."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    top = blocks.max((3, 5), keepdims=True)
    mask = blocks == top
    return top[:, :, :, 0, :, 0], mask / mask.sum((3, 5), keepdims=True)


def _unpool(slope: np.ndarray, mask: np.ndarray) -> np.ndarray:
    n, c, h, w = slope.shape
    return (slope[:, :, :, None, :, None] * mask).reshape(n, c, h * 2, w * 2).astype(np.float32)


def to_onnx(network: Network) -> bytes:
    """The network as a model: `image` (N, 1, 28, 28) in [0, 1], ink bright -> `probabilities` (N, 10)."""
    from onnx import TensorProto, helper, numpy_helper

    def conv(source: str, name: str, result: str) -> list[Any]:
        edge = LAYERS[name][2] // 2
        return [
            helper.make_node("Conv", [source, name, f"{name}_bias"], [f"{name}_out"], name, pads=[edge] * 4),
            helper.make_node("Relu", [f"{name}_out"], [f"{name}_relu"], f"{name}_relu"),
            helper.make_node("MaxPool", [f"{name}_relu"], [result], result, kernel_shape=[2, 2], strides=[2, 2]),
        ]

    nodes = [
        *conv("image", "conv1", "pool1"),
        *conv("pool1", "conv2", "pool2"),
        helper.make_node("Flatten", ["pool2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "linear", "linear_bias"], ["logits"], "linear"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 28, 28])]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])]
    weights = [numpy_helper.from_array(value, name) for name, value in network.weights.items()]
    graph = helper.make_graph(nodes, "digits", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()
