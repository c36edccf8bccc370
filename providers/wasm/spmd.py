"""SPMD: thread 0 leads, others help: each runs the same `run_<block>_<step>(table, tid, threads, epoch)`.

A call has one more parameter than its kernel, the last: whether it pays to share it (cost.py), which the shapes decide.
The calls of a segment are cut into groups within which no call reads, writes or reuses the memory of another
(`regroup`). The leader does calls that are not shared alone. The others it opens, a group at a time: they are cut into
chunks, which the leader claims from the front and helpers from the back, and a group is over when every chunk that was
claimed is done.

So nobody waits for a thread that is not there: a helper that comes late, or whose core has other work, finds the chunks
gone and goes on to a later group. Groups are numbered (epochs), run after run, in one word with the counts of claims
from the front and from the back; a helper left over from an earlier run claims nothing, since its epochs are past.

These words lie in the reserved bytes at address 0, which last as long as the memory. A waiting thread spins, then
sleeps; the leader does not if the host has set AWAKE: a page's main thread must not. When a thread traps in a chunk,
its host calls `poison(tid)`: the leader traps at the end of the group, and the word POISON tells which was first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from pyruntime.kernel import Call, Kernel, Leaf, Loops, Map, Reduce, Tensor, root
from pyruntime.provider import Invocation

from .assembler import Function, Module
from .cost import pays

# Words that several threads spin on have cache lines of their own. TICKET: i64, from its low bits: claims from the
# front (16), from the back (16), epoch (32).
POISON, AWAKE, TICKET, EPOCH, DONE, SLEEPERS, WAITING = 4, 8, 64, 68, 128, 192, 196
SYNC_BYTES = 256
GROUPS = 1 << 16  # fewer in a run
CALLS = 64  # in a group, at most
# Looks before sleeping, about 0.2 ms. With 0.05 threads sleep at uneven groups: MiniLM on two took 12.9 ms instead of
# 8.1 (one thread: 15.0). With 1 a helper on the leader's core takes too much of it: BERT-tiny took 2.1 ms, not 1.8.
SPIN = 200_000
CHUNKS = 8  # of a call, for each thread
INIT = "run_0_"


@dataclass(slots=True)
class Part:
    """A call with what it touches (roots by uid). first: it starts a group."""

    call: Invocation
    reads: set[int]
    writes: set[int]
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
        out.append(Part(c, touched, writes))
    return out


def regroup(segment: Sequence[Part], kept: set[int]) -> None:
    """Cut a segment into groups of calls that may run in any order. `kept`: buffers as long-lived as the session."""
    last = {uid: n for n, part in enumerate(segment) for uid in part.reads | part.writes}
    start = 0
    for n, part in enumerate(segment):
        group = segment[start:n]
        part.first = any(_conflict(part, other) for other in group) or _ends(group, last, n, kept) or _passed(part)
        if part.first or len(group) == CALLS:
            part.first, start = True, n


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
    """run(table, tid, threads, epoch) for calls whose kernels are in the module. `made` collects what the init block
    makes."""
    if name.startswith(INIT):
        regroup(segment, set())
        made.update(*[part.writes for part in segment])
    else:
        regroup(segment, made | {uid for part in segment for uid in map(_constant, part.call.tensors)})
    module.once("poison", lambda: _poison(module))
    code = _Run(module, name)
    for group in _groups(segment):
        code.group(group)
    code.end()


def _groups(segment: Sequence[Part]) -> list[list[Part]]:
    groups: list[list[Part]] = []
    for part in segment:
        if part.first or not groups:
            groups.append([])
        groups[-1].append(part)
    return groups


class _Run:
    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.kernels = {g.name: g for g in module.functions}
        self.f = f = module.function(name, ["i32"] * 4)
        self.table, self.tid, self.threads, self.epoch = f.params
        self.many, self.total, self.wake, self.chunk, self.begin = f.locals("i32", 5)
        self.offset = 0
        f.emit(self.threads).i32(1).emit("i32.gt_u").set(self.many)

    def group(self, parts: Sequence[Part]) -> None:
        """The leader opens the group, does the calls that are not shared, and then chunks like everybody else."""
        f, module = self.f, self.module
        places = []
        for part in parts:
            places.append((part, self.offset))
            self.offset += 4 * (len(part.call.tensors) + len(part.call.params) + 1)
        shared = [(part, at) for part, at in places if part.call.split != 0]
        with f.scratch("i32", len(shared)) as counts:
            self._count(shared, counts)
            if shared:
                f.emit(self.total).i32(0).emit("i32.ne", self.tid, "i32.eqz", "i32.and")
                with f.if_():
                    f.emit(self.epoch, self.wake).call(_open(module))
            f.emit(self.tid, "i32.eqz")
            with f.if_():
                for part, at in places:
                    self._whole(part, at)
            if shared:
                f.emit(self.total)
                with f.if_():
                    self._chunks(shared, counts)
                f.add(self.epoch, 1)

    def end(self) -> None:
        """The leader sends home who has not seen the end."""
        f = self.f
        f.emit(self.many, self.tid, "i32.eqz", "i32.and")
        with f.if_():
            f.emit(self.epoch).i32(1).call(_open(self.module))

    def _count(self, shared: Sequence[tuple[Part, int]], counts: Sequence[int]) -> None:
        """total = chunks of the group, counts[i] = those of call i: ceil(work / chunk), 0 if it is not shared; wake:
        whether some call is worth waking others."""
        f = self.f
        f.i32(0).tee(self.total).set(self.wake)
        if not shared:
            return
        f.emit(self.many)
        with f.if_():
            for (part, at), count in zip(shared, counts, strict=True):
                work = self._word(part, at, 0)
                work.i32(1).emit("i32.sub")
                self._chunk(part, at)
                f.emit("i32.div_s").i32(1).emit("i32.add")
                self._word(part, at, -1).emit(self.many, "i32.and", "i32.mul").tee(count)
                f.emit(self.total, "i32.add").set(self.total)
                self._word(part, at, -1).i32(1).emit("i32.shr_u", self.wake, "i32.or").set(self.wake)

    def _word(self, part: Part, at: int, n: int) -> Function:
        """Word n of a call's block, counted from its work units."""
        return self.f.emit(self.table).mem("i32.load", at + 4 * (len(part.call.tensors) + len(part.call.params) + n))

    def _chunk(self, part: Part, at: int) -> Function:
        """Work units of a chunk."""
        f = self._word(part, at, 0).emit(self.threads).i32(CHUNKS).emit("i32.mul", "i32.div_u")
        return f.i32(1).emit("i32.add")

    def _whole(self, part: Part, at: int) -> None:
        f = self.f
        if part.call.split != 0:
            self._word(part, at, -1).emit(self.many, "i32.and", "i32.eqz")
        with f.if_() if part.call.split != 0 else nullcontext():
            self._arguments(at).i32(0)
            self._word(part, at, 0).emit(self.tid).call(self.kernels[part.call.function])

    def _arguments(self, at: int) -> Function:
        return self.f.emit(self.table).i32(at).emit("i32.add")

    def _chunks(self, shared: Sequence[tuple[Part, int]], counts: Sequence[int]) -> None:
        f, module = self.f, self.module
        f.emit(self.tid)
        with f.if_():
            f.emit(self.epoch).call(_await(module))
        with f.block() as out, f.loop() as again:
            f.emit(self.tid, self.epoch, self.total).call(_claim(module)).tee(self.begin)
            f.i32(0).emit("i32.lt_s").br_if(out)
            with f.block() as done:
                for (part, at), count in zip(shared, counts, strict=True):
                    f.emit(self.begin, count, "i32.lt_u")
                    with f.if_():
                        self._piece(part, at)
                        f.br(done)
                    f.emit(self.begin, count, "i32.sub").set(self.begin)
            f.emit(self.tid)
            with f.if_():
                f.call(_finished(module))
            f.br(again)
        f.emit(self.tid, "i32.eqz")
        with f.if_():
            f.call(_join(module))
            _stop_if_poisoned(f)

    def _piece(self, part: Part, at: int) -> None:
        """Chunk `begin` of a call."""
        f, begin = self.f, self.begin
        self._chunk(part, at).tee(self.chunk).emit(begin, "i32.mul").set(begin)
        self._arguments(at).emit(begin)
        f.emit(begin, self.chunk, "i32.add")
        self._word(part, at, 0)
        f.emit(begin, self.chunk, "i32.add")
        self._word(part, at, 0).emit("i32.lt_u", "select")
        f.emit(self.tid).call(self.kernels[part.call.function])


