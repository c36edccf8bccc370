"""Train the demo's digit classifier and write digits.onnx and samples.json beside this file.

A small convolutional network in plain NumPy, on scikit-learn's handwritten digits (8x8, magnified to 28x28), each
image shifted, turned and thickened at random as it is shown, so that it also reads what is drawn on a page.

usage: python -m demo.digits.train [--epochs 30]      needs: pip install ".[train]"
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from demo.digits.network import Network, to_onnx

HERE = Path(__file__).parent
SIZE = 28
BATCH = 64


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images (N, 8, 8) in [0, 1] and labels, then those of the held-out fifth."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    images, labels = data.images.astype(np.float32) / 16, data.target
    order = np.random.default_rng(0).permutation(len(images))
    cut = len(images) * 4 // 5
    return images[order[:cut]], labels[order[:cut]], images[order[cut:]], labels[order[cut:]]


def magnify(images: np.ndarray, generator: np.random.Generator | None = None) -> np.ndarray:
    """(N, 8, 8) -> (N, 1, 28, 28), bilinear; with a generator, each moved by up to 3 pixels, turned by up to 0.2 rad,
    scaled by up to 15 % and brightened at random."""
    count = len(images)
    random = generator.uniform(-1, 1, (5, count, 1, 1)) if generator else np.zeros((5, count, 1, 1))
    down, right, turn, zoom, bright = random * np.array([3, 3, 0.2, 0.15, 1]).reshape(5, 1, 1, 1)
    grid = np.arange(SIZE) - (SIZE - 1) / 2
    rows, columns = grid[:, None] - down, grid[None, :] - right
    scale = 8 / 22 * (1 + zoom)  # the digit takes 22 of the 28 pixels
    y = (rows * np.cos(turn) - columns * np.sin(turn)) * scale + 3.5
    x = (rows * np.sin(turn) + columns * np.cos(turn)) * scale + 3.5
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    y, x = np.clip(y + 1, 0, 8.999), np.clip(x + 1, 0, 8.999)
    top, left = y.astype(int), x.astype(int)
    fy, fx, which = y - top, x - left, np.arange(count)[:, None, None]
    above = padded[which, top, left] * (1 - fx) + padded[which, top, left + 1] * fx
    below = padded[which, top + 1, left] * (1 - fx) + padded[which, top + 1, left + 1] * fx
    result = above * (1 - fy) + below * fy
    return np.clip(result * (1.25 + 0.5 * bright), 0, 1).astype(np.float32)[:, None]


def accuracy(network: Network, images: np.ndarray, labels: np.ndarray) -> float:
    return float((network.forward(magnify(images)).argmax(1) == labels).mean())


def train(network: Network, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Train by Adam on the cross entropy, with a learning rate that falls along a cosine."""
    generator = np.random.default_rng(1)
    steps, step = epochs * (len(images) // BATCH), 0
    for epoch in range(epochs):
        order, loss = generator.permutation(len(images)), 0.0
        for start in range(0, len(images) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            step += 1
            rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * step / steps))
            loss += network.learn(magnify(images[batch], generator), labels[batch], rate, step)
        print(f"epoch {epoch + 1:>2}: loss {loss * BATCH / len(images):.3f}", flush=True)


def samples(images: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
    """Two held-out images of each digit: 28 rows of 28 pixels, 0 (paper) to 255 (ink)."""
    chosen = [i for digit in range(10) for i in np.flatnonzero(labels == digit)[:2]]
    pixels = (magnify(images[chosen]) * 255).round().astype(int).reshape(len(chosen), -1).tolist()
    return [{"label": int(labels[i]), "pixels": row} for i, row in zip(chosen, pixels, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description="train the digits model")
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    images, labels, held_images, held_labels = load()
    network = Network(np.random.default_rng(2))
    train(network, images, labels, args.epochs)
    print(f"held-out accuracy: {accuracy(network, held_images, held_labels):.1%} of {len(held_labels)}")
    (HERE / "digits.onnx").write_bytes(to_onnx(network))
    rows = ",\n".join(json.dumps(sample, separators=(",", ":")) for sample in samples(held_images, held_labels))
    (HERE / "samples.json").write_text(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    main()
