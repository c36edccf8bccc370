"""A small decoder with the names of an exporter, for tests of adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from kit.training_networks import model, node, random

WIDTH, HEADS, VOCABULARY, LAYERS = 64, 4, 32, 2
DOMAIN = "com.microsoft"


def codes(w: np.ndarray, block: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """The weight (K, N) in 4 bits by blocks of K: codes (N, blocks, block / 2) and scales (N · blocks)."""
    rows = w.T.reshape(w.shape[1], -1, block)
    scales = np.abs(rows).max(2, keepdims=True) / 7 + 1e-8
    levels = np.clip(np.round(rows / scales) + 8, 0, 15).astype(np.uint8)
    return levels[..., ::2] | levels[..., 1::2] << 4, scales.ravel().astype(np.float32)


class Decoder:
    """ids (N, T) -> logits (N, T, VOCABULARY). kind: "float32", "float16" or "4 bits", of all projections; fused: one
    product makes query, key and value"""

    def __init__(self, kind: str = "float32", fused: bool = False) -> None:
        self.kind, self.fused = kind, fused
        self.half = kind == "float16"
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}

    def build(self) -> bytes:
        rng = np.random.default_rng(5)
        self.weights["model.embed_tokens.weight"] = rng.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
        self.weights["split"], self.weights["joined"] = np.int64([0, 0, HEADS, -1]), np.int64([0, 0, WIDTH])
        self.weights["depth"] = np.float32((WIDTH // HEADS) ** -0.5)
        self._add("Gather", ["model.embed_tokens.weight", "ids"], "x0")
        x = "x0"
        for n in range(LAYERS):
            x = self._layer(f"model/layers.{n}", x)
        self._product("lm_head", x, "logits", VOCABULARY)
        if self.half:
            self.weights = {n: w.astype(np.float16) if w.dtype == np.float32 else w for n, w in self.weights.items()}
        kind = T.FLOAT16 if self.half else T.FLOAT
        outputs = {"logits": (kind, ["N", "T", VOCABULARY])}
        return model(self.nodes, {"ids": (T.INT64, ["N", "T"])}, outputs, self.weights, (DOMAIN,))

    def _layer(self, name: str, x: str) -> str:
        at = f"{name}/self_attn"
        if self.fused:
            self._product(f"{at}/qkv_proj", x, f"{at}/qkv", 3 * WIDTH)
            self._add("Split", [f"{at}/qkv"], f"{at}/q", f"{at}/k", f"{at}/v", axis=2, num_outputs=3)
        else:
            for part in "qkv":
                self._product(f"{at}/{part}_proj", x, f"{at}/{part}", WIDTH)
        for part in "qkv":
            perm = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            self._add("Reshape", [f"{at}/{part}", "split"], f"{at}/{part}4")
            self._add("Transpose", [f"{at}/{part}4"], f"{at}/{part}t", perm=perm)
        self._add("MatMul", [f"{at}/qt", f"{at}/kt"], f"{at}/scores")
        self._add("Mul", [f"{at}/scores", "depth"], f"{at}/scaled")
        self._add("Softmax", [f"{at}/scaled"], f"{at}/shares", axis=-1)
        self._add("MatMul", [f"{at}/shares", f"{at}/vt"], f"{at}/heads")
        self._add("Transpose", [f"{at}/heads"], f"{at}/rows", perm=[0, 2, 1, 3])
        self._add("Reshape", [f"{at}/rows", "joined"], f"{at}/joined")
        self._product(f"{at}/o_proj", f"{at}/joined", f"{at}/out", WIDTH)
        self._add("Add", [x, f"{at}/out"], f"{name}/middle")
        self._product(f"{name}/mlp/up_proj", f"{name}/middle", f"{name}/up", 2 * WIDTH)
        self._add("Relu", [f"{name}/up"], f"{name}/relu")
        self._product(f"{name}/mlp/down_proj", f"{name}/relu", f"{name}/down", WIDTH, 2 * WIDTH)
        self._add("Add", [f"{name}/middle", f"{name}/down"], f"{name}/result")
        return f"{name}/result"

    def _product(self, name: str, x: str, y: str, columns: int, rows: int = WIDTH) -> None:
        seed = sum(name.encode())
        w = random(seed, w=(rows, columns))["w"] * np.float32((columns / rows) ** 0.5 * 0.5)
        if self.kind == "4 bits":
            packed, scales = codes(w)
            self.weights |= {f"{name}.q": packed, f"{name}.s": scales}
            self.nodes.append(helper.make_node(
                "MatMulNBits", [x, f"{name}.q", f"{name}.s"], [y], name=f"/{name}/MatMul_Q4", domain=DOMAIN,
                K=rows, N=columns, bits=4, block_size=32,
            ))  # fmt: skip
            return
        weight = f"onnx::MatMul_{len(self.weights)}"
        self.weights[weight] = w
        self.nodes.append(helper.make_node("MatMul", [x, weight], [y], name=f"/{name}/MatMul"))

    def _add(self, op: str, inputs: list[str], *outputs: str, **attrs: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, list(outputs), **attrs))


def texts(count: int = 8, length: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Sequences to learn, and what follows each of their elements."""
    rng = np.random.default_rng(3)
    starts, steps = rng.integers(0, VOCABULARY, (count, 1)), rng.integers(1, 4, (count, 1))
    ids = (starts + steps * np.arange(length + 1)) % VOCABULARY
    return ids[:, :-1].astype(np.int64), ids[:, 1:].astype(np.int64)


def peft(rng: np.random.Generator, rank: int, layers: int = LAYERS, parts: str = "qv") -> dict[str, np.ndarray]:
    """The tensors of an adapter of these projections, with PEFT's names."""
    found = {}
    for n in range(layers):
        for part in parts:
            name = f"base_model.model.model.layers.{n}.self_attn.{part}_proj"
            found[f"{name}.lora_A.weight"] = rng.normal(size=(rank, WIDTH)).astype(np.float32) / 8
            found[f"{name}.lora_B.weight"] = rng.normal(size=(WIDTH, rank)).astype(np.float32) / 8
    return found


def with_inputs() -> bytes:
    """A model that was exported with inputs for an adapter, as ONNX Runtime wants them."""
    nodes = [
        node("MatMul", "x w", "m"), node("MatMul", "x layers.0.attn.q_proj.lora_A.MatMul.weight", "u"),
        node("MatMul", "u layers.0.attn.q_proj.lora_B.MatMul.weight", "v"), node("Add", "m v", "y"),
    ]  # fmt: skip
    a, b = (f"layers.0.attn.q_proj.lora_{part}.MatMul.weight" for part in "AB")
    weights = {**random(0, w=(6, 5)), a: np.zeros((6, 0), np.float32), b: np.zeros((0, 5), np.float32)}
    inputs = {"x": (T.FLOAT, ["N", 6]), a: (T.FLOAT, [6, "rank"]), b: (T.FLOAT, ["rank", 5])}
    return model(nodes, inputs, {"y": (T.FLOAT, ["N", 5])}, weights)
