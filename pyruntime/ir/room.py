"""Tensors that are a part of their buffer."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir.shape import AnyDim, Shape


@dataclass(frozen=True, slots=True)
class Room:
    """A tensor of this shape is the first part, along an axis, of a buffer that has so many places there. least: how
    many a feed needs, by dims that are known before a run. mixed: how many new rows may lie among the feed's, one
    behind the other; None if they lie behind them."""

    axis: int
    places: AnyDim
    shape: Shape
    least: AnyDim | None = None
    mixed: AnyDim | None = None


__all__ = ["Room"]
