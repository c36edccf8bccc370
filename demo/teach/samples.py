"""Writes samples.json beside this file: drawings of four symbols as strokes, each a variation of one outline.

usage: python -m demo.teach.samples
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

DRAWINGS, POINTS = 9, 22  # drawings of a symbol, points of a stroke


def outlines() -> dict[str, list[np.ndarray]]:
    """Strokes of each symbol as complex numbers; the symbols lie within the unit circle."""
    turn = np.linspace(0, 2 * np.pi, 40)
    star = np.exp(1j * (np.pi / 2 + np.arange(6) * 4 * np.pi / 5))
    heart = 16 * np.sin(turn) ** 3 + 1j * (
        13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn)
    )
    house = [-0.7 + 0.1j, -0.7 - 0.8j, 0.7 - 0.8j, 0.7 + 0.1j, 0.9j, -0.7 + 0.1j, 0.7 + 0.1j]
    fish = [-0.9 + 0.4j, -0.5, 0.1 + 0.4j, 0.6 + 0.3j, 0.9, 0.6 - 0.3j, 0.1 - 0.4j, -0.5, -0.9 - 0.4j, -0.9 + 0.4j]
    return {"star": [star], "heart": [heart / 17], "house": [np.array(house)], "fish": [np.array(fish)]}


def resampled(stroke: np.ndarray) -> np.ndarray:
    """The same line with POINTS points at equal distances, and its corners."""
    length = np.concatenate([[0], np.abs(np.diff(stroke)).cumsum()])
    at = np.union1d(np.linspace(0, length[-1], POINTS), length if len(stroke) < 12 else [])
    return np.interp(at, length, stroke.real) + 1j * np.interp(at, length, stroke.imag)


def drawn(strokes: list[np.ndarray], rng: np.random.Generator) -> list[list[int]]:
    """As by hand: turned, stretched, moved, uneven. Returns x and y of the points by turns, in a square of 300."""
    width, height = 95 * rng.uniform(0.7, 1.1, 2)
    turn, middle = np.exp(1j * rng.uniform(-0.2, 0.2)), complex(*rng.uniform(135, 165, 2))
    found = []
    for stroke in strokes:
        line = resampled(stroke) * turn
        wave = np.exp(1j * np.linspace(0, rng.uniform(4, 9), len(line)) + 1j * rng.uniform(0, 6))
        noise = 5 * wave + rng.normal(size=(len(line), 2)) @ [1, 1j]
        line = middle + line.real * width - 1j * line.imag * height + noise
        found.append(np.stack([line.real, line.imag], 1).round().astype(int).ravel().tolist())
    return found


def main() -> None:
    rng = np.random.default_rng(3)
    symbols = [{"name": name, "drawings": [drawn(x, rng) for _ in range(DRAWINGS)]} for name, x in outlines().items()]
    Path(__file__).with_name("samples.json").write_text(json.dumps(symbols, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
