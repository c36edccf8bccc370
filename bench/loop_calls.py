"""Recurrences whose steps call routines, so that no procedure has them: convolutions, products of bytes, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto

from bench.loop_nodes import Feeds, Nodes, normal, recurrence


def convolution(steps: int, form: str = "scan", c: int = 64, n: int = 16) -> tuple[ModelProto, Feeds]:
    """A convolution of the state along its positions: h = tanh(x + w * h)."""
    rng = np.random.default_rng(0)

    def step(k: Nodes, x: dict[str, str], s: dict[str, str]) -> Any:
        new = k("Tanh", k("Add", x["x"], k("Conv", s["h"], "w", pads=[1, 1])))
        return {"h": new}, {"y": new}

    scans, weights = {"x": normal(rng, steps, 1, c, n)}, {"w": normal(rng, c, c, 3, scale=(3 * c) ** -0.5)}
    return recurrence("convolution", form, steps, scans, {"h": normal(rng, 1, c, n)}, weights, step)


def quantized_lstm(steps: int, form: str = "scan", h: int = 128) -> tuple[ModelProto, Feeds]:
    """An LSTM cell as onnxruntime's dynamic quantisation writes it: the state's product is of bytes."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.integers(-127, 128, (h, 4 * h)).astype(np.int8), "scale": np.float32(0.001)}
    states = {"h": np.zeros((1, h), np.float32), "c": np.zeros((1, h), np.float32)}

    def step(k: Nodes, x: dict[str, str], s: dict[str, str]) -> Any:
        codes, scale, zero = k("DynamicQuantizeLinear", s["h"], out=[k.name() for _ in range(3)])
        product = k("Cast", k("MatMulInteger", codes, "w", zero), to=1)
        total = k("Add", k("Mul", product, k("Mul", scale, "scale")), x["x"])
        i, o, f, g = k.parts(total, [h] * 4)
        c = k("Add", k("Mul", k("Sigmoid", f), s["c"]), k("Mul", k("Sigmoid", i), k("Tanh", g)))
        y = k("Mul", k("Sigmoid", o), k("Tanh", c))
        return {"h": y, "c": c}, {"y": y}

    return recurrence("quantized_lstm", form, steps, {"x": normal(rng, steps, 1, 4 * h)}, states, weights, step)


def attention(steps: int, form: str = "scan", h: int = 8, d: int = 64, n: int = 128) -> tuple[ModelProto, Feeds]:
    """Attention over a window of the last n keys and values, after a product with large weights."""
    rng = np.random.default_rng(0)
    width = h * d
    weights = {"w": normal(rng, width, 3 * width, scale=width**-0.5)}
    states = {"keys": normal(rng, h, n, d), "values": normal(rng, h, n, d)}

    def step(k: Nodes, x: dict[str, str], s: dict[str, str]) -> Any:
        rows = [k.shaped(row, h, 1, d) for row in k.parts(k("MatMul", x["x"], "w"), [width] * 3)]
        keys, values = [
            k("Concat", k.part(s[name], 1, n, 1), row, axis=1) for name, row in zip(states, rows[1:], strict=True)
        ]
        scores = k("MatMul", k("Mul", rows[0], k.number(d**-0.5)), k("Transpose", keys, perm=[0, 2, 1]))
        y = k.shaped(k("MatMul", k("Softmax", scores, axis=-1), values), 1, width)
        return {"keys": keys, "values": values}, {"y": y}

    return recurrence("attention", form, steps, {"x": normal(rng, steps, 1, width)}, states, weights, step)


CALLS: dict[str, Callable[[int], tuple[ModelProto, Feeds]]] = {
    "convolution_scan": convolution,
    "convolution_loop": lambda t: convolution(t, "loop"),
    "quantized_lstm_scan": quantized_lstm,
    "attention_scan": attention,
}
