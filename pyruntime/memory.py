"""Memory: an arena of linear memory with first-class errors. Addresses and sizes are bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from pyruntime.errors import MemoryFault, OutOfMemory

ALIGN = 64  # a cache line; also what SIMD and GPU copies want


@dataclass(frozen=True, slots=True)
class Stats:
    """peak: most bytes in use at once; top: how far the arena ever reached; allocated: sum of all requests;
    fragmentation: share of the arena's reach at its peak that was not in use."""

    used: int
    peak: int
    top: int
    allocated: int

    @property
    def reuse(self) -> float:
        """How many times each byte was used."""
        return self.allocated / self.top if self.top else 0.0

    @property
    def fragmentation(self) -> float:
        return 1 - self.peak / self.top if self.top else 0.0


State = tuple[tuple[tuple[int, int], ...], dict[int, int], int, int]


class Arena:
    """Best-fit allocator over [base, base + limit). `snapshot` and `restore` make its states values."""

    def __init__(self, base: int, limit: int) -> None:
        self.base = base
        self.limit = limit
        self.end = base  # everything from here on is free
        self.top = base
        self.peak = self.used = self.allocated = 0
        self._free: list[tuple[int, int]] = []  # (address, size), sorted, never adjacent
        self._live: dict[int, int] = {}  # address -> size

    def alloc(self, size: int) -> int:
        """An aligned address with `size` bytes. Errors: OutOfMemory over the limit; nothing changes then."""
        size = max(-(-size // ALIGN) * ALIGN, ALIGN)
        fits = [(s, n) for n, (_, s) in enumerate(self._free) if s >= size]
        if fits:
            _, n = min(fits)
            address, have = self._free.pop(n)
            if have > size:
                self._free.insert(n, (address + size, have - size))
        else:
            if self.end + size > self.base + self.limit:
                raise OutOfMemory(
                    f"{self.used + size} bytes needed, limit {self.limit}", hint="raise the limit or use smaller inputs"
                )
            address = self.end
            self.end += size
            self.top = max(self.top, self.end)
        self._live[address] = size
        self.used += size
        self.allocated += size
        self.peak = max(self.peak, self.used)
        return address

    def free(self, address: int) -> None:
        """Give back what `alloc` gave. Errors: MemoryFault for any other address, or a second time."""
        size = self._live.pop(address, None)
        if size is None:
            raise MemoryFault(f"free of {address}, which is not allocated")
        self.used -= size
        n = bisect_left(self._free, (address, 0))
        if n < len(self._free) and self._free[n][0] == address + size:
            size += self._free.pop(n)[1]
        if n and sum(self._free[n - 1]) == address:
            address, before = self._free.pop(n - 1)
            size += before
        if address + size == self.end:
            self.end = address
        else:
            insort(self._free, (address, size))

    def stats(self) -> Stats:
        return Stats(self.used, self.peak, self.top - self.base, self.allocated)

    def snapshot(self) -> State:
        return tuple(self._free), dict(self._live), self.end, self.used

    def restore(self, state: State) -> None:
        free, live, self.end, self.used = state
        self._free = list(free)
        self._live = dict(live)
