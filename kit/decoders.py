"""Decoders with random weights, as model builders export them: GroupQueryAttention, norms and gated MLPs. Weights are
float32, float16, or 8- or 4-bit codes in blocks of 32 (MatMulNBits). "a" in the name is accuracy_level 4: the runtime
may quantise activations, too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
TYPES = ("fp32", "fp16", "int8", "int4", "int8a", "int4a")


class Size(NamedTuple):
    width: int
    layers: int
    heads: int
    kv: int  # KV heads
    inner: int  # width of the gated MLP
    words: int


TINY = Size(32, 2, 4, 2, 64, 50)
SIZES = {
    "15M": Size(288, 6, 6, 6, 768, 32000), "135M": Size(576, 30, 9, 3, 1536, 49152),
    "360M": Size(960, 32, 15, 5, 2560, 49152), "1B": Size(2048, 16, 32, 8, 8192, 32000),
}  # fmt: skip


class Decoder:
    """empty: count the weights without allocating them; window: the number of last keys that a token attends to, -1 for
    all."""

    def __init__(self, size: Size, kind: str, empty: bool, window: int = -1) -> None:
        self.size, self.kind, self.empty, self.window = size, kind, empty, window
        self.bytes = 0
        self.random = np.random.default_rng(0)
        self.float = np.float16 if kind == "fp16" else np.float32
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        width, layers, heads, kv, inner, words = self.size
        of = TensorProto.FLOAT16 if self.kind == "fp16" else TensorProto.FLOAT
        inputs = [_value("ids", TensorProto.INT64, ["batch", "tokens"])]
        inputs += [_value("last", TensorProto.INT32, ["batch"]), _value("total", TensorProto.INT32, [])]
        outputs = [_value("logits", of, ["batch", "tokens", words])]
        x = self.node("Gather", self.constant(words, width), "ids")
        for n in range(layers):
            y = self.norm(x)
            q, k, v = (self.linear(y, width, part * width // heads) for part in (heads, kv, kv))
            past = [f"past.{n}.{part}" for part in ("key", "value")]
            cache = ["batch", kv, "past", width // heads]
            inputs += [_value(name, of, cache) for name in past]
            present = [f"present.{n}.{part}" for part in ("key", "value")]
            outputs += [_value(name, of, ["batch", kv, "all", width // heads]) for name in present]
            y = self.node("GroupQueryAttention", q, k, v, *past, "last", "total", more=present,
                          domain="com.microsoft", num_heads=heads, kv_num_heads=kv,
                          local_window_size=self.window)  # fmt: skip
            x = self.node("Add", x, self.linear(y, width, width))
            y = self.norm(x)
            gate = self.linear(y, width, inner)
            y = self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), self.linear(y, width, inner))
            x = self.node("Add", x, self.linear(y, inner, width))
        self.linear(self.norm(x), width, words)
        self.nodes[-1].output[0] = "logits"
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def node(self, op: str, *inputs: str, more: list[str] | None = None, **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out, *(more or [])], **attributes))
        return out

    def constant(self, *shape: int) -> str:
        if self.empty:
            return ""
        values = self.random.standard_normal(shape, np.float32) / shape[0] ** 0.5
        return self.put(values.astype(self.float))

    def put(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def norm(self, x: str) -> str:
        one = "" if self.empty else self.put(np.ones(self.size.width, self.float))
        return self.node("LayerNormalization", x, one, axis=-1)

    def linear(self, x: str, width: int, out: int) -> str:
        if self.kind.startswith("fp"):
            self.bytes += width * out * np.dtype(self.float).itemsize
            return self.node("MatMul", x, self.constant(width, out))
        bits, blocks = int(self.kind[3]), width // BLOCK
        self.bytes += out * blocks * (BLOCK * bits // 8 + 4)
        if self.empty:
            return self.node("MatMulNBits", x)
        codes = self.random.integers(0, 256, (out, blocks, BLOCK * bits // 8), np.uint8)
        scales = np.full((out, blocks), 2.0 ** (1 - bits) / width**0.5, np.float32)
        return self.node("MatMulNBits", x, self.put(codes), self.put(scales), domain="com.microsoft", K=width, N=out,
                         bits=bits, block_size=BLOCK, accuracy_level=4 * self.kind.endswith("a"))  # fmt: skip


def _value(name: str, kind: int, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def cache_bytes(size: Size, kind: str, length: int) -> int:
    """A KV cache of this many tokens."""
    return 2 * size.layers * size.kv * size.width // size.heads * length * (2 if kind == "fp16" else 4)


def feeds(size: Size, kind: str, tokens: int, past: int) -> dict[str, np.ndarray]:
    total = past + tokens
    cache = np.zeros((1, size.kv, past, size.width // size.heads), np.float16 if kind == "fp16" else np.float32)
    given = {"ids": np.arange(tokens, dtype=np.int64)[None], "last": np.array([total - 1], np.int32)}
    caches = {f"past.{n}.{part}": cache for n in range(size.layers) for part in ("key", "value")}
    return {**given, "total": np.array(total, np.int32), **caches}
