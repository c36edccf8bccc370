"""The networks that `python -m bench training` trains, their weights and batches. bench/page/training/ has the same
networks for the other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto as T

from kit.training_networks import classifier, model, node, random

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Net:
    """feeds(n): of batch n, with the targets; sizes: what the other libraries need to know"""

    weights: Callable[[], Arrays]
    make: Callable[[Arrays], bytes]
    feeds: Callable[[int], Arrays]
    sizes: dict[str, int] = field(default_factory=dict)

    def model(self) -> bytes:
        return self.make(self.weights())


# ── a classifier of images, in the style of LeNet ─────────────────────────────────────────────────────────────────

IMAGES, SIDE = 32, 28


def cnn_weights() -> Arrays:
    return random(
        0, w1=(16, 1, 3, 3), b1=(16,), w2=(32, 16, 3, 3), b2=(32,), w3=(10, 32 * (SIDE // 4) ** 2), b3=(10,)
    )  # fmt: skip


def cnn_feeds(n: int) -> Arrays:
    """Ten patterns with noise."""
    rng = np.random.default_rng(n)
    patterns = np.random.default_rng(0).normal(size=(10, 1, SIDE, SIDE))
    target = rng.integers(0, 10, IMAGES)
    image = patterns[target] + rng.normal(size=(IMAGES, 1, SIDE, SIDE))
    return {"image": image.astype(np.float32), "target": target}


# ── a decoder of characters ───────────────────────────────────────────────────────────────────────────────────────

LAYERS, WIDTH, HEADS, LENGTH, ROWS, VOCABULARY = 2, 64, 4, 64, 8, 65


def transformer_weights() -> Arrays:
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, WIDTH), "position": (LENGTH, WIDTH)}
    for n in range(LAYERS):
        shapes |= {f"{n}.{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "o")}
        shapes |= {f"{n}.up": (WIDTH, 4 * WIDTH), f"{n}.up_bias": (4 * WIDTH,)}
        shapes |= {f"{n}.down": (4 * WIDTH, WIDTH), f"{n}.down_bias": (WIDTH,)}
    made = {name: 0.3 * w for name, w in random(1, **shapes, head=(WIDTH, VOCABULARY)).items()}
    for name in [*[f"{n}.{part}" for n in range(LAYERS) for part in ("attention", "feed")], "last"]:
        made |= {f"{name}_scale": np.ones(WIDTH, np.float32), f"{name}_shift": np.zeros(WIDTH, np.float32)}
    return made


def transformer(weights: Arrays) -> bytes:
    mask = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)
    constants = {
        "mask": mask, "scale": np.array((WIDTH // HEADS) ** -0.5, np.float32),
        "heads": np.array([0, 0, HEADS, WIDTH // HEADS]), "joined": np.array([0, 0, WIDTH]),
    }  # fmt: skip
    nodes = [node("Gather", "embedding ids", "e"), node("Add", "e position", "x0")]
    for n in range(LAYERS):
        nodes += _block(n)
    nodes += [_norm(f"x{LAYERS}", "last", "z"), node("MatMul", "z head", "logits")]
    ids, logits = (T.INT64, ["N", LENGTH]), (T.FLOAT, ["N", LENGTH, VOCABULARY])
    return model(nodes, {"ids": ids}, {"logits": logits}, weights | constants)


def _norm(x: str, name: str, y: str) -> Any:
    return node("LayerNormalization", f"{x} {name}_scale {name}_shift", y)


def _block(n: int) -> list[Any]:
    p = f"{n}."
    nodes = [_norm(f"x{n}", p + "attention", p + "n")]
    for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        at = p + part
        nodes += [
            node("MatMul", f"{p}n {at}", at + "0"), node("Reshape", f"{at}0 heads", at + "1"),
            node("Transpose", at + "1", at + "2", perm=perm),
        ]  # fmt: skip
    return [
        *nodes,
        node("MatMul", f"{p}q2 {p}k2", p + "s0"), node("Mul", f"{p}s0 scale", p + "s1"),
        node("Add", f"{p}s1 mask", p + "s"), node("Softmax", p + "s", p + "p"),
        node("MatMul", f"{p}p {p}v2", p + "o0"), node("Transpose", p + "o0", p + "o1", perm=[0, 2, 1, 3]),
        node("Reshape", f"{p}o1 joined", p + "o2"), node("MatMul", f"{p}o2 {p}o", p + "o3"),
        node("Add", f"x{n} {p}o3", p + "a"), _norm(p + "a", p + "feed", p + "m"),
        node("MatMul", f"{p}m {p}up", p + "u0"), node("Add", f"{p}u0 {p}up_bias", p + "u1"),
        node("Gelu", p + "u1", p + "u"), node("MatMul", f"{p}u {p}down", p + "d0"),
        node("Add", f"{p}d0 {p}down_bias", p + "d"), node("Add", f"{p}a {p}d", f"x{n + 1}"),
    ]  # fmt: skip


def transformer_feeds(n: int) -> Arrays:
    """Sequences in which each token follows from the one before, mostly."""
    rng = np.random.default_rng(n)
    ids = np.zeros((ROWS, LENGTH + 1), np.int64)
    ids[:, 0] = rng.integers(0, VOCABULARY, ROWS)
    for i in range(LENGTH):
        follows = (ids[:, i] * 7 + 3) % VOCABULARY
        ids[:, i + 1] = np.where(rng.random(ROWS) < 0.8, follows, rng.integers(0, VOCABULARY, ROWS))
    return {"ids": ids[:, :-1].copy(), "target": ids[:, 1:].copy()}


NETS = {
    "cnn": Net(cnn_weights, lambda weights: classifier(weights, SIDE), cnn_feeds),
    "transformer": Net(
        transformer_weights, transformer, transformer_feeds,
        {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "length": LENGTH, "vocabulary": VOCABULARY},
    ),
}  # fmt: skip
