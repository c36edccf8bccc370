"""Data and small networks for tests of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

OPSET = 20


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 1, 8, 8) in [0, 1] and labels, then those of the held-out fifth. The data are scikit-learn's copy of
    UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998; CC BY 4.0)."""
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        images, labels = data["images"].astype(np.float32).reshape(-1, 1, 8, 8) / 16, data["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    cut = len(images) * 4 // 5
    return images[order[:cut]], labels[order[:cut]], images[order[cut:]], labels[order[cut:]]


def model(
    nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, tuple[int, list[Any]]],
    weights: dict[str, np.ndarray], domains: tuple[str, ...] = (),
) -> bytes:  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info(n, *t) for n, t in inputs.items()], [info(n, *t) for n, t in outputs.items()],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", OPSET), *[helper.make_opsetid(d, 1) for d in domains]]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def random(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Weights from a normal distribution whose spread keeps the size of activations; vectors are zeros."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.normal(size=s) * np.sqrt(2 / np.prod(s[1:])) if len(s) > 1 else np.zeros(s)).astype(np.float32)
        for name, s in shapes.items()
    }


def convolutional(seed: int = 0) -> bytes:
    """A classifier of 8×8 images: "image" (N, 1, 8, 8) -> "logits" (N, 10)."""
    return classifier(
        random(seed, w1=(12, 1, 3, 3), b1=(12,), w2=(24, 12, 3, 3), b2=(24,), w3=(10, 96), b3=(10,)), side=8
    )


def classifier(weights: dict[str, np.ndarray], side: int) -> bytes:
    """Two convolutions and a layer, in the style of LeNet: "image" (N, 1, side, side) -> "logits" (N, 10). weights: w1,
    w2 of the convolutions, w3 (10, channels · (side / 4)²), and b1, b2, b3"""
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("Conv", "image w1 b1", "c1", pads=[1] * 4), node("Relu", "c1", "r1"), node("MaxPool", "r1", "p1", **pool),
        node("Conv", "p1 w2 b2", "c2", pads=[1] * 4), node("Relu", "c2", "r2"), node("MaxPool", "r2", "p2", **pool),
        node("Flatten", "p2", "f"), node("Gemm", "f w3 b3", "logits", transB=1),
    ]  # fmt: skip
    return model(nodes, {"image": (T.FLOAT, ["N", 1, side, side])}, {"logits": (T.FLOAT, ["N", 10])}, weights)


def deep(depth: int, channels: int, side: int, dropout: float = 0.0) -> bytes:
    """A classifier of images by blocks of Conv, BatchNormalization and Relu: "image" (N, 1, side, side) -> "logits"
    (N, 10). dropout: share of a Dropout before the last layer"""
    weights = random(2, out=(10, channels))
    weights |= {"share": np.array(dropout, np.float32), "yes": np.array(True)}
    nodes, x = [], "image"
    for n in range(depth):
        weights |= {f"w{n}": random(n, w=(channels, channels if n else 1, 3, 3))["w"]}
        weights |= {f"{name}{n}": np.full(channels, name in ("scale", "var"), np.float32) for name in _STATISTICS}
        norm = " ".join(f"{name}{n}" for name in _STATISTICS)
        nodes += [
            node("Conv", f"{x} w{n}", f"c{n}", pads=[1] * 4), node("BatchNormalization", f"c{n} {norm}", f"n{n}"),
            node("Relu", f"n{n}", f"r{n}"),
        ]  # fmt: skip
        x = f"r{n}"
    nodes += [
        node("Dropout", f"{x} share yes", "d"), node("GlobalAveragePool", "d", "p"), node("Flatten", "p", "f"),
        node("Gemm", "f out", "logits", transB=1),
    ]  # fmt: skip
    return model(nodes, {"image": (T.FLOAT, ["N", 1, side, side])}, {"logits": (T.FLOAT, ["N", 10])}, weights)


_STATISTICS = ("scale", "shift", "mean", "var")  # inputs of BatchNormalization


def dense(seed: int = 0, extra: list[Any] | None = None) -> bytes:
    """Two layers: "x" (N, 6) -> "y" (N, 3). extra: nodes between them, from "a" to "b", in place of a Tanh"""
    weights = random(seed, w1=(6, 8), b1=(8,), w2=(8, 3), b2=(3,))
    nodes = [node("Gemm", "x w1 b1", "a"), *(extra or [node("Tanh", "a", "b")]), node("Gemm", "b w2 b2", "y")]
    return model(nodes, {"x": (T.FLOAT, ["N", 6])}, {"y": (T.FLOAT, ["N", 3])}, weights)


def layer() -> bytes:
    """A layer after a Tanh: "x" (N, 6) -> "y" (N, 3)."""
    nodes = [node("Tanh", "x", "t"), node("Gemm", "t w b", "y")]
    return model(nodes, {"x": (T.FLOAT, ["N", 6])}, {"y": (T.FLOAT, ["N", 3])}, random(0, w=(6, 3), b=(3,)))


