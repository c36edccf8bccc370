"""Portions of a long step: between two of them a run can be stopped."""

from __future__ import annotations

PORTION = 10.0  # milliseconds
GROWTH = 4.0  # largest ratio of consecutive portions; the first portion of a new call is one unit


def next_portion(units: int, milliseconds: float) -> int:
    """The units of the next portion. units: of the last one, which took so long"""
    return max(1, int(units * min(GROWTH, PORTION / max(milliseconds, 0.001))))
