"""Assigns addresses to the buffers of one step: the largest first, each in the smallest gap among those alive at the
same time (best fit)."""

from __future__ import annotations

from pyruntime.errors import ShapeError
from pyruntime.program.types import Call
from pyruntime.runtime.arena import Arena, Span, spans_between


class LiveRange:
    """Memory that is in use from call `born` through call `dies`, which is the number of calls if it outlives the step.

    size: rounded by the arena when it gets an address; address: -1 before; it has one from the start if it was in use
    before the step (`born` is 0). reuses: number of buffers that took it over in place"""

    __slots__ = ("address", "born", "dies", "on_gpu", "reuses", "size")

    def __init__(self, size: int, born: int, dies: int, address: int = -1, on_gpu: bool = False) -> None:
        self.size = size
        self.born = born
        self.dies = dies
        self.address = address
        self.on_gpu = on_gpu
        self.reuses = 0


class LiveRanges:
    """Those of the buffers that a step's calls allocate or free, by buffer. Buffers that share memory in place share a
    range. sizes: bytes, by buffer; spans: memory before the step; in_place: pairs of an output and the input of the
    same size whose memory it takes over."""

    def __init__(self, calls: list[Call], sizes: dict[int, int], spans: dict[int, Span]) -> None:
        self.calls = calls
        self.sizes = sizes
        self.spans = spans
        self.found: dict[int, LiveRange] = {}
        self.in_place: list[tuple[int, int]] = []

    def find(self, capacities: dict[int, int], on_gpu: set[int]) -> dict[int, LiveRange]:
        """capacities: bytes of the buffers to allocate; others have memory already. on_gpu: buffers there. Errors:
        ShapeError for a negative size."""
        for now, call in enumerate(self.calls):
            dying = set(call["free"])
            for buffer in call["alloc"]:
                capacity = capacities.get(buffer)
                if capacity is None:
                    continue
                if self.sizes[buffer] < 0:
                    raise ShapeError("an output would have a negative dim", node=call["node"])
                source = self._input_to_reuse(call, buffer, dying)
                shared = None if source is None else self._before(source)
                if source is None or shared is None:
                    self.found[buffer] = LiveRange(capacity, now, len(self.calls), -1, buffer in on_gpu)
                    continue
                self.found[buffer] = shared
                self.in_place.append((buffer, source))
                shared.reuses += 1
                dying.discard(source)
            for buffer in sorted(dying):
                ending = self._before(buffer)
                if ending is not None:
                    ending.dies = now
        return self.found

    def _before(self, buffer: int) -> LiveRange | None:
        """The range of a buffer, if it has memory that plans may free."""
        known = self.found.get(buffer)
        span = self.spans.get(buffer)
        if known is None and span is not None:
            known = LiveRange(span.size, 0, len(self.calls), span.address)
            self.found[buffer] = known
        return known

    def _input_to_reuse(self, call: Call, buffer: int, dying: set[int]) -> int | None:
        """A dying input whose memory an output may take over."""
        for output, source in call["inplace"]:
            if output == buffer and source in dying and self.sizes[source] == self.sizes[buffer]:
                return source
        return None


def lay_out(arena: Arena, ranges: list[LiveRange], calls: int) -> None:
    """Assign addresses to ranges without one, and update the arena to the state after the step. calls: of the step.
    Errors: OutOfMemory, MemoryFault."""
    fresh = [r for r in ranges if r.address < 0]
    old = [r for r in ranges if r.address >= 0]
    for r in fresh:
        r.size = arena.round(r.size)
    occupied = spans_between([*arena.free, *[(r.address, r.size) for r in old]], arena.base, arena.end)
    _choose_addresses(arena, fresh, old, occupied, calls)
    _count(arena, ranges, fresh, calls)
    arena.rebuild([*occupied, *[(r.address, r.address + r.size) for r in ranges if r.dies >= calls]])


def _count(arena: Arena, ranges: list[LiveRange], fresh: list[LiveRange], calls: int) -> None:
    """Add the step to the arena's figures."""
    change = [0 for _ in range(calls + 1)]
    for r in fresh:
        change[r.born] += r.size
        arena.requested += r.size
    for r in ranges:
        if r.dies < calls:
            change[r.dies + 1] -= r.size
        arena.requested += r.size * r.reuses
        arena.top = max(arena.top, r.address + r.size)
    for size in change:
        arena.used += size
        arena.peak = max(arena.peak, arena.used)


def _choose_addresses(
    arena: Arena, fresh: list[LiveRange], old: list[LiveRange], occupied: list[tuple[int, int]], calls: int
) -> None:
    """The largest first is nearly always best. If call order needs less memory, use it."""
    by_size = sorted(fresh, key=lambda r: (-r.size, r.born))
    addresses = _best_fit(arena, by_size, old, occupied, calls)
    in_turn = _best_fit(arena, fresh, old, occupied, calls)
    if _top(fresh, in_turn) < _top(by_size, addresses):
        by_size = fresh
        addresses = in_turn
    for r, address in zip(by_size, addresses, strict=True):
        r.address = address


def _top(ranges: list[LiveRange], addresses: list[int]) -> int:
    return max([address + r.size for r, address in zip(ranges, addresses, strict=True)], default=0)


def _best_fit(
    arena: Arena, fresh: list[LiveRange], old: list[LiveRange], occupied: list[tuple[int, int]], calls: int
) -> list[int]:
    """Addresses for `fresh`, in this order, each in the smallest gap among the ranges alive at the same time."""
    alive: list[list[tuple[int, int]]] = [[] for _ in range(calls)]  # by call: spans in use
    begun: list[list[tuple[int, int]]] = [[] for _ in range(calls)]  # those of them that begin with it
    for r in old:
        _occupy(alive, begun, r, r.address)
    addresses: list[int] = []
    for r in fresh:
        later = [span for now in range(r.born + 1, min(r.dies + 1, calls)) for span in begun[now]]
        taken = sorted([*occupied, *alive[r.born], *later], key=lambda span: span[0])
        address = _smallest_gap(arena, r.size, taken)
        addresses.append(address)
        _occupy(alive, begun, r, address)
    return addresses


def _occupy(alive: list[list[tuple[int, int]]], begun: list[list[tuple[int, int]]], r: LiveRange, address: int) -> None:
    span = (address, address + r.size)
    begun[r.born].append(span)
    for now in range(r.born, min(r.dies + 1, len(alive))):
        alive[now].append(span)


def _smallest_gap(arena: Arena, size: int, taken: list[tuple[int, int]]) -> int:
    """The start of the smallest gap between spans that has `size` bytes, or the first address behind them all."""
    best = -1
    smallest = 0
    at = arena.base
    for start, end in taken:
        if start - at >= size and (best < 0 or start - at < smallest):
            first = arena.skip_border(at, size)
            if start - first >= size:
                best = first
                smallest = start - at
        at = max(at, end)
    return arena.skip_border(at, size) if best < 0 else best
