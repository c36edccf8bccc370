"""Judges the magnitudes that a half-float model reaches in float32: the first value that half floats cannot hold.

pyruntime/compiler/half_ranges.py writes the Program that measures them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LARGEST_HALF = 65504.0


def first_beyond(entries: Sequence[Any], measured: Sequence[float]) -> int:
    """The number of the first entry whose magnitude is larger than the largest half float, or -1. A mask of attention
    is no fault: an infinity does not count if the node reads one, nor does the sum of the lowest half float and others.

    entries: {"node", "output", "inputs"}: label of the node ("" for inputs and weights), name of the value, numbers of
        the entries that the node reads
    measured: for each entry the largest finite magnitude, and 1 if it has an infinity, else 0
    """
    masks: set[int] = set()
    for n, entry in enumerate(entries):
        size = measured[2 * n]
        sources: list[int] = entry["inputs"]
        if size == LARGEST_HALF or (size < 2 * LARGEST_HALF and any(source in masks for source in sources)):
            masks.add(n)
        is_beyond = size > LARGEST_HALF and n not in masks
        makes_infinity = measured[2 * n + 1] > 0 and all(measured[2 * source + 1] <= 0 for source in sources)
        if entry["node"] and (is_beyond or makes_infinity):
            return n
    return -1