def _open(module: Module) -> Function:
    """(epoch, wake): the leader's; chunks of this group may be claimed from now on, and none of those before."""

    def make() -> Function:
        f = module.function("open", ["i32"] * 2, export=False)
        f.i32(DONE).i32(0).mem("i32.atomic.store")
        f.i32(TICKET).emit(0, "i64.extend_i32_u").i64(32).emit("i64.shl").mem("i64.atomic.store")
        f.emit(1).i32(SLEEPERS).mem("i32.atomic.load").i32(0).emit("i32.ne", "i32.and")
        with f.if_():
            f.i32(EPOCH).i32(-1).mem("memory.atomic.notify").emit("drop")
        return f

    return module.once("open", make)


def _await(module: Module) -> Function:
    """(epoch): a helper's; returns when that group is open or past."""

    def make() -> Function:
        f = module.function("await", ["i32"], export=False)
        (epoch,) = f.params
        looks, seen = f.locals("i32", 2)
        with f.block() as out:
            with f.loop() as again:
                f.i32(EPOCH).mem("i32.atomic.load").tee(seen).emit(epoch, "i32.sub").i32(0).emit("i32.ge_s").br_if(out)
                f.emit(looks).i32(1).emit("i32.add").tee(looks).i32(SPIN).emit("i32.lt_u").br_if(again)
                f.i32(SLEEPERS).i32(1).mem("i32.atomic.rmw.add").emit("drop")
                f.i32(EPOCH).emit(seen).i64(-1).mem("memory.atomic.wait32").emit("drop")
                f.i32(SLEEPERS).i32(1).mem("i32.atomic.rmw.sub").emit("drop").br(again)
        return f

    return module.once("await", make)


