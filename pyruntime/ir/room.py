"""Tensors in buffers with capacity for more: KV caches that grow in place."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir.shape import AnyDim, Shape


@dataclass(frozen=True, slots=True)
class Room:
    """A tensor of this shape is the start of a buffer that has a capacity of `places` along `axis`.

    least: the capacity that a feed needs, computed from dims that are known before a run
    mixed: the number of contiguous new rows that may overwrite the feed's rows; None if new rows only follow them
    undo: the number of rows at the end of the buffer in which a run keeps the rows that it overwrites; None if it keeps
        none
    """

    axis: int
    places: AnyDim
    shape: Shape
    least: AnyDim | None = None
    mixed: AnyDim | None = None
    undo: AnyDim | None = None
