"""What planning costs: the first run with new shapes against the second one.

Models whose shapes change from run to run pay it often: decoders with each token, encoders with texts and
convolutions with pictures of any size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from kit.zoo import materialize

Feeds = Mapping[str, np.ndarray]
Repeat = Callable[[Feeds, int], list[float]]  # the milliseconds of so many runs
LENGTHS = range(20, 60)


def bert(length: int) -> Feeds:
    ids = np.ones((1, length), np.int64)
    return {"input_ids": ids, "attention_mask": ids}


def llama(length: int) -> Feeds:
    cache = np.zeros((1, 2, length, 32), np.float32)
    caches = {f"past_key_values.{layer}.{kind}": cache for layer in range(4) for kind in ("key", "value")}
    one = np.ones((1, 1), np.int64)
    return {
        "input_ids": one,
        "attention_mask": np.ones((1, length + 1), np.int64),
        "position_ids": one * length,
        **caches,
    }


def pictures(length: int) -> Feeds:
    return {"x": np.zeros((1, 1, 32, length), np.float32)}


MODELS: dict[str, tuple[Callable[[], Path], Callable[[int], Feeds]]] = {
    "bert_tiny": (partial(materialize, "bert_tiny"), bert),
    "llama_mini": (partial(materialize, "llama_mini"), llama),
    "superres": (partial(materialize, "superres"), pictures),
}


def planning(repeat: Repeat, feeds: Callable[[int], Feeds]) -> tuple[float, float]:
    """Milliseconds that the first run with new shapes takes longer than the second, and those of the second."""
    pairs = [repeat(feeds(length), 2) for length in LENGTHS]
    half = pairs[len(pairs) // 2 :]  # code is warm
    return float(np.median([first - second for first, second in half])), float(
        np.median([second for _, second in half])
    )


def timed(run: Callable[[Feeds], object]) -> Repeat:
    """Runs on this machine's clock."""

    def repeat(feeds: Feeds, count: int) -> list[float]:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            run(feeds)
            times.append(1000 * (time.perf_counter() - start))
        return times

    return repeat
