"""Where the tensors of one step lie: the largest first, each in the smallest gap among those alive at the same time.

web/run/step_layout.js is its mirror.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pyruntime.errors import ShapeError

Span = tuple[int, int]  # address, and the address behind it


class Tenant:
    """Memory for `size` bytes from call `born` through call `dies`. Those with an address from the start were there
    before the step (`born` is 0); `dies` is the number of calls for those that outlive it. `heirs`: buffers that took
    it over, in place."""

    __slots__ = ("address", "away", "born", "dies", "heirs", "size")

    def __init__(self, size: int, born: int, dies: int, address: int = -1, away: bool = False) -> None:
        self.size = size
        self.born = born
        self.dies = dies
        self.address = address
        self.away = away  # on the GPU
        self.heirs = 0


class Roomy(Protocol):
    """room: bytes by buffer that is made; heirs: pairs of an output and the input whose memory it takes over."""

    room: dict[int, int]
    heirs: list[tuple[int, int]]


def tenants(
    calls: Sequence[Mapping[str, Any]], sizes: Mapping[int, int], layout: Roomy, addresses: Mapping[int, int],
    placed: Iterable[int], away: Iterable[int],
) -> dict[int, Tenant]:  # fmt: skip
    """What each buffer made or freed by a step's calls lives in; an output in place shares that of its input, of which
    the layout is told."""
    found: dict[int, Tenant] = {}

    def of(b: int) -> Tenant:
        if b not in found:
            found[b] = Tenant(sizes[b], 0, len(calls), addresses[b])
        return found[b]

    for now, call in enumerate(calls):
        dying = set(call["free"])
        for b in call["alloc"]:
            if b in placed:
                continue
            if sizes[b] < 0:
                raise ShapeError("an output would have a negative dim", node=call["node"])
            source = _takeover(call, b, dying, sizes)
            if source is None:
                found[b] = Tenant(layout.room[b], now, len(calls), away=b in away)
                continue
            found[b] = of(source)
            layout.heirs.append((b, source))
            found[b].heirs += 1
            dying.discard(source)
        for b in dying:
            of(b).dies = now
    return found


def _takeover(call: Mapping[str, Any], b: int, dying: set[int], sizes: Mapping[int, int]) -> int | None:
    """A dying input whose memory output b may take over."""
    for output, source in call["inplace"]:
        if output == b and source in dying and sizes[source] == sizes[b]:
            return int(source)
    return None


def lay_out(those: Sequence[Tenant], walls: Sequence[Span], calls: int, base: int, chunk: int = 0) -> None:
    """Gives addresses from `base` on to those that have none, between `walls`, which stay for the whole step; none lies
    across a multiple of `chunk` from there, unless that is 0.

    The largest first is nearly always best; where the order of the calls reaches less far, that is taken.
    """
    new = [t for t in those if t.address < 0]
    fixed = [t for t in those if t.address >= 0]
    by_size = _assign(sorted(new, key=lambda t: (-t.size, t.born)), fixed, walls, calls, base, chunk)
    by_call = _assign(new, fixed, walls, calls, base, chunk)
    best = min(by_size, by_call, key=lambda found: max((a + t.size for t, a in found.items()), default=0))
    for t, address in best.items():
        t.address = address


def _assign(
    new: Sequence[Tenant], fixed: Sequence[Tenant], walls: Sequence[Span], calls: int, base: int, chunk: int
) -> dict[Tenant, int]:
    """Addresses for `new`, one after the other."""
    alive: list[list[Span]] = [[] for _ in range(calls)]  # spans in use during each call
    begun: list[list[Span]] = [[] for _ in range(calls)]  # those of them that begin with it

    def occupy(t: Tenant, address: int) -> None:
        span = (address, address + t.size)
        begun[t.born].append(span)
        for now in range(t.born, min(t.dies + 1, calls)):
            alive[now].append(span)

    for t in fixed:
        occupy(t, t.address)
    found: dict[Tenant, int] = {}
    for t in new:
        later = (span for now in range(t.born + 1, min(t.dies + 1, calls)) for span in begun[now])
        found[t] = _gap(t.size, sorted((*walls, *alive[t.born], *later)), base, chunk)
        occupy(t, found[t])
    return found


def _gap(size: int, taken: Iterable[Span], base: int, chunk: int) -> int:
    """The start of the smallest gap that holds so much, or the first address behind all."""
    best, room = -1, 0
    at = base
    for start, end in taken:
        if start - at >= size and (best < 0 or start - at < room):
            first = clear(at, size, base, chunk)
            if start - first >= size:
                best, room = first, start - at
        at = max(at, end)
    return clear(at, size, base, chunk) if best < 0 else best


def clear(at: int, size: int, base: int, chunk: int) -> int:
    """The first address from `at` on where so much lies in one chunk."""
    left = chunk - (at - base) % chunk if chunk else size
    return at + left if size > left else at


__all__ = ["Span", "Tenant", "clear", "lay_out", "tenants"]