def transformer(dtype: type = np.float32, vocabulary: int = 50, width: int = 32, blocks: int = 2) -> bytes:
    """A language model of 4 heads without positions: "ids" (N, S) -> "logits" (N, S, vocabulary)."""
    rng, weights, nodes, heads = np.random.default_rng(0), {}, [], 4

    def weight(name: str, *shape: int) -> str:
        x = rng.normal(size=shape) / np.sqrt(shape[0]) if len(shape) > 1 else np.full(shape, name.endswith("scale"))
        weights[name] = x.astype(dtype)
        return name

    def add(op: str, inputs: str, output: str, **attrs: Any) -> str:
        nodes.append(node(op, inputs, output, **attrs))
        return output

    weights["split"] = np.array([0, 0, heads, width // heads], np.int64)
    weights["joined"] = np.array([0, 0, width], np.int64)
    weights["root"] = np.array(np.sqrt(width / heads), dtype)
    x = add("Gather", f"{weight('embedding', vocabulary, width)} ids", "x")
    for n in range(blocks):
        p = f"block{n}."
        norm = f"{weight(p + 'norm1.scale', width)} {weight(p + 'norm1.bias', width)}"
        normed = add("LayerNormalization", f"{x} {norm}", p + "normed")
        parts = []
        for k, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            flat = add("MatMul", f"{normed} {weight(p + k + '_proj', width, width)}", p + k)
            split = add("Reshape", f"{flat} split", p + k + ".split")
            parts.append(add("Transpose", split, p + k + ".heads", perm=perm))
        scores = add("Div", f"{add('MatMul', ' '.join(parts[:2]), p + 'qk')} root", p + "scores")
        mixed = add("MatMul", f"{add('Softmax', scores, p + 'shares')} {parts[2]}", p + "mixed")
        turned = add("Transpose", mixed, p + "turned", perm=[0, 2, 1, 3])
        joined = add("Reshape", f"{turned} joined", p + "joined")
        out = add("MatMul", f"{joined} {weight(p + 'o_proj', width, width)}", p + "o")
        x = add("Add", f"{x} {out}", p + "x")
        norm = f"{weight(p + 'norm2.scale', width)} {weight(p + 'norm2.bias', width)}"
        normed = add("LayerNormalization", f"{x} {norm}", p + "normed2")
        wide = add("Gelu", add("MatMul", f"{normed} {weight(p + 'up', width, 2 * width)}", p + "u"), p + "wide")
        out = add("MatMul", f"{wide} {weight(p + 'down', 2 * width, width)}", p + "d")
        x = add("Add", f"{x} {out}", p + "y")
    add("MatMul", f"{x} {weight('head', width, vocabulary)}", "logits")
    kind = T.FLOAT16 if dtype is np.float16 else T.FLOAT
    return model(nodes, {"ids": (T.INT64, ["N", "S"])}, {"logits": (kind, ["N", "S", vocabulary])}, weights)


def recurrent(hidden: int = 5) -> bytes:
    """A classifier of sequences by an LSTM of both directions: "x" (S, N, 6) -> "logits" (N, 5)."""
    weights = random(3, w=(2, 4 * hidden, 6), r=(2, 4 * hidden, hidden), b=(2, 8 * hidden), head=(2 * hidden, 5))
    weights["flat"] = np.array([0, 2 * hidden], np.int64)
    nodes = [
        node("LSTM", "x w r b", "all last", hidden_size=hidden, direction="bidirectional"),
        node("Transpose", "last", "rows", perm=[1, 0, 2]), node("Reshape", "rows flat", "both"),
        node("MatMul", "both head", "logits"),
    ]  # fmt: skip
    return model(nodes, {"x": (T.FLOAT, ["S", "N", 6])}, {"logits": (T.FLOAT, ["N", 5])}, weights)


def batch(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds of `dense` and `layer` with a loss of classes."""
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(rows, 6)).astype(np.float32), "target": rng.integers(0, 3, rows)}


def of_outputs(outputs: list[np.ndarray]) -> bytes:
    """A model whose outputs are weights: "y0" = "w0" times 1, and so on."""
    names = range(len(outputs))
    return model(
        [node("Mul", f"w{n} one", f"y{n}") for n in names], {"one": (T.FLOAT, [])},
        {f"y{n}": (T.FLOAT, [*outputs[n].shape]) for n in names},
        {f"w{n}": outputs[n].astype(np.float32) for n in names},
    )  # fmt: skip


def with_gradient(w: np.ndarray) -> bytes:
    """A model whose gradient is what it is fed: y = Σ w·g"""
    nodes = [node("Mul", "w g", "p"), node("ReduceSum", "p", "y", keepdims=0)]
    return model(nodes, {"g": (T.FLOAT, [*w.shape])}, {"y": (T.FLOAT, [])}, {"w": w})


def noisy_classes(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds of `dense`, whose classes are mostly the largest of the first three inputs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6)).astype(np.float32)
    return {"x": x, "target": (x[:, :3] + rng.normal(size=(count, 3))).argmax(1)}
