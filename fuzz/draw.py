"""Seeded random choices: element types, dims, and arrays with values that runtimes often get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

T = TypeVar("T")

DIMS = [0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33]
LARGE = [64, 65, 100, 128, 257]
HALVES = {np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)}
FLOATS = {np.dtype(t) for t in ("f2", "f4", "f8", ml_dtypes.bfloat16)}
STRINGS = ["", "a", "A", "ab", "1", "-2.5", "nan", "1e400", "é", "日本", "a b", "\n", "x" * 50, "\U0001f600"]


def is_float(dtype: Any) -> bool:
    """Whether elements are floats of any width; the types of ml_dtypes have the kind "V"."""
    dtype = np.dtype(dtype)
    return dtype.kind == "f" or dtype.kind == "V" and "float" in dtype.name


def is_int(dtype: Any) -> bool:
    dtype = np.dtype(dtype)
    return dtype.kind in "iu" or dtype.kind == "V" and "int" in dtype.name


class Draw:
    """The source of all randomness in a case, seeded by the case's name."""

    def __init__(self, seed: str) -> None:
        self.rng = np.random.default_rng(list(seed.encode()))

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def between(self, low: int, high: int) -> int:
        """An integer of the closed interval."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def dim(self) -> int:
        return self.pick(LARGE) if self.chance(0.03) else self.pick(DIMS)

    def shape(self, rank: int | None = None, limit: int = 20_000) -> tuple[int, ...]:
        rank = self.pick([0, 1, 1, 2, 2, 3, 3, 4, 5]) if rank is None else rank
        dims: list[int] = []
        for _ in range(rank):
            d = self.dim()
            dims.append(d if d * int(np.prod(dims)) <= limit else 1)
        return tuple(dims)

    def array(self, dtype: Any, shape: Sequence[int], edges: float = 0.15) -> np.ndarray:
        """Plain values; with probability `edges` some of them are extreme."""
        dtype, edged = np.dtype(dtype), self.chance(edges)
        if dtype.kind in "OUS":
            return self.rng.choice(np.array(STRINGS, object), tuple(shape))
        if dtype.kind == "b":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype.kind == "c":
            return (self.rng.normal(size=shape) + 1j * self.rng.normal(size=shape)).astype(dtype)
        if is_float(dtype):
            return self._floats(dtype, shape, edged)
        return self._ints(dtype, shape, edged)

    def _floats(self, dtype: np.dtype, shape: Sequence[int], edged: bool) -> np.ndarray:
        how = self.below(5)
        if how == 0:
            x = self.rng.integers(-3, 4, shape).astype(np.float64)  # ties, zeros
        elif how == 1:
            x = self.rng.uniform(0, 1, shape)
        else:
            x = self.rng.normal(size=shape) * self.pick([1.0, 1.0, 5.0, 100.0, 1e-3])
        with np.errstate(all="ignore"):
            out = np.asarray(x).astype(dtype)
            if edged and out.size:
                places = self.rng.random(tuple(shape)) < 0.3
                out[places] = self.rng.choice(float_edges(dtype), int(places.sum())).astype(dtype)
        return out

    def _ints(self, dtype: np.dtype, shape: Sequence[int], edged: bool) -> np.ndarray:
        low, high = int_range(dtype)
        small = self.rng.integers(max(low, -4), min(high, 6), shape, endpoint=True).astype(np.int64)
        if not edged:
            return np.asarray(small).astype(dtype)
        kind = np.int64 if low < 0 else np.uint64
        wide = self.rng.integers(low, high, shape, kind, endpoint=True)
        edges = self.rng.choice(np.array([low, high, low + 1, high - 1, 0, 1], kind), tuple(shape))
        return np.asarray(np.where(self.rng.random(tuple(shape)) < 0.5, wide, edges)).astype(dtype)


def int_range(dtype: Any) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype) if np.dtype(dtype).kind == "V" else np.iinfo(dtype)
    return int(info.min), int(info.max)


def float_edges(dtype: Any) -> np.ndarray:
    """NaN, infinities, zeros, extremes and subnormals of a type, as float64."""
    info = ml_dtypes.finfo(dtype)
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, float(info.max), float(info.min), float(info.tiny)]
    return np.array([*values, float(info.smallest_subnormal), 1 + float(info.eps), 2.0**31, -(2.0**31), 2.0**24 + 1])