def _claim(module: Module) -> Function:
    """(tid, epoch, total) -> number of a chunk that nobody else gets, -1 if there is none left in that group. The
    leader takes the first, helpers take the last, so that a thread meets the same rows in call after call."""

    def make() -> Function:
        f = module.function("claim", ["i32"] * 3, ["i32"], export=False)
        tid, epoch, total = f.params
        ticket, low, front, back = f.local("i64"), *f.locals("i32", 3)
        with f.loop() as again:
            f.i32(TICKET).mem("i64.atomic.load").tee(ticket).i64(32).emit("i64.shr_u", "i32.wrap_i64", epoch, "i32.ne")
            f.emit(ticket, "i32.wrap_i64").tee(low).i32(0xFFFF).emit("i32.and").tee(front)
            f.emit(low).i32(16).emit("i32.shr_u").tee(back).emit("i32.add", total, "i32.ge_u", "i32.or")
            with f.if_():
                f.i32(-1).emit("return")
            f.i32(TICKET).emit(ticket, ticket).i64(1 << 16).i64(1).emit(tid, "select", "i64.add")
            f.mem("i64.atomic.rmw.cmpxchg").emit(ticket, "i64.ne").br_if(again)
        return f.emit(total, back, "i32.sub").i32(1).emit("i32.sub", front, tid, "select")

    return module.once("claim", make)


def _finished(module: Module) -> Function:
    """(): a helper's chunk is done."""

    def make() -> Function:
        f = module.function("finished", [], export=False)
        f.i32(DONE).i32(1).mem("i32.atomic.rmw.add").emit("drop")
        f.i32(WAITING).mem("i32.atomic.load")
        with f.if_():
            f.i32(DONE).i32(-1).mem("memory.atomic.notify").emit("drop")
        return f

    return module.once("finished", make)


def _join(module: Module) -> Function:
    """(): the leader's; returns when the chunks that helpers have claimed are done."""

    def make() -> Function:
        f = module.function("join", [], export=False)
        looks, claimed, seen = f.locals("i32", 3)
        f.i32(TICKET).mem("i32.atomic.load").i32(16).emit("i32.shr_u").set(claimed)
        with f.block() as out, f.loop() as again:
            f.i32(DONE).mem("i32.atomic.load").tee(seen).emit(claimed, "i32.eq").br_if(out)
            f.emit(looks).i32(1).emit("i32.add").tee(looks).i32(SPIN).emit("i32.lt_u")
            f.i32(AWAKE).mem("i32.load").emit("i32.or").br_if(again)
            f.i32(WAITING).i32(1).mem("i32.atomic.store")
            f.i32(DONE).emit(seen).i64(-1).mem("memory.atomic.wait32").emit("drop")
            f.i32(WAITING).i32(0).mem("i32.atomic.store").br(again)
        return f

    return module.once("join", make)


def _stop_if_poisoned(f: Function) -> None:
    f.i32(POISON).mem("i32.atomic.load")
    with f.if_():
        f.emit("unreachable")


def _poison(module: Module) -> Function:
    """poison(tid): thread tid has trapped in a chunk. The leader waits for the chunks of others, then ends the run."""
    f = module.function("poison", ["i32"])
    (tid,) = f.params
    f.i32(POISON).i32(0).emit(tid).i32(1).emit("i32.add").mem("i32.atomic.rmw.cmpxchg").emit("drop", tid)
    with f.if_():
        f.call(_finished(module)).emit("return")
    f.i32(TICKET).i32(-1).mem("i32.atomic.rmw16.or_u").emit("drop")  # nothing is left to claim
    f.call(_join(module))
    return f.i32(EPOCH).mem("i32.atomic.load").i32(GROUPS).emit("i32.add").i32(1).call(_open(module))


__all__ = ["EPOCH", "POISON", "SYNC_BYTES", "Part", "parts", "run"]
