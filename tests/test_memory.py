"""The arena: best fit, coalescing, snapshots, errors of misuse; the layout of steps."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from pyruntime.errors import MemoryFault, OutOfMemory
from pyruntime.native.memory.arena import ALIGN, Arena, Stats
from pyruntime.native.memory.step_layout import LiveRange


def test_addresses_are_aligned_and_do_not_overlap() -> None:
    arena = Arena(128, 1 << 20)
    spans = sorted((arena.alloc(size), size) for size in (0, 1, 63, 64, 65, 1000))
    assert all(address % ALIGN == 0 for address, _ in spans)
    assert all(a + max(n, 1) <= b for (a, n), (b, _) in zip(spans, spans[1:], strict=False))


def test_freed_neighbours_coalesce_and_the_end_moves_back() -> None:
    arena = Arena(0, 1 << 20)
    a, b, c, d = (arena.alloc(64) for _ in range(4))
    arena.free(a)
    arena.free(c)
    arena.free(b)
    assert arena.alloc(192) == a
    arena.free(a)
    arena.free(d)
    assert arena.end == 0


def test_best_fit_takes_the_smallest_gap() -> None:
    arena = Arena(0, 1 << 20)
    big, _, small, _ = arena.alloc(512), arena.alloc(64), arena.alloc(128), arena.alloc(64)
    arena.free(big)
    arena.free(small)
    assert arena.alloc(100) == small


@pytest.mark.parametrize("address", [0, 7, 64, 1 << 30])
def test_freeing_an_address_that_is_not_allocated_is_an_error(address: int) -> None:
    arena = Arena(0, 1 << 20)
    arena.free(arena.alloc(64))
    with pytest.raises(MemoryFault):
        arena.free(address)


def test_an_allocation_over_the_limit_changes_nothing() -> None:
    arena = Arena(0, 256)
    arena.alloc(128)
    before = arena.snapshot()
    with pytest.raises(OutOfMemory, match="memory_limit is 256"):
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


def test_random_allocations_never_overlap() -> None:
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


def test_permanent_memory_cannot_be_freed() -> None:
    arena = Arena(0, 1 << 20)
    weight, hole, last = arena.alloc(640), arena.alloc(128), arena.alloc(64)
    arena.free(hole)
    arena.make_permanent()
    with pytest.raises(MemoryFault):
        arena.free(weight)
    assert arena.alloc(128) == hole and arena.alloc(64) == last + 64
    assert arena.stats() == Stats(weights=704, peak=192, requested=192, top=896)
    assert arena.stats().reuse == 1 and arena.stats().fragmentation == 0


def test_requested_bytes_belong_to_the_path_to_a_state() -> None:
    arena = Arena(0, 1 << 20)
    root = arena.snapshot()
    for _ in range(3):
        arena.restore(root)
        for _ in range(4):
            tenant = LiveRange(64, 0, 1)
            tenant.reuses = 1
            arena.lay_out([tenant], 2)
    assert arena.used == 0 and arena.end == 0
    assert arena.stats().requested == 8 * 64 and arena.stats().peak == 64 and arena.stats().reuse == 8


def test_the_largest_range_gets_the_first_address() -> None:
    """In call order, 128 bytes would be below the 640 and leave a gap."""
    arena = Arena(0, 1 << 20)
    small, large, last = LiveRange(128, 0, 1), LiveRange(640, 1, 2), LiveRange(704, 3, 3)
    arena.lay_out([small, large, last], 4)
    assert (large.address, small.address, last.address) == (0, 640, 0)
    assert arena.stats().top == 768 == arena.stats().peak and arena.stats().fragmentation == 0


def test_an_older_range_is_reused_when_it_dies() -> None:
    arena = Arena(0, 1 << 20)
    old, wall = arena.alloc(256), arena.alloc(64)
    stays = LiveRange(256, 1, 2)
    arena.lay_out([LiveRange(256, 0, 0, old), stays], 2)
    assert stays.address == old
    arena.free(stays.address)
    arena.free(wall)
    assert arena.used == 0 and arena.end == 0
    with pytest.raises(MemoryFault):
        arena.lay_out([LiveRange(256, 0, 0, old)], 1)


def test_a_step_over_the_limit_changes_nothing() -> None:
    arena = Arena(0, 256)
    arena.alloc(128)
    before = arena.snapshot()
    with pytest.raises(OutOfMemory, match="320 bytes of memory are needed, memory_limit is 256"):
        arena.lay_out([LiveRange(192, 0, 1)], 1)
    assert arena.snapshot() == before


def test_random_steps_never_overlap_and_free_all() -> None:
    rng = random.Random(3)
    arena = Arena(0, 1 << 24)
    kept: list[LiveRange] = []
    for _ in range(60):
        dying = [LiveRange(t.size, 0, rng.randrange(30), t.address) for t in kept if rng.random() < 0.5]
        kept = [t for t in kept if t.address not in {d.address for d in dying}]
        new = [LiveRange(rng.randrange(1, 5000), b, min(30, b + rng.randrange(9))) for b in range(30)]
        arena.lay_out([*dying, *new], 30)
        lasting = [LiveRange(t.size, 0, 30, t.address) for t in kept]
        those = sorted([*dying, *new, *lasting], key=lambda t: t.address)
        for n, a in enumerate(those):
            for b in those[n + 1 :]:
                apart = a.address + a.size <= b.address or a.dies < b.born or b.dies < a.born
                assert apart, (a, b)
        kept += [t for t in new if t.dies == 30]
    for t in kept:
        arena.free(t.address)
    assert arena.used == 0 and arena.end == 0


def test_planning_many_calls_is_fast() -> None:
    """1,500 calls; some of their tensors live to the end."""
    arena = Arena(0, 1 << 32)
    those = [LiveRange(64 * (n % 50 + 1), n, n + 2 if n % 15 else 1500) for n in range(1500)]
    start = time.process_time()
    arena.lay_out(those, 1500)
    assert time.process_time() - start < 1


def test_nothing_crosses_a_border() -> None:
    """Random use of an arena over buffers of 16 cache lines: each allocation and each gap is within one buffer."""
    chunk = 16 * ALIGN
    arena, draw = Arena(1 << 40, 1 << 40, chunk), random.Random(1)
    live: dict[int, int] = {}
    for _ in range(2000):
        if live and draw.random() < 0.5:
            address = draw.choice([*live])
            del live[address]
            arena.free(address)
        else:
            size = ALIGN * draw.choice([1, 2, 3, 8, 15, 16])
            live[arena.alloc(size)] = size
        spans = sorted([*live.items(), *arena._free])
        assert all((a - (1 << 40)) // chunk == (a + n - 1 - (1 << 40)) // chunk for a, n in spans)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(spans))
        assert sum(n for _, n in spans) == arena.end - (1 << 40)
    for address in live:
        arena.free(address)
    assert arena.used == 0
    assert arena.alloc(chunk) == 1 << 40, "all is free again"


def test_an_allocation_larger_than_a_buffer() -> None:
    arena = Arena(0, 1 << 40, 1024)
    assert arena.alloc(1024) == 0
    for ask in (lambda: arena.alloc(1025), lambda: arena.lay_out([LiveRange(1025, 0, 1)], 1)):
        with pytest.raises(OutOfMemory, match="1088 bytes, the largest buffer of the GPU has 1024"):
            ask()
    assert arena.end == 1024
