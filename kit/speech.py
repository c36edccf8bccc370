"""A generated sound that a voice detector classifies as speech: vowels of gliding pitch between pauses with noise."""

from __future__ import annotations

import numpy as np

RATE = 16000
# First three formants in Hz of a few vowels, with their bandwidths.
VOWELS = [(730, 1090, 2440), (270, 2290, 3010), (530, 1840, 2480), (570, 840, 2410), (300, 870, 2240)]
BANDWIDTHS = (80, 100, 140)


def speech(seconds: float = 3.2, seed: int = 0) -> np.ndarray:
    """float32 samples in [-1, 1] at 16 kHz: half a second of noise, then words of two or three vowels and pauses."""
    generator = np.random.default_rng(seed)
    parts = [_noise(generator, 0.5)]
    while sum(map(len, parts)) < seconds * RATE:
        parts += [_syllable(generator) for _ in range(generator.integers(2, 4))]
        parts.append(_noise(generator, generator.uniform(0.35, 0.6)))
    samples = np.concatenate(parts)[: int(seconds * RATE)]
    return (samples + 1e-3 * generator.standard_normal(len(samples))).astype(np.float32)


def frames(samples: np.ndarray, size: int) -> np.ndarray:
    """Whole frames (count, size) of a sound."""
    count = len(samples) // size
    return samples[: count * size].reshape(count, size)


def _noise(generator: np.random.Generator, seconds: float) -> np.ndarray:
    return 1e-3 * generator.standard_normal(int(seconds * RATE))


def _syllable(generator: np.random.Generator) -> np.ndarray:
    """Pulses of gliding pitch with some noise, filtered by the formants of two vowels, with an envelope."""
    count = int(generator.uniform(0.18, 0.3) * RATE)
    low, high = generator.uniform(110, 170, 2)
    pitch = np.linspace(low, high, count) * (1 + 0.01 * generator.standard_normal())
    phase = np.cumsum(pitch / RATE)
    pulses = np.diff(np.floor(phase), prepend=0.0)
    sound = pulses + 0.02 * generator.standard_normal(count)
    start, end = (np.array(VOWELS[i], float) for i in generator.integers(0, len(VOWELS), 2))
    for i, width in enumerate(BANDWIDTHS):
        sound = _resonate(sound, np.linspace(start[i], end[i], count), width)
    envelope = np.sin(np.linspace(0, np.pi, count)) ** 0.5
    return 0.5 * envelope * sound / np.abs(sound).max()


def _resonate(sound: np.ndarray, frequency: np.ndarray, width: float) -> np.ndarray:
    """A two-pole filter with a moving resonance: y[n] = x[n] + 2 r cos(w) y[n-1] - r^2 y[n-2]."""
    radius = np.exp(-np.pi * width / RATE)
    first = (2 * radius * np.cos(2 * np.pi * frequency / RATE)).tolist()
    second = radius * radius
    out, before, earlier = [], 0.0, 0.0
    for x, a in zip(sound.tolist(), first, strict=True):
        before, earlier = x + a * before - second * earlier, before
        out.append(before)
    return np.array(out)
