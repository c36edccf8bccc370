"""Memory: an arena of linear memory with first-class errors. Addresses and sizes are bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from pyruntime.errors import MemoryFault, OutOfMemory

ALIGN = 64  # a cache line; also what SIMD and GPU copies want


@dataclass(frozen=True, slots=True)
class Stats:
    """One memory. weights: bytes that stay for the session; peak: most bytes in use at once besides weights; requested:
    most that the buffers of one run asked for in all; top: how far the arena ever reached."""

    weights: int
    peak: int
    requested: int
    top: int

    @property
    def reuse(self) -> float:
        """How many times each byte was used in a run."""
        return self.requested / self.peak if self.peak else 0.0

    @property
    def fragmentation(self) -> float:
        """Share of the arena's reach, besides weights, that was not in use at its peak."""
        return 1 - self.peak / (self.top - self.weights) if self.top > self.weights else 0.0


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a session holds, in bytes: `providers` by name ("wasm": linear memory, "webgpu": the GPU's), the rest summed
    over them; `arena` is what is held of the system, argument blocks and growth in steps included."""

    providers: dict[str, Stats]
    arena: int

    @property
    def weights(self) -> int:
        return sum(s.weights for s in self.providers.values())

    @property
    def peak(self) -> int:
        return sum(s.peak for s in self.providers.values())

    @property
    def requested(self) -> int:
        return sum(s.requested for s in self.providers.values())

    @property
    def reuse(self) -> float:
        return self.requested / self.peak if self.peak else 0.0

    @property
    def fragmentation(self) -> float:
        reach = sum(s.top for s in self.providers.values()) - self.weights
        return 1 - self.peak / reach if reach > 0 else 0.0


State = tuple[tuple[tuple[int, int], ...], dict[int, int], int, int, int]


class Arena:
    """Best-fit allocator over [base, base + limit). `snapshot` and `restore` make its states values."""

    def __init__(self, base: int, limit: int) -> None:
        self.base = base
        self.limit = limit
        self.end = base  # everything from here on is free
        self.top = base
        self.used = self.peak = 0  # bytes in use, and the most of them
        self.asked = self.requested = 0  # bytes asked for on the way to this state, and the most of them
        self.weights = 0  # see `settle`
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
                    f"{self.end + size - self.base} bytes needed, limit {self.limit}",
                    hint="raise the limit or use smaller inputs",
                )
            address = self.end
            self.end += size
            self.top = max(self.top, self.end)
        self._live[address] = size
        self.used += size
        self.asked += size
        self.peak = max(self.peak, self.used)
        self.requested = max(self.requested, self.asked)
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

    def inherit(self, address: int) -> None:
        """Another buffer takes over this memory: counts as asked for."""
        self.asked += self._live.get(address, 0)
        self.requested = max(self.requested, self.asked)

    def settle(self) -> None:
        """What is in use now stays for good: it cannot be freed any more and counts as weights."""
        self._live.clear()
        self.weights = self.peak = self.used
        self.asked = self.requested = 0
        self.top = self.end

    def stats(self) -> Stats:
        return Stats(self.weights, self.peak - self.weights, self.requested, self.top - self.base)

    def snapshot(self) -> State:
        return tuple(self._free), dict(self._live), self.end, self.used, self.asked

    def restore(self, state: State) -> None:
        free, live, self.end, self.used, self.asked = state
        self._free = list(free)
        self._live = dict(live)
