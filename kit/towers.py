"""A model like CLIP (ViT-B/32) with random weights: an image tower and a text tower, whose embeddings it compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Sizes:
    """layers, image_width, text_width: of the towers; heads have 64 elements"""

    layers: int = 12
    image_width: int = 768
    text_width: int = 512
    embedding: int = 512
    pixels: int = 224
    patch: int = 32
    vocabulary: int = 49408
    tokens: int = 77


@dataclass
class Towers:
    """Adds nodes and weights of both towers to one graph."""

    sizes: Sizes
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(0)

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.count}"], name=f"{op}_{self.count}", **attributes))
        return f"v{self.count}"

    def weight(self, *shape: int, scale: float = 0.02) -> str:
        self.count += 1
        values = scale * self.random.standard_normal(shape, np.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{self.count}"))
        return f"w{self.count}"

    def integers(self, *values: int) -> str:
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), f"i{self.count}"))
        return f"i{self.count}"

    # ── layers ──

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def norm(self, x: str, width: int) -> str:
        return self.op("LayerNormalization", x, self.weight(width, scale=1), self.weight(width), axis=-1)

    def attention(self, x: str, width: int, mask: str) -> str:
        heads = self.integers(0, 0, width // 64, 64)
        q, k, v = (self.op("Reshape", self.linear(x, width, width), heads) for _ in range(3))
        q, v = (self.op("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 2, 3, 1]))
        scores = self.op("Mul", scores, self.constant(1 / 8))
        weights = self.op("Softmax", self.op("Add", scores, mask) if mask else scores, axis=-1)
        merged = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", merged, self.integers(0, 0, width)), width, width)

    def constant(self, value: Any) -> str:
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), f"c{self.count}"))
        return f"c{self.count}"

    def layer(self, x: str, width: int, mask: str = "") -> str:
        x = self.op("Add", x, self.attention(self.norm(x, width), width, mask))
        inner = self.linear(self.norm(x, width), width, 4 * width)
        quick = self.op("Mul", inner, self.op("Sigmoid", self.op("Mul", inner, self.constant(1.702))))
        return self.op("Add", x, self.linear(quick, 4 * width, width))

    # ── towers ──

    def image(self, output: str) -> None:
        s, width = self.sizes, self.sizes.image_width
        places = (s.pixels // s.patch) ** 2
        x = self.op("Conv", "pixel_values", self.weight(width, 3, s.patch, s.patch), strides=[s.patch, s.patch])
        x = self.op("Transpose", self.op("Reshape", x, self.integers(0, width, places)), perm=[0, 2, 1])
        batch = self.op("Shape", "pixel_values", start=0, end=1)
        shape = self.op("Concat", batch, self.integers(1, width), axis=0)
        x = self.op("Concat", self.op("Expand", self.weight(1, 1, width), shape), x, axis=1)
        x = self.norm(self.op("Add", x, self.weight(places + 1, width)), width)
        for _ in range(s.layers):
            x = self.layer(x, width)
        first = self.op("Gather", x, self.scalar(0), axis=1)
        self.embed(self.norm(first, width), width, output)

    def text(self, output: str) -> None:
        s, width = self.sizes, self.sizes.text_width
        x = self.op("Gather", self.weight(s.vocabulary, width), "input_ids")
        x = self.op("Add", x, self.weight(s.tokens, width))
        mask = self.constant(np.triu(np.full((s.tokens, s.tokens), -1e9), 1))
        for _ in range(s.layers):
            x = self.layer(x, width, mask)
        last = self.op("ArgMax", "input_ids", axis=1, keepdims=1)  # the end of the text has the largest token
        index = self.op("Unsqueeze", last, self.integers(2))
        shape = self.op("Concat", self.op("Shape", "input_ids", start=0, end=1), self.integers(1, width), axis=0)
        x = self.op("GatherElements", self.norm(x, width), self.op("Expand", index, shape), axis=1)
        self.embed(self.op("Squeeze", x, self.integers(1)), width, output)

    def scalar(self, value: int) -> str:
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.array(value, np.int64), f"i{self.count}"))
        return f"i{self.count}"

    def embed(self, x: str, width: int, output: str) -> None:
        x = self.op("MatMul", x, self.weight(width, self.sizes.embedding))
        length = self.op("ReduceL2", x, self.integers(1), keepdims=1)
        self.nodes.append(helper.make_node("Div", [x, length], [output], name=output))

    def both(self) -> None:
        turned = self.op("Transpose", "image_embeds", perm=[1, 0])
        similar = self.op("MatMul", "text_embeds", turned)
        self.nodes.append(helper.make_node("Mul", [similar, self.constant(100.0)], ["logits_per_text"]))
        self.nodes.append(helper.make_node("Transpose", ["logits_per_text"], ["logits_per_image"], perm=[1, 0]))


def write(path: Path, sizes: Sizes, image: bool = True, text: bool = True) -> Path:
    """Write a model with these towers, its weights beside it."""
    t, inputs, outputs = Towers(sizes), [], []
    if image:
        t.image("image_embeds")
        shape = ["images", 3, sizes.pixels, sizes.pixels]
        inputs.append(helper.make_tensor_value_info("pixel_values", FLOAT, shape))
        outputs.append(helper.make_tensor_value_info("image_embeds", FLOAT, ["images", sizes.embedding]))
    if text:
        t.text("text_embeds")
        inputs.append(helper.make_tensor_value_info("input_ids", INT, ["texts", sizes.tokens]))
        outputs.append(helper.make_tensor_value_info("text_embeds", FLOAT, ["texts", sizes.embedding]))
    if image and text:
        t.both()
        outputs += [
            helper.make_tensor_value_info("logits_per_image", FLOAT, ["images", "texts"]),
            helper.make_tensor_value_info("logits_per_text", FLOAT, ["texts", "images"]),
        ]
    graph = helper.make_graph(t.nodes, path.stem, inputs, outputs, t.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / f"{path.name}.data").unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")
    return path


def feeds(sizes: Sizes, images: int = 1, texts: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    pixels = random.standard_normal((images, 3, sizes.pixels, sizes.pixels), np.float32)
    ids = random.integers(0, sizes.vocabulary - 1, (texts, sizes.tokens))
    ids[:, -1] = sizes.vocabulary - 1
    return {"pixel_values": pixels, "input_ids": ids}
