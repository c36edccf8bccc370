"""Tensors in buffers with capacity for more rows along an axis: KV caches that grow in place
(docs/design/kv-caches.md#growing-in-place)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from pyruntime.errors import ShapeError

GROWTH = 1 << 16  # bytes that a buffer grows by, at least: each growth lays out all memory anew


@dataclass(eq=False, slots=True)
class ByteRanges:
    """Of a tensor in its buffer: `count` ranges of `length` bytes, `stride` bytes apart. row: bytes of one row in a
    range."""

    count: int
    length: int
    stride: int
    row: int


def byte_ranges(shape: Sequence[int], axis: int, capacity: int, item: int) -> ByteRanges:
    """capacity: rows along the axis for which the buffer has memory; item: bytes of an element. Errors: ShapeError for
    more rows."""
    rows = shape[axis]
    if rows > capacity:
        raise ShapeError(f"{rows} rows along axis {axis} exceed the capacity of {capacity}")
    row = prod(shape[axis + 1 :]) * item
    return ByteRanges(prod(shape[:axis]), rows * row, capacity * row, row)


def next_capacity(least: int, ranges: ByteRanges) -> int:
    """The capacity of a buffer whose tensor has become too large, with spare rows because it will grow again. least:
    rows that the next run needs; ranges: of the tensor."""
    row = ranges.count * ranges.row
    return least + max(-(-least // 4), 1 if row == 0 else -(-GROWTH // row))


def capacity_on_gpu(least: int, ranges: ByteRanges, chunk: int) -> int:
    """The same for a buffer on a GPU, which has no more than `chunk` bytes."""
    row = ranges.count * ranges.row
    capacity = next_capacity(least, ranges)
    return capacity if capacity * row <= chunk else max(least, chunk // row)


def first_new_row(batch: int, rows: int, total: int, fresh: int) -> int:
    """The first row that a run writes in a cache that it is fed, if the new rows come last; 0 if they may be anywhere.

    The new rows of a single item come last, unless its positions violate the operator's definition. batch: items of the
    cache; rows: that it has before the run; total: after the run; fresh: new rows."""
    return total - fresh if batch == 1 and total > rows else 0
