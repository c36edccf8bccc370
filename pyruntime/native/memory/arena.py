"""Memory: an arena of linear memory with first-class errors. Addresses and sizes are bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from pyruntime.errors import MemoryFault, OutOfMemory
from pyruntime.native.memory.step_layout import Span, Tenant, clear, lay_out

ALIGN = 64  # a cache line; also what SIMD and GPU copies want


@dataclass(frozen=True, slots=True)
class Stats:
    """One memory. weights: bytes that stay for the session; peak: most bytes in use at once besides weights; requested:
    most that the buffers of one run asked for in all, rounds of a loop that are alike once; top: how far the arena ever
    reached."""

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
    over them; `arena` is what is held of the system, argument blocks and growth in steps included; `tensors` is what
    GPU tensors hold on the session's device, those of other sessions included."""

    providers: dict[str, Stats]
    arena: int
    tensors: int = 0

    def with_twins(self, others: Sequence[MemoryReport]) -> MemoryReport:
        """What several linear memories hold whose weights are the same."""
        if not others:
            return self
        mine, *theirs = (r.providers["wasm"] for r in (self, *others))
        peak, requested = (sum(getattr(s, name) for s in (mine, *theirs)) for name in ("peak", "requested"))
        wasm = Stats(mine.weights, peak, requested, mine.top + sum(s.top - mine.weights for s in theirs))
        held = self.arena + sum(r.arena - mine.weights for r in others)
        return MemoryReport({**self.providers, "wasm": wasm}, held, self.tensors)

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
    """Best-fit allocator over [base, base + limit). `snapshot` and `restore` make its states values. chunk: bytes of
    the buffers that the range lies over, if they are several: nothing is across two."""

    def __init__(self, base: int, limit: int, chunk: int = 0) -> None:
        self.base = base
        self.limit = limit
        self.chunk = chunk
        self.end = base  # everything from here on is free
        self.top = base
        self.used = self.peak = 0  # bytes in use, and the most of them
        self.asked = self.requested = (
            0  # bytes asked for on the way to this state (alike rounds of a loop: once), and the most
        )
        self.weights = 0  # see `make_permanent`
        self._free: list[tuple[int, int]] = []  # (address, size), sorted, never adjacent
        self._live: dict[int, int] = {}  # address -> size

    def alloc(self, size: int) -> int:
        """An aligned address with `size` bytes. Errors: OutOfMemory over the limit; nothing changes then."""
        size = rounded(size)
        self._check_chunk(size)
        fits = [(s, n) for n, (_, s) in enumerate(self._free) if s >= size]
        if fits:
            _, n = min(fits)
            address, have = self._free.pop(n)
            if have > size:
                self._free.insert(n, (address + size, have - size))
        else:
            address = clear(self.end, size, self.base, self.chunk)
            if address + size > self.base + self.limit:
                raise self._over(address + size)
            if address > self.end:
                self._free.append((self.end, address - self.end))
            self.end = address + size
            self.top = max(self.top, self.end)
        self._live[address] = size
        self.used += size
        self.asked += size
        self.peak = max(self.peak, self.used)
        self.requested = max(self.requested, self.asked)
        return address

    def span(self, address: int, size: int) -> int:
        """The bytes in use there; `size` if they stay for good."""
        return self._live.get(address, size)

    def _check_chunk(self, size: int) -> None:
        if self.chunk and size > self.chunk:
            raise OutOfMemory(f"a tensor needs {size} bytes, the largest buffer of the GPU has {self.chunk}")

    def _border(self, address: int) -> bool:
        """Whether one buffer ends and the next begins here."""
        return self.chunk > 0 and (address - self.base) % self.chunk == 0

    def _over(self, end: int) -> OutOfMemory:
        hint = "raise the limit or use smaller inputs"
        return OutOfMemory(f"{end - self.base} bytes are needed, the limit is {self.limit}", hint=hint)

    def lay_out(self, those: Iterable[Tenant], calls: int) -> None:
        """Addresses for the tenants of a step with so many calls; the arena is then as it is after the step.

        Errors: OutOfMemory over the limit, MemoryFault for a tenant that was there before and is not; nothing changes.
        """
        those = list(dict.fromkeys(those))
        old = [t for t in those if t.address >= 0]
        for t in old:
            if t.address not in self._live:
                raise MemoryFault(f"memory at {t.address} is released, but not in use")
            t.size = self._live[t.address]
        new = [t for t in those if t.address < 0]
        for t in new:
            t.size = rounded(t.size)
            self._check_chunk(t.size)
        walls = self._walls({t.address for t in old})
        lay_out(those, walls, calls, self.base, self.chunk)
        top = max((t.address + t.size for t in those), default=0)
        if top > self.base + self.limit:
            raise self._over(top)
        self.top = max(self.top, top)
        self._count(those, new, calls)
        for t in those:
            self._live.pop(t.address, None)
        stay = {t.address: t.size for t in those if t.dies >= calls}
        self._live |= stay
        self._rebuild([*walls, *((a, a + n) for a, n in stay.items())])

    def _walls(self, moving: set[int]) -> list[Span]:
        """What is in use except for the spans at these addresses; neighbours are one."""
        return spans_between([*self._free, *((a, self._live[a]) for a in moving)], self.base, self.end)

    def _count(self, those: list[Tenant], new: list[Tenant], calls: int) -> None:
        """What the step adds to the figures."""
        change = [0] * (calls + 1)
        for t in new:
            change[t.born] += t.size
        for t in those:
            change[min(t.dies + 1, calls)] -= t.size if t.dies < calls else 0
        for bytes_ in change:
            self.used += bytes_
            self.peak = max(self.peak, self.used)
        self.asked += sum(t.size for t in new) + sum(t.size * t.heirs for t in those)
        self.requested = max(self.requested, self.asked)

    def _rebuild(self, taken: list[Span]) -> None:
        """The free list from what is in use."""
        self._free = []
        at = self.base
        for start, end in sorted(taken):
            while start > at:
                stop = min(start, at + self.chunk - (at - self.base) % self.chunk) if self.chunk else start
                self._free.append((at, stop - at))
                at = stop
            at = end
        self.end = at

    def free(self, address: int) -> None:
        """Give back what `alloc` gave. Errors: MemoryFault for any other address, or a second time."""
        size = self._live.pop(address, None)
        if size is None:
            raise MemoryFault(f"memory at {address} is released, but not in use")
        self.used -= size
        n = bisect_left(self._free, (address, 0))
        if n < len(self._free) and self._free[n][0] == address + size and not self._border(address + size):
            size += self._free.pop(n)[1]
        if n and sum(self._free[n - 1]) == address and not self._border(address):
            address, before = self._free.pop(n - 1)
            size += before
        if address + size == self.end:
            self.end = address
        else:
            insort(self._free, (address, size))

    def keep(self, addresses: Iterable[int]) -> None:
        """Free all but what lies there, and what stays for good."""
        for address in self._live.keys() - set(addresses):
            self.free(address)
        self.asked = sum(self._live.values())

    def make_permanent(self) -> None:
        """What is in use now stays for good: it cannot be freed any more and counts as weights."""
        self._live.clear()
        self.weights = self.peak = self.used
        self.asked = self.requested = 0
        self.top = self.end

    def stats(self) -> Stats:
        return Stats(self.weights, self.peak - self.weights, self.requested, self.top - self.base)

    def snapshot(self) -> State:
        return tuple(self._free), dict(self._live), self.end, self.used, self.asked

    def content(self) -> Hashable:
        """Equal where all that follows is, but for figures."""
        return tuple(self._free), frozenset(self._live.items()), self.end

    def restore(self, state: State) -> None:
        free, live, self.end, self.used, self.asked = state
        self._free = list(free)
        self._live = dict(live)


def spans_between(spare: Iterable[tuple[int, int]], base: int, end: int) -> list[Span]:
    """What [base, end) has besides these (address, size); neighbours are one."""
    spans: list[Span] = []
    at = base
    for address, size in (*sorted(spare), (end, 0)):
        if address > at:
            spans.append((at, address))
        at = address + size
    return spans


def rounded(size: int) -> int:
    return max(-(-size // ALIGN) * ALIGN, ALIGN)
