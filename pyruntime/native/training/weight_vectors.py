"""Weights as one vector of float32, for averages of several sessions. Twin of web/page/training/vectors.js."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput

Shapes = Mapping[str, tuple[int, ...]]


def size_of(shapes: Shapes) -> int:
    return sum(prod(shape) for shape in shapes.values())


def joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.float32), *[np.asarray(x, np.float32).ravel() for x in arrays]])


def split(vector: Any, shapes: Shapes) -> dict[str, np.ndarray]:
    """The arrays of a vector that `joined` made. Errors: InvalidInput for another size, or numbers that are not finite,
    because an average with one of these would end the training of all."""
    data = np.frombuffer(vector, np.float32) if isinstance(vector, (bytes, bytearray)) else np.asarray(vector)
    if data.dtype.kind != "f" or data.size != size_of(shapes):
        text = f"the vector has {data.size} numbers of type {data.dtype}, the weights are {size_of(shapes)} of float32"
        raise InvalidInput(text, hint="give what get_contiguous_parameters() of a session for this model returned")
    if not np.isfinite(data).all():
        raise InvalidInput("the vector has numbers that are not finite")
    sizes = [prod(shape) for shape in shapes.values()]
    parts = np.split(data.astype(np.float32).ravel(), np.cumsum(sizes)[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
