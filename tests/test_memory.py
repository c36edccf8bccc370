"""The arena: best fit, coalescing, copies, errors of misuse; the layout of steps; the limit of linear memory."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from pyruntime.errors import MemoryFault, OutOfMemory
from pyruntime.native.memory.linear_memory import LinearMemory
from pyruntime.runtime.arena import ALIGN, GPU, GPU_ALIGN, Arena, Span
from pyruntime.runtime.planner import Figures
from pyruntime.runtime.step_layout import LiveRange, lay_out
from pyruntime.session.memory_report import Stats


def stats(arena: Arena) -> Stats:
    """The report of a memory whose runs end in this state."""
    figures = Figures()
    figures.add(arena)
    return Stats.of_arena(arena, figures)


def test_addresses_are_aligned_and_do_not_overlap() -> None:
    arena = Arena(128)
    spans = sorted((arena.alloc(size).address, size) for size in (0, 1, 63, 64, 65, 1000))
    assert all(address % ALIGN == 0 for address, _ in spans)
    assert all(a + max(n, 1) <= b for (a, n), (b, _) in zip(spans, spans[1:], strict=False))


def test_freed_neighbours_coalesce_and_the_end_moves_back() -> None:
    arena = Arena(0)
    a, b, c, d = (arena.alloc(64) for _ in range(4))
    arena.release(a)
    arena.release(c)
    arena.release(b)
    merged = arena.alloc(192)
    assert merged.address == a.address
    arena.release(merged)
    arena.release(d)
    assert arena.end == 0


def test_best_fit_takes_the_smallest_gap() -> None:
    arena = Arena(0)
    big, _, small, _ = arena.alloc(512), arena.alloc(64), arena.alloc(128), arena.alloc(64)
    arena.release(big)
    arena.release(small)
    assert arena.alloc(100).address == small.address


@pytest.mark.parametrize("address", [0, 7, 64, 1 << 30])
def test_freeing_an_address_that_is_not_allocated_is_an_error(address: int) -> None:
    arena = Arena(0)
    arena.release(arena.alloc(64))
    with pytest.raises(MemoryFault):
        arena.release(Span(address, 64))


def test_linear_memory_ends_at_the_limit() -> None:
    """Further memories count."""

    class Host:
        memory = bytes(64)

        def grow(self, size: int) -> None:
            self.memory = bytes(size)

    host = Host()
    memory = LinearMemory(host, 100, 420)
    memory.ensure(256)
    assert len(host.memory) == 256 + 64
    with pytest.raises(OutOfMemory, match="421 bytes of memory are needed, memory_limit is 420"):
        memory.ensure(257)
    with pytest.raises(OutOfMemory, match="100 bytes of memory are needed, memory_limit is 99"):
        memory.restrict(99)


def test_a_copy_gives_the_same_addresses() -> None:
    arena = Arena(0)
    arena.release(arena.alloc(64))
    arena.alloc(640)
    copy = arena.copy()
    first, second = ([x.alloc(n).address for n in (10, 100, 1000)] for x in (arena, copy))
    assert first == second


def test_random_allocations_never_overlap() -> None:
    rng = random.Random(7)
    arena = Arena(0)
    live: list[Span] = []
    for _ in range(3000):
        if live and rng.random() < 0.5:
            arena.release(live.pop(rng.randrange(len(live))))
        else:
            span = arena.alloc(rng.randrange(1, 5000))
            assert all(span.address >= s.address + s.size or span.address + span.size <= s.address for s in live)
            live.append(span)
    for span in live:
        arena.release(span)
    assert arena.used == 0 and arena.end == 0 and 0 <= stats(arena).fragmentation < 0.5


def test_permanent_memory_counts_as_weights() -> None:
    arena = Arena(0)
    _, hole, last = arena.alloc(640), arena.alloc(128), arena.alloc(64)
    arena.release(hole)
    arena.make_permanent()
    assert arena.alloc(128).address == hole.address and arena.alloc(64).address == last.address + 64
    assert stats(arena) == Stats(weights=704, peak=192, requested=192, top=896)
    assert stats(arena).reuse == 1 and stats(arena).fragmentation == 0


def test_requested_bytes_belong_to_the_path_to_a_state() -> None:
    for _ in range(3):
        arena = Arena(0)
        for _ in range(4):
            tenant = LiveRange(64, 0, 1)
            tenant.reuses = 1
            lay_out(arena, [tenant], 2)
    assert arena.used == 0 and arena.end == 0
    assert stats(arena).requested == 8 * 64 and stats(arena).peak == 64 and stats(arena).reuse == 8


def test_the_largest_range_gets_the_first_address() -> None:
    """In call order, 128 bytes would be below the 640 and leave a gap."""
    arena = Arena(0)
    small, large, last = LiveRange(128, 0, 1), LiveRange(640, 1, 2), LiveRange(704, 3, 3)
    lay_out(arena, [small, large, last], 4)
    assert (large.address, small.address, last.address) == (0, 640, 0)
    assert stats(arena).top == 768 == stats(arena).peak and stats(arena).fragmentation == 0


def test_an_older_range_is_reused_when_it_dies() -> None:
    arena = Arena(0)
    old, wall = arena.alloc(256), arena.alloc(64)
    stays = LiveRange(256, 1, 2)
    lay_out(arena, [LiveRange(256, 0, 0, old.address), stays], 2)
    assert stays.address == old.address
    arena.release(Span(stays.address, stays.size))
    arena.release(wall)
    assert arena.used == 0 and arena.end == 0
    with pytest.raises(MemoryFault):
        lay_out(arena, [LiveRange(256, 0, 0, old.address)], 1)


def test_random_steps_never_overlap_and_free_all() -> None:
    rng = random.Random(3)
    arena = Arena(0)
    kept: list[LiveRange] = []
    for _ in range(60):
        dying = [LiveRange(t.size, 0, rng.randrange(30), t.address) for t in kept if rng.random() < 0.5]
        kept = [t for t in kept if t.address not in {d.address for d in dying}]
        new = [LiveRange(rng.randrange(1, 5000), b, min(30, b + rng.randrange(9))) for b in range(30)]
        lay_out(arena, [*dying, *new], 30)
        lasting = [LiveRange(t.size, 0, 30, t.address) for t in kept]
        those = sorted([*dying, *new, *lasting], key=lambda t: t.address)
        for n, a in enumerate(those):
            for b in those[n + 1 :]:
                apart = a.address + a.size <= b.address or a.dies < b.born or b.dies < a.born
                assert apart, (a, b)
        kept += [t for t in new if t.dies == 30]
    for t in kept:
        arena.release(Span(t.address, t.size))
    assert arena.used == 0 and arena.end == 0


def test_planning_many_calls_is_fast() -> None:
    """1,500 calls; some of their tensors live to the end."""
    arena = Arena(0)
    those = [LiveRange(64 * (n % 50 + 1), n, n + 2 if n % 15 else 1500) for n in range(1500)]
    start = time.process_time()
    lay_out(arena, those, 1500)
    assert time.process_time() - start < 1


def test_nothing_crosses_a_border() -> None:
    """Random use of an arena over buffers of 16 units: each allocation and each gap is within one buffer."""
    chunk = 16 * GPU_ALIGN
    arena, draw = Arena(GPU, chunk), random.Random(1)
    live: dict[int, Span] = {}
    for _ in range(2000):
        if live and draw.random() < 0.5:
            arena.release(live.pop(draw.choice([*live])))
        else:
            span = arena.alloc(GPU_ALIGN * draw.choice([1, 2, 3, 8, 15, 16]))
            live[span.address] = span
        spans = sorted([*[(s.address, s.size) for s in live.values()], *arena.free])
        assert all((a - GPU) // chunk == (a + n - 1 - GPU) // chunk for a, n in spans)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(spans))
        assert sum(n for _, n in spans) == arena.end - GPU
    for span in live.values():
        arena.release(span)
    assert arena.used == 0
    assert arena.alloc(chunk).address == GPU, "all is free again"


def test_an_allocation_larger_than_a_buffer() -> None:
    arena = Arena(0, 1024)
    assert arena.alloc(1024).address == 0
    for ask in (lambda: arena.alloc(1025), lambda: lay_out(arena, [LiveRange(1025, 0, 1)], 1)):
        with pytest.raises(OutOfMemory, match="1025 bytes, the largest buffer of the GPU has 1024"):
            ask()
    assert arena.end == 1024
