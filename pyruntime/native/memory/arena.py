"""A best-fit allocator of addresses. Addresses and sizes are in bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from pyruntime.errors import MemoryFault, OutOfMemory
from pyruntime.native.memory.step_layout import LiveRange, Span, lay_out, skip_border

ALIGN = 64  # a cache line; SIMD and GPU copies need less


@dataclass(frozen=True, slots=True)
class Stats:
    """One memory. weights: bytes that stay for the session; peak: most bytes in use at once besides weights; requested:
    bytes of all buffers of a run, where equal rounds of a loop count once; top: the highest address that was used."""

    weights: int
    peak: int
    requested: int
    top: int

    @property
    def reuse(self) -> float:
        """How many times a run used each byte."""
        return self.requested / self.peak if self.peak else 0.0

    @property
    def fragmentation(self) -> float:
        """Share of the arena up to `top`, besides weights, that was not in use at its peak."""
        return 1 - self.peak / (self.top - self.weights) if self.top > self.weights else 0.0


@dataclass(frozen=True, slots=True)
class MemoryReport(Stats):
    """All memories of a session; providers: each memory ("wasm": linear, "webgpu": GPU); arena: bytes from the
    system, with argument blocks and growth in steps; tensors: bytes of all GPU tensors on the session's device, even
    those of other sessions."""

    providers: dict[str, Stats]
    arena: int
    tensors: int = 0

    @classmethod
    def of(cls, providers: dict[str, Stats], arena: int, tensors: int = 0) -> MemoryReport:
        sums = {f.name: sum(getattr(s, f.name) for s in providers.values()) for f in fields(Stats)}
        return cls(**sums, providers=providers, arena=arena, tensors=tensors)

    def with_twins(self, others: Sequence[MemoryReport]) -> MemoryReport:
        """Of several linear memories that share their weights."""
        if not others:
            return self
        mine, *theirs = (r.providers["wasm"] for r in (self, *others))
        peak, requested = (sum(getattr(s, name) for s in (mine, *theirs)) for name in ("peak", "requested"))
        wasm = Stats(mine.weights, peak, requested, mine.top + sum(s.top - mine.weights for s in theirs))
        arena = self.arena + sum(r.arena - mine.weights for r in others)
        return MemoryReport.of({**self.providers, "wasm": wasm}, arena, self.tensors)


class ArenaState(NamedTuple):
    """free: (address, size), sorted; live: address -> size; end: all is free from here on; used, requested: bytes."""

    free: tuple[tuple[int, int], ...]
    live: dict[int, int]
    end: int
    used: int
    requested: int


class Arena:
    """Allocates from [base, base + limit). `snapshot` and `restore` make its states values. chunk: size of the GPU
    buffers that the range consists of, or 0; no allocation crosses a border between two."""

    def __init__(self, base: int, limit: int, chunk: int = 0) -> None:
        self.base = base
        self.limit = limit
        self.chunk = chunk
        self.end = base  # all is free from here on
        self.top = base
        self.used = self.peak = 0  # bytes in use, and the most of them
        self.requested = self.most_requested = 0  # see `Stats`: until this state, and in any
        self.weights = 0  # see `make_permanent`
        self._free: list[tuple[int, int]] = []  # (address, size), sorted, never adjacent
        self._live: dict[int, int] = {}  # address -> size

    def alloc(self, size: int) -> int:
        """An aligned address with `size` bytes. Errors: OutOfMemory over the limit; then nothing has changed."""
        size = rounded(size)
        self._check_chunk(size)
        fits = [(s, n) for n, (_, s) in enumerate(self._free) if s >= size]
        if fits:
            _, n = min(fits)
            address, available = self._free.pop(n)
            if available > size:
                self._free.insert(n, (address + size, available - size))
        else:
            address = skip_border(self.end, size, self.base, self.chunk)
            self._check_limit(address + size)
            if address > self.end:
                self._free.append((self.end, address - self.end))
            self.end = address + size
            self.top = max(self.top, self.end)
        self._live[address] = size
        self.used += size
        self.requested += size
        self._note_most()
        return address

    def _note_most(self) -> None:
        self.peak = max(self.peak, self.used)
        self.most_requested = max(self.most_requested, self.requested)

    def span(self, address: int, size: int) -> int:
        """Bytes in use at this address; `size` if they are permanent."""
        return self._live.get(address, size)

    def _check_chunk(self, size: int) -> None:
        if self.chunk and size > self.chunk:
            raise OutOfMemory(f"a tensor needs {size} bytes, the largest buffer of the GPU has {self.chunk}")

    def _check_limit(self, end: int) -> None:
        """The session's limit counts the bytes below the arena, too."""
        if end > self.base + self.limit:
            hint = "raise memory_limit or use smaller inputs"
            raise OutOfMemory(f"{end} bytes of memory are needed, memory_limit is {self.base + self.limit}", hint=hint)

    def _is_border(self, address: int) -> bool:
        return self.chunk > 0 and (address - self.base) % self.chunk == 0

    def lay_out(self, ranges: Iterable[LiveRange], calls: int) -> None:
        """Addresses for the ranges of a step with this many calls. Afterwards the arena is as after the step.

        Errors: OutOfMemory over the limit, MemoryFault for a range with an address that is not in use; then nothing has
        changed.
        """
        ranges = list(dict.fromkeys(ranges))
        old = [r for r in ranges if r.address >= 0]
        for r in old:
            if r.address not in self._live:
                raise MemoryFault(f"memory at {r.address} is released, but not in use")
            r.size = self._live[r.address]
        new = [r for r in ranges if r.address < 0]
        for r in new:
            r.size = rounded(r.size)
            self._check_chunk(r.size)
        occupied = spans_between([*self._free, *((r.address, r.size) for r in old)], self.base, self.end)
        lay_out(ranges, occupied, calls, self.base, self.chunk)
        top = max((r.address + r.size for r in ranges), default=0)
        self._check_limit(top)
        self.top = max(self.top, top)
        self._count(ranges, new, calls)
        for r in ranges:
            self._live.pop(r.address, None)
        lasting = {r.address: r.size for r in ranges if r.dies >= calls}
        self._live |= lasting
        self._rebuild([*occupied, *((a, a + n) for a, n in lasting.items())])

    def _count(self, ranges: list[LiveRange], new: list[LiveRange], calls: int) -> None:
        """Add a step to the figures."""
        change = [0] * (calls + 1)
        for r in new:
            change[r.born] += r.size
        for r in ranges:
            change[min(r.dies + 1, calls)] -= r.size if r.dies < calls else 0
        for bytes_ in change:
            self.used += bytes_
            self._note_most()
        self.requested += sum(r.size for r in new) + sum(r.size * r.reuses for r in ranges)
        self._note_most()

    def _rebuild(self, occupied: list[Span]) -> None:
        """The free list from the spans in use."""
        self._free = []
        at = self.base
        for start, end in sorted(occupied):
            while start > at:
                stop = min(start, at + self.chunk - (at - self.base) % self.chunk) if self.chunk else start
                self._free.append((at, stop - at))
                at = stop
            at = end
        self.end = at

    def free(self, address: int) -> None:
        """Errors: MemoryFault for an address that is not allocated."""
        size = self._live.pop(address, None)
        if size is None:
            raise MemoryFault(f"memory at {address} is released, but not in use")
        self.used -= size
        n = bisect_left(self._free, (address, 0))
        if n < len(self._free) and self._free[n][0] == address + size and not self._is_border(address + size):
            size += self._free.pop(n)[1]
        if n and sum(self._free[n - 1]) == address and not self._is_border(address):
            address, before = self._free.pop(n - 1)
            size += before
        if address + size == self.end:
            self.end = address
        else:
            insort(self._free, (address, size))

    def free_all_but(self, addresses: Iterable[int]) -> None:
        for address in self._live.keys() - set(addresses):
            self.free(address)
        self.requested = sum(self._live.values())

    def make_permanent(self) -> None:
        """What is in use now cannot be freed any more and counts as weights."""
        self._live.clear()
        self.weights = self.peak = self.used
        self.requested = self.most_requested = 0
        self.top = self.end

    def stats(self) -> Stats:
        return Stats(self.weights, self.peak - self.weights, self.most_requested, self.top - self.base)

    def snapshot(self) -> ArenaState:
        return ArenaState(tuple(self._free), dict(self._live), self.end, self.used, self.requested)

    def content(self) -> Hashable:
        """Equal for states that differ in figures only."""
        return tuple(self._free), frozenset(self._live.items()), self.end

    def restore(self, state: ArenaState) -> None:
        free, live, self.end, self.used, self.requested = state
        self._free = list(free)
        self._live = dict(live)


def spans_between(free: Iterable[tuple[int, int]], base: int, end: int) -> list[Span]:
    """[base, end) without the free (address, size); neighbours are one span."""
    spans: list[Span] = []
    at = base
    for address, size in (*sorted(free), (end, 0)):
        if address > at:
            spans.append((at, address))
        at = address + size
    return spans


def rounded(size: int) -> int:
    return max(-(-size // ALIGN) * ALIGN, ALIGN)
