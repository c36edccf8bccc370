"""Weights as codes of few bits: weight = (code - zero point) · scale, with a scale and a zero point for each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# A range smaller than that of a block's values rounds most values less, and cuts the outermost off. Of these factors
# the block keeps the one with the least squared error.
_SHRINK = {4: (1.0, 0.96, 0.92, 0.88, 0.84, 0.8), 8: (1.0,)}
_CHUNK = 1 << 22  # weights at once, so that the float copies stay small


@dataclass(frozen=True, slots=True)
class Codes:
    """codes (rows, blocks · block) uint8; scales (rows, blocks) float32; zeros (rows, blocks) uint8"""

    codes: Array
    scales: Array
    zeros: Array


def encode(matrix: Array, bits: int, block: int) -> Codes:
    """Codes of the rows of a finite matrix, whose last block is filled with zeros."""
    rows, columns = matrix.shape
    blocks = -(-columns // block)
    codes = Codes(
        np.empty((rows, blocks * block), np.uint8),
        np.empty((rows, blocks), np.float32),
        np.empty((rows, blocks), np.uint8),
    )
    each = max(1, _CHUNK // max(1, columns))
    for n in range(0, rows, each):
        part = slice(n, n + each)
        values = np.zeros((len(matrix[part]), blocks * block), np.float32)
        values[:, :columns] = matrix[part]
        found = _encode(values.reshape(-1, block), bits)
        codes.codes[part] = found.codes.reshape(-1, blocks * block)
        codes.scales[part] = found.scales.reshape(-1, blocks)
        codes.zeros[part] = found.zeros.reshape(-1, blocks)
    return codes


def _encode(values: Array, bits: int) -> Codes:
    """Codes of rows that are a block each."""
    largest = np.abs(values).max(-1)
    largest[largest == 0] = 1
    values = values / largest[:, None]  # or squares of errors overflow
    low, high = np.minimum(values.min(-1), 0), np.maximum(values.max(-1), 0)  # a zero point needs 0 in the range
    best, least = _at(values, low, high, bits)
    for factor in _SHRINK[bits][1:]:
        other, error = _at(values, factor * low, factor * high, bits)
        better = error < least
        least[better] = error[better]
        for mine, its in zip(
            (best.codes, best.scales, best.zeros), (other.codes, other.scales, other.zeros), strict=True
        ):
            mine[better] = its[better]
    return Codes(best.codes, best.scales * largest, best.zeros)


def _at(values: Array, low: Array, high: Array, bits: int) -> tuple[Codes, Array]:
    """Codes of blocks with these ranges, and the squared error of each block."""
    largest = (1 << bits) - 1
    scale = ((high - low) / np.float32(largest)).astype(np.float32)
    scale[scale == 0] = 1
    zero = np.clip(np.rint(-low / scale), 0, largest)
    code = np.clip(np.rint(values / scale[:, None]) + zero[:, None], 0, largest)
    error = (((code - zero[:, None]) * scale[:, None] - values) ** 2).sum(-1)
    return Codes(code.astype(np.uint8), scale, zero.astype(np.uint8)), error


def pack(codes: Array, bits: int) -> Array:
    """Codes packed along the last axis, the lowest bits first. The last byte is filled with zeros."""
    each = 8 // bits
    missing = -codes.shape[-1] % each
    if missing:
        codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    groups = codes.reshape(*codes.shape[:-1], -1, each)
    return np.bitwise_or.reduce(groups << (bits * np.arange(each, dtype=np.uint8)), axis=-1, dtype=np.uint8)
