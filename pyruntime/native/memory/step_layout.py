"""Addresses for the tensors of one step: best fit, the largest tensor first, by liveness.

web/run/step_layout.js is its twin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.errors import ShapeError

Span = tuple[int, int]  # address, and the address behind it
SMALL = 1 << 16  # bytes that a layout may always be made for


class LiveRange:
    """Memory for `size` bytes from call `born` through call `dies`, which is the number of calls for one that outlives
    the step. One that has an address from the start was there before the step (`born` is 0). reuses: buffers that took
    it over, in place; on_gpu: of one without an address."""

    __slots__ = ("address", "born", "dies", "on_gpu", "reuses", "size")

    def __init__(self, size: int, born: int, dies: int, address: int = -1, on_gpu: bool = False) -> None:
        self.size = size
        self.born = born
        self.dies = dies
        self.address = address
        self.on_gpu = on_gpu
        self.reuses = 0


@dataclass(slots=True)
class Layout:
    """Addresses of the buffers that a step makes. It fits sizes up to `capacity`, if each output in `in_place` (output,
    input) has the size of its input, whose memory it takes over. spans: bytes on the GPU of all buffers of the step,
    with their capacity; needed: bytes that it was made for; after: the arena state; seconds: of the step's last run."""

    addresses: dict[int, int] = field(default_factory=dict)
    capacity: dict[int, int] = field(default_factory=dict)
    spans: dict[int, int] = field(default_factory=dict)
    in_place: list[tuple[int, int]] = field(default_factory=list)
    needed: int = 0
    after: int = 0
    seconds: float = math.inf

    def fits(self, sizes: Mapping[int, int]) -> bool:
        """Rejects layouts made for over twice these sizes: spread buffers miss the cache."""
        if not all(0 <= sizes[b] <= most for b, most in self.capacity.items()):
            return False
        alike = all(sizes[output] == sizes[source] for output, source in self.in_place)
        return alike and self.needed <= 2 * sum(sizes[b] for b in self.capacity) + SMALL


def live_ranges(
    calls: Sequence[Mapping[str, Any]], sizes: Mapping[int, int], layout: Layout, addresses: Mapping[int, int],
    placed: Iterable[int], on_gpu: Iterable[int],
) -> dict[int, LiveRange]:  # fmt: skip
    """The ranges of the buffers that a step's calls make or free, but for those in `placed`. An output in place shares
    its input's range, and is noted in `layout.in_place`."""
    found: dict[int, LiveRange] = {}

    def of(b: int) -> LiveRange:
        if b not in found:
            found[b] = LiveRange(sizes[b], 0, len(calls), addresses[b])
        return found[b]

    for now, call in enumerate(calls):
        dying = set(call["free"])
        for b in call["alloc"]:
            if b in placed:
                continue
            if sizes[b] < 0:
                raise ShapeError("an output would have a negative dim", node=call["node"])
            source = _input_to_reuse(call, b, dying, sizes)
            if source is None:
                found[b] = LiveRange(layout.capacity[b], now, len(calls), on_gpu=b in on_gpu)
                continue
            found[b] = of(source)
            layout.in_place.append((b, source))
            found[b].reuses += 1
            dying.discard(source)
        for b in dying:
            of(b).dies = now
    return found


def _input_to_reuse(call: Mapping[str, Any], b: int, dying: set[int], sizes: Mapping[int, int]) -> int | None:
    """A dying input whose memory output b may take over."""
    for output, source in call["inplace"]:
        if output == b and source in dying and sizes[source] == sizes[b]:
            return int(source)
    return None


def lay_out(ranges: Sequence[LiveRange], occupied: Sequence[Span], calls: int, base: int, chunk: int = 0) -> None:
    """Give addresses from `base` on to the ranges without one, outside `occupied` spans. Unless `chunk` is 0, no range
    crosses a multiple of `chunk` bytes from `base`.

    The largest first is nearly always best. If call order needs less memory, it is used.
    """
    new = [r for r in ranges if r.address < 0]
    fixed = [r for r in ranges if r.address >= 0]
    by_size = _best_fit(sorted(new, key=lambda r: (-r.size, r.born)), fixed, occupied, calls, base, chunk)
    by_call = _best_fit(new, fixed, occupied, calls, base, chunk)
    best = min(by_size, by_call, key=lambda found: max((a + r.size for r, a in found.items()), default=0))
    for r, address in best.items():
        r.address = address


def _best_fit(
    new: Sequence[LiveRange], fixed: Sequence[LiveRange], occupied: Sequence[Span], calls: int, base: int, chunk: int
) -> dict[LiveRange, int]:
    """Addresses for `new`, in this order, each in the smallest gap among the ranges alive at the same time."""
    alive: list[list[Span]] = [[] for _ in range(calls)]  # spans in use during each call
    begun: list[list[Span]] = [[] for _ in range(calls)]  # those of them that begin with it

    def occupy(r: LiveRange, address: int) -> None:
        span = (address, address + r.size)
        begun[r.born].append(span)
        for now in range(r.born, min(r.dies + 1, calls)):
            alive[now].append(span)

    for r in fixed:
        occupy(r, r.address)
    found: dict[LiveRange, int] = {}
    for r in new:
        later = (span for now in range(r.born + 1, min(r.dies + 1, calls)) for span in begun[now])
        found[r] = _gap(r.size, sorted((*occupied, *alive[r.born], *later)), base, chunk)
        occupy(r, found[r])
    return found


def _gap(size: int, spans: Iterable[Span], base: int, chunk: int) -> int:
    """The start of the smallest gap between spans that holds `size` bytes, or the first address behind them all."""
    best, smallest = -1, 0
    at = base
    for start, end in spans:
        if start - at >= size and (best < 0 or start - at < smallest):
            first = skip_border(at, size, base, chunk)
            if start - first >= size:
                best, smallest = first, start - at
        at = max(at, end)
    return skip_border(at, size, base, chunk) if best < 0 else best


def skip_border(at: int, size: int, base: int, chunk: int) -> int:
    """The first address from `at` on where `size` bytes are in one chunk."""
    left = chunk - (at - base) % chunk if chunk else size
    return at + left if size > left else at


__all__ = ["Layout", "LiveRange", "Span", "lay_out", "live_ranges", "skip_border"]
