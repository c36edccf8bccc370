"""Numbers that Python and JavaScript draw alike: a hash of a seed and the number of the element.

`demo/gpu/values.js` is the twin. A tensor is described by a dict: "type" (of ONNX, as in JavaScript: float32, float16,
uint8, int64), "dims", and either "values", or "seed", "low" and "high". Integers lie in [low, high], floats in [low,
high). Magnitudes of half floats lie in [high / 2, high), where `high` is a power of two: their bits are drawn, because
not every browser has arrays of half floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Values = dict[str, Any]


def drawn(type_: str, dims: tuple[int, ...], seed: int, high: float, low: float | None = None) -> Values:
    """Describe numbers in [-high, high), or [low, high)."""
    return {"type": type_, "dims": list(dims), "seed": seed, "low": -high if low is None else low, "high": high}


def hashes(seed: int, count: int) -> np.ndarray:
    """32 bits for each element, by the mixing function "lowbias32" (https://github.com/skeeto/hash-prospector)."""
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(seed * 0x85EBCA6B & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    return x ^ x >> np.uint32(16)


def array(values: Values) -> np.ndarray:
    """The numbers that a dict describes."""
    kind, dims = np.dtype(values["type"]), values["dims"]
    if "values" in values:
        return np.array(values["values"], kind).reshape(dims)
    bits, low, high = hashes(values["seed"], math.prod(dims)), values["low"], values["high"]
    if kind == np.float16:
        exponent = int(math.log2(high)) + 14
        drawn = (bits & 0x8000 | exponent << 10 | bits & 0x3FF).astype(np.uint16).view(np.float16)
    elif kind.kind == "f":
        drawn = (low + (high - low) * ((bits >> np.uint32(8)) / 2**24)).astype(kind)
    else:
        drawn = (int(low) + bits.astype(np.int64) % (int(high) - int(low) + 1)).astype(kind)
    return drawn.reshape(dims)


def size(values: Values) -> int:
    """Bytes of the tensor."""
    return math.prod(values["dims"]) * np.dtype(values["type"]).itemsize
