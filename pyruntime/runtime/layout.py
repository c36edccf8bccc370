"""Capacities of buffers, so that one layout fits many sizes: while the KV caches of a decoder grow with each token, the
layout stays and only parameters change (docs/design/memory.md#layouts-for-growing-shapes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

SMALL = 1 << 16  # bytes: a layout may always exceed the needed size by this
LEAST = 1 << 12  # bytes of spare capacity, at least: short caches grow by over a quarter in a few steps
VARIES = -1  # marks buffers whose size has changed


@dataclass(eq=False, slots=True)
class Capacities:
    """Bytes of the buffers that a step allocates, in its order. needed: the sum of their sizes when the layout was
    made; in_place: pairs of positions among the step's sizes, of an output and the input of the same size whose memory
    it takes over; is_reserved: it serves much smaller sizes, too."""

    capacities: list[int]
    needed: int
    in_place: list[tuple[int, int]] = field(default_factory=list)
    is_reserved: bool = False

    def fit(self, sizes: Sequence[int]) -> bool:
        """Reject sizes of less than half: buffers that lie too far apart miss the cache. sizes: of the buffers, and
        behind them those of further inputs."""
        needed = 0
        for n, capacity in enumerate(self.capacities):
            size = sizes[n]
            if size > capacity or size < 0:
                return False
            needed += size
        if self.needed > 2 * needed + SMALL and not self.is_reserved:
            return False
        for output, source in self.in_place:
            if sizes[output] != sizes[source]:
                return False
        return True


def with_spare(sizes: Sequence[int], before: Sequence[int]) -> list[int]:
    """Capacities: the sizes, and a quarter and LEAST more for buffers whose size has changed."""
    return [size if size == last else size + size // 4 + LEAST for size, last in zip(sizes, before, strict=True)]


def known_sizes(sizes: Sequence[int], before: Sequence[int]) -> list[int]:
    """The sizes for the next comparison, VARIES for those that have changed."""
    return [size if size == last else VARIES for size, last in zip(sizes, before, strict=True)]
