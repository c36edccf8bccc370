"""SPMD: every thread runs the same `run_<block>_<step>(table, tid, threads)` and does its share of each call.

A call has one more parameter than its kernel, the last: 1 if it pays to share it (cost.py), which the shapes decide. A
call that is not shared runs on thread 0. The calls of a segment are cut into groups within which no call reads, writes
or reuses the memory of another (`regroup`); a barrier stands between two calls of different groups unless both run on
thread 0. So small kernels in a row cost no barrier, and neither do the projections of an attention layer.

Shared calls are cut into equal parts, one for each thread, where work units are alike (maps and reductions); else
threads take chunks by a counter. A counter is never set back: a call of c chunks moves it by c + threads, since each
thread draws once in vain, so that every thread knows where the next call starts.

Barriers and counters are words of the reserved bytes at address 0, which the host sets to 0 before each run. A waiting
thread spins, then sleeps, unless the host has set AWAKE: a page's main thread must not sleep. When a thread traps, its
host calls `poison(tid)`: the others trap at their next barrier, and the word POISON tells which was first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.kernel import Call, Kernel, Leaf, Loops, Map, Reduce, Tensor, root
from pyruntime.provider import Invocation

from .assembler import Function, Module
from .cost import pays

GENERATION, POISON, AWAKE, ARRIVED, SLEEPERS = 0, 4, 8, 64, 68  # what is spun on has a cache line of its own
COUNTER, COUNTERS, LINE = 128, 8, 64
SYNC_BYTES = COUNTER + COUNTERS * LINE
# Looks at GENERATION before sleeping, about 1 ms: with 50 us threads slept at uneven barriers, and on two MiniLM took
# 12.9 ms instead of 8.1 (one thread: 15.0), ResNet-50 95 instead of 80 (157).
SPIN = 1_000_000
CHUNKS = 8  # for each thread
INIT = "run_0_"
SMALL, SHARED = 1, 2  # what ran since the last barrier in earlier groups; shifted by 2: in the present one


@dataclass(slots=True)
class Part:
    """A call with what it touches (roots by uid). first: it starts a group; counter: -1 for equal parts."""

    call: Invocation
    reads: set[int]
    writes: set[int]
    counter: int = -1
    first: bool = True


def parts(kernel: Kernel, calls: Sequence[Invocation]) -> list[Part]:
    """The calls of one kernel; gives each its last parameter."""
    out = []
    outputs = {root(t).uid for t in kernel.outputs}
    for c in calls:
        c.split = pays(kernel, c.work)
        c.params = [*c.params, c.split]
        touched = {root(t).uid for t in c.tensors}
        writes = touched if len(calls) > 1 else outputs | {root(t).uid for t in c.scratch}
        writes = writes | {root(t).uid for pair in c.inplace for t in pair}
        out.append(Part(c, touched, writes, -1 if isinstance(kernel, Map | Reduce) else 0))
    return out


def regroup(segment: Sequence[Part], kept: set[int]) -> None:
    """Cut a segment into groups of calls that may run in any order, and number the counters within each. `kept`:
    buffers that live as long as the session."""
    last = {uid: n for n, part in enumerate(segment) for uid in part.reads | part.writes}
    start = counters = 0
    for n, part in enumerate(segment):
        group = segment[start:n]
        part.first = any(_conflict(part, other) for other in group) or _ends(group, last, n, kept) or _passed(part)
        if part.first or (part.counter >= 0 and counters == COUNTERS):
            part.first, start, counters = True, n, 0
        if part.counter >= 0:
            part.counter, counters = counters, counters + 1


def _conflict(a: Part, b: Part) -> bool:
    return bool(a.writes & (b.reads | b.writes) or b.writes & a.reads)


def _ends(group: Sequence[Part], last: Mapping[int, int], n: int, kept: set[int]) -> bool:
    """Whether a buffer may have been freed by these calls: call n could be given its memory."""
    return any(last[uid] < n and uid not in kept for part in group for uid in part.reads | part.writes)


def _constant(t: Tensor) -> int:
    """The uid of a constant, -1 for others."""
    base = root(t)
    return base.uid if isinstance(base.kernel, Leaf) and base.kernel.kind in ("weight", "constant") else -1


def _passed(part: Part) -> bool:
    """Whether it may overwrite memory that was passed to it from elsewhere, perhaps under two names."""
    return any(not isinstance(root(t).kernel, Map | Reduce | Loops | Call) for _, t in part.call.inplace)


# ── code ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(module: Module, name: str, segment: Sequence[Part], made: set[int]) -> None:
    """run(table, tid, threads) for calls whose kernels are in the module. `made` collects what the init block makes."""
    if name.startswith(INIT):
        regroup(segment, set())
        made.update(*[part.writes for part in segment])
    else:
        regroup(segment, made | {uid for part in segment for uid in map(_constant, part.call.tensors)})
    module.once("poison", lambda: _poison(module))
    code = _Run(module, name)
    offset = 0
    for part in segment:
        code.call(part, offset)
        offset += 4 * (len(part.call.tensors) + len(part.call.params) + 1)


class _Run:
    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.kernels = {g.name: g for g in module.functions}
        self.f = f = module.function(name, ["i32", "i32", "i32"])
        self.table, self.tid, self.threads = f.params
        self.many, self.state, self.shared, self.work, self.begin, self.chunk = f.locals("i32", 6)
        self.bases: dict[int, int] = {}
        f.emit(self.threads).i32(1).emit("i32.gt_u").set(self.many)

    def call(self, part: Part, offset: int) -> None:
        f = self.f
        words = len(part.call.tensors) + len(part.call.params)
        kernel = self.kernels[part.call.function]
        f.emit(self.table).mem("i32.load", offset + 4 * (words - 1)).emit(self.many, "i32.and").set(self.shared)
        f.emit(self.table).mem("i32.load", offset + 4 * words).set(self.work)
        f.emit(self.state, self.shared).i32(part.first).emit(self.threads).call(_enter(self.module)).set(self.state)
        f.emit(self.shared)
        with f.if_():
            if part.counter < 0:
                self._equal(kernel, offset)
            else:
                self._chunks(kernel, offset, part.counter)
            f.otherwise().emit(self.tid, "i32.eqz")
            with f.if_():
                self._arguments(offset).i32(0).emit(self.work, self.tid).call(kernel)

    def _arguments(self, offset: int) -> Function:
        return self.f.emit(self.table).i32(offset).emit("i32.add")

    def _equal(self, kernel: Function, offset: int) -> None:
        f = self._arguments(offset)
        f.emit(self.work, self.tid, "i32.mul", self.threads, "i32.div_u")
        f.emit(self.work, self.tid).i32(1).emit("i32.add", "i32.mul", self.threads, "i32.div_u")
        f.emit(self.tid).call(kernel)

    def _chunks(self, kernel: Function, offset: int, counter: int) -> None:
        """chunk units at a time until the counter is past the last."""
        f = self.f
        if counter not in self.bases:
            self.bases[counter] = f.local("i32")
        base, begin, chunk, work = self.bases[counter], self.begin, self.chunk, self.work
        f.emit(work, self.threads).i32(CHUNKS).emit("i32.mul", "i32.div_u").tee(chunk)
        f.emit(chunk, "i32.eqz", "i32.add").set(chunk)
        with f.block() as out, f.loop() as again:
            f.i32(COUNTER + LINE * counter).i32(1).mem("i32.atomic.rmw.add").emit(base, "i32.sub", chunk, "i32.mul")
            f.tee(begin).emit(work, "i32.ge_u").br_if(out)
            self._arguments(offset).emit(begin)
            f.emit(begin, chunk, "i32.add", work, begin, chunk, "i32.add", work, "i32.lt_u", "select")
            f.emit(self.tid).call(kernel).br(again)
        f.emit(base, work, chunk, "i32.add").i32(1).emit("i32.sub", chunk, "i32.div_u", "i32.add")
        f.emit(self.threads, "i32.add").set(base)


def _enter(module: Module) -> Function:
    """(state, shared, first, threads) -> state: waits for the other threads if what ran before asks for it."""

    def make() -> Function:
        f = module.function("enter", ["i32"] * 4, ["i32"], export=False)
        state, shared, first, threads = f.params
        f.emit(first)
        with f.if_():
            f.emit(state, state).i32(2).emit("i32.shr_u", "i32.or").i32(SMALL | SHARED).emit("i32.and").set(state)
        f.emit(state).i32(SMALL | SHARED).i32(SHARED).emit(shared, "select", "i32.and")
        with f.if_():
            f.emit(threads).call(_barrier(module)).i32(0).set(state)
        return f.emit(state).i32(SHARED << 2).i32(SMALL << 2).emit(shared, "select", "i32.or")

    return module.once("enter", make)


def _barrier(module: Module) -> Function:
    """(threads): returns when all threads have called it; traps if one was poisoned."""

    def make() -> Function:
        f = module.function("barrier", ["i32"], export=False)
        (threads,) = f.params
        generation, looks = f.locals("i32", 2)
        f.i32(GENERATION).mem("i32.atomic.load").set(generation)
        _stop_if_poisoned(f)
        f.i32(ARRIVED).i32(1).mem("i32.atomic.rmw.add").i32(1).emit("i32.add", threads, "i32.eq")
        with f.if_():
            f.i32(ARRIVED).i32(0).mem("i32.atomic.store")
            f.i32(GENERATION).i32(1).mem("i32.atomic.rmw.add").emit("drop")
            f.i32(SLEEPERS).mem("i32.atomic.load")
            with f.if_():
                f.i32(GENERATION).i32(-1).mem("memory.atomic.notify").emit("drop")
            f.emit("return")
        _wait(f, generation, looks)
        _stop_if_poisoned(f)
        return f

    return module.once("barrier", make)


def _wait(f: Function, generation: int, looks: int) -> None:
    with f.block() as out:
        with f.loop() as again:
            f.i32(GENERATION).mem("i32.atomic.load").emit(generation, "i32.ne").br_if(out)
            f.emit(looks).i32(1).emit("i32.add").tee(looks).i32(SPIN).emit("i32.lt_u")
            f.i32(AWAKE).mem("i32.load").emit("i32.or").br_if(again)
        f.i32(SLEEPERS).i32(1).mem("i32.atomic.rmw.add").emit("drop")
        with f.loop() as again:
            f.i32(GENERATION).emit(generation).i64(-1).mem("memory.atomic.wait32").emit("drop")
            f.i32(GENERATION).mem("i32.atomic.load").emit(generation, "i32.eq").br_if(again)
        f.i32(SLEEPERS).i32(1).mem("i32.atomic.rmw.sub").emit("drop")


def _stop_if_poisoned(f: Function) -> None:
    f.i32(POISON).mem("i32.atomic.load")
    with f.if_():
        f.emit("unreachable")


def _poison(module: Module) -> Function:
    """poison(tid): release all who wait, for thread tid has trapped."""
    f = module.function("poison", ["i32"])
    f.i32(POISON).i32(0).emit(f.params[0]).i32(1).emit("i32.add").mem("i32.atomic.rmw.cmpxchg").emit("drop")
    f.i32(GENERATION).i32(1).mem("i32.atomic.rmw.add").emit("drop")
    return f.i32(GENERATION).i32(-1).mem("memory.atomic.notify").emit("drop")


__all__ = ["POISON", "SYNC_BYTES", "Part", "parts", "run"]
