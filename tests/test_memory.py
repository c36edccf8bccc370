"""The arena: best fit, coalescing, states as values, and misuse as errors."""

from __future__ import annotations

import random

import pytest

from pyruntime.errors import MemoryFault, OutOfMemory
from pyruntime.memory import ALIGN, Arena, Stats


def test_addresses_are_aligned_and_apart() -> None:
    arena = Arena(128, 1 << 20)
    spans = sorted((arena.alloc(size), size) for size in (0, 1, 63, 64, 65, 1000))
    assert all(address % ALIGN == 0 for address, _ in spans)
    assert all(a + max(n, 1) <= b for (a, n), (b, _) in zip(spans, spans[1:], strict=False))


def test_freed_neighbours_join_and_the_end_falls_back() -> None:
    arena = Arena(0, 1 << 20)
    a, b, c, d = (arena.alloc(64) for _ in range(4))
    arena.free(a)
    arena.free(c)
    arena.free(b)
    assert arena.alloc(192) == a
    arena.free(a)
    arena.free(d)
    assert arena.end == 0


def test_best_fit_takes_the_smallest_hole() -> None:
    arena = Arena(0, 1 << 20)
    big, _, small, _ = arena.alloc(512), arena.alloc(64), arena.alloc(128), arena.alloc(64)
    arena.free(big)
    arena.free(small)
    assert arena.alloc(100) == small


@pytest.mark.parametrize("address", [0, 7, 64, 1 << 30])
def test_freeing_what_is_not_allocated_is_a_fault(address: int) -> None:
    arena = Arena(0, 1 << 20)
    arena.free(arena.alloc(64))
    with pytest.raises(MemoryFault):
        arena.free(address)


def test_over_the_limit_nothing_changes() -> None:
    arena = Arena(0, 256)
    arena.alloc(128)
    before = arena.snapshot()
    with pytest.raises(OutOfMemory, match="limit 256"):
        arena.alloc(192)
    assert arena.snapshot() == before


def test_a_restored_state_gives_the_same_addresses() -> None:
    arena = Arena(0, 1 << 20)
    arena.free(arena.alloc(64))
    arena.alloc(640)
    state = arena.snapshot()
    first = [arena.alloc(n) for n in (10, 100, 1000)]
    arena.restore(state)
    assert [arena.alloc(n) for n in (10, 100, 1000)] == first


def test_random_use_never_overlaps() -> None:
    rng = random.Random(7)
    arena = Arena(0, 1 << 24)
    live: dict[int, int] = {}
    for _ in range(3000):
        if live and rng.random() < 0.5:
            address = rng.choice(list(live))
            del live[address]
            arena.free(address)
        else:
            size = rng.randrange(1, 5000)
            address = arena.alloc(size)
            assert all(address >= a + n or address + size <= a for a, n in live.items())
            live[address] = size
    for address in live:
        arena.free(address)
    stats = arena.stats()
    assert arena.used == 0 and arena.end == 0 and 0 <= stats.fragmentation < 0.5


def test_what_is_settled_stays() -> None:
    arena = Arena(0, 1 << 20)
    weight, hole, last = arena.alloc(640), arena.alloc(128), arena.alloc(64)
    arena.free(hole)
    arena.settle()
    with pytest.raises(MemoryFault):
        arena.free(weight)
    assert arena.alloc(128) == hole and arena.alloc(64) == last + 64
    assert arena.stats() == Stats(weights=704, peak=192, requested=192, top=896)
    assert arena.stats().reuse == 1 and arena.stats().fragmentation == 0


def test_requests_are_counted_along_the_way_to_a_state() -> None:
    arena = Arena(0, 1 << 20)
    root = arena.snapshot()
    for _ in range(3):
        arena.restore(root)
        for _ in range(4):
            address = arena.alloc(64)
            arena.inherit(address)
            arena.free(address)
    assert arena.stats().requested == 8 * 64 and arena.stats().peak == 64 and arena.stats().reuse == 8
