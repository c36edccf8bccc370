"""SPMD: thread 0 leads, the others help. Each runs the same `run_<block>_<step>(table, tid, threads, epoch)`.

A call has one parameter more than its kernel, at the end: whether to share the call (cost.py), which depends on the
shapes, and from its third bit on the number of adjacent work units that one thread must run in order (0 means 1). The
calls of a segment are divided into groups within which no call reads, writes or reuses the memory of another
(`regroup`). Calls that are not shared run on the leader. It divides the others into chunks and opens one group at a
time. The leader claims chunks from the front, helpers from the back, and a group ends when all claimed chunks are done.

So no thread waits for an absent one: a helper that arrives late, or whose core has other work, finds no chunks and goes
on to a later group. Groups are numbered (epochs) across runs, in one word with the counts of claims from the front and
from the back; a helper that still runs an earlier run claims nothing, because its epochs are past.

These words are in the reserved bytes of linear memory (codegen/linear_memory.py). A waiting thread spins, then sleeps;
the leader does not sleep if the host has set AWAKE, because a page's main thread must not sleep. If a thread traps in a
chunk, its host calls `poison(tid)`; the leader traps at the end of the group, and the word POISON names the first such
thread.

A host that may have to stop a run makes the word STOP positive: chunks then run in portions. A negative STOP makes all
threads end after their current portion; the leader traps, as after a poison
(docs/design/sessions.md#stopping-in-browsers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Call, Kernel, Leaf, Loops, Map, Reduce, Tensor, root

from ..printer.assembler import Function, Module
from .cost import pays
from .work_claims import await_group, chunks, claim, end_group, open_group, piece, poison, solo, whole

CALLS = 64  # of a group at most
INIT = "run_0_"


@dataclass(slots=True)
class Part:
    """A call and the memory that it accesses, as uids of root tensors. first: it starts a group"""

    call: Invocation
    reads: set[int]
    writes: set[int]
    first: bool = True


def parts(kernel: Kernel, calls: Sequence[Invocation]) -> list[Part]:
    """The calls of one kernel, each of which gets the parameter at the end."""
    out = []
    outputs = {root(t).uid for t in kernel.outputs}
    for c in calls:
        c.split = pays(kernel, c.work, c.consecutive)
        if c.consecutive != 1:
            c.split = sh.select(c.split, c.split + 4 * c.consecutive, 0)
        c.params = [*c.params, c.split]
        touched = {root(t).uid for t in c.tensors}
        writes = touched if len(calls) > 1 else outputs | {root(t).uid for t in c.scratch}
        writes = writes | {root(t).uid for pair in c.inplace for t in pair}
        out.append(Part(c, touched, writes))
    return out


def regroup(segment: Sequence[Part], lasting: set[int]) -> None:
    """Divide a segment into groups of calls that may run in any order. lasting: buffers that live as long as the
    session"""
    last = {uid: n for n, part in enumerate(segment) for uid in part.reads | part.writes}
    start = 0
    for n, part in enumerate(segment):
        group = segment[start:n]
        conflict = any(_conflict(part, other) for other in group)
        part.first = conflict or _ends(group, last, n, lasting) or _overwrites_input(part)
        if part.first or len(group) == CALLS:
            part.first, start = True, n


def _conflict(a: Part, b: Part) -> bool:
    return bool(a.writes & (b.reads | b.writes) or b.writes & a.reads)


def _ends(group: Sequence[Part], last: Mapping[int, int], n: int, lasting: set[int]) -> bool:
    """Whether a buffer may be freed after these calls, so that call n may reuse its memory."""
    return any(last[uid] < n and uid not in lasting for part in group for uid in part.reads | part.writes)


def _constant(t: Tensor) -> int:
    """The uid of a constant or state, -1 for others."""
    base = root(t)
    return base.uid if isinstance(base.kernel, Leaf) and base.kernel.kind in ("weight", "constant", "state") else -1


def _overwrites_input(part: Part) -> bool:
    """Whether the call may overwrite memory from outside of the segment, which two tensors may share."""
    return any(not isinstance(root(t).kernel, (Map, Reduce, Loops, Call)) for _, t in part.call.inplace)


# ── code ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(module: Module, name: str, segment: Sequence[Part], made: set[int]) -> None:
    """Write run(table, tid, threads, epoch) for calls whose kernels are in the module. made: collects the buffers that
    the init block writes"""
    if name.startswith(INIT):
        regroup(segment, set())
        made.update(*[part.writes for part in segment])
    else:
        regroup(segment, made | {uid for part in segment for uid in map(_constant, part.call.tensors)})
    poison(module)
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
    """Calls pass indices of kernel functions to shared helpers, so that little code is written for each call: with
    inlined code, writing MiniLM took 640 ms in Pyodide, and 90 ms for one thread."""

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.f = f = module.function(name, ["i32"] * 4)
        self.table, self.tid, self.threads, self.epoch = f.params
        self.total, self.wake, self.chunk = f.locals("i32", 3)
        self.offset = self.number = 0

    def group(self, parts: Sequence[Part]) -> None:
        places = []
        for part in parts:
            places.append((part, self.offset))
            self.offset += 4 * (len(part.call.tensors) + len(part.call.params) + 1)
        shared = [place for place in places if place[0].call.split != 0]
        if not shared:
            self._leader(places)
        elif len(places) == 1:
            self._call(*places[0], self.tid, self.threads)
            self._epoch().call(solo)
        else:
            self._several(places, shared)
        self.number += bool(shared)

    def end(self) -> None:
        """The leader opens the epoch after the last, so that waiting helpers return."""
        f = self.f
        f.emit(self.threads).i32(1).emit("i32.gt_u", self.tid, "i32.eqz", "i32.and")
        with f.if_():
            self._epoch().i32(1).call(open_group)

    def _epoch(self) -> Function:
        """Push the number of the group."""
        return self.f.emit(self.epoch).i32(self.number).emit("i32.add")

    def _call(self, part: Part, at: int, *more: int) -> Function:
        """Push arguments of `solo`, `whole` or `piece`: the addresses of the call's block and of its number of work
        units, and its kernel."""
        words = len(part.call.tensors) + len(part.call.params)
        f = self.f.emit(self.table).i32(at).emit("i32.add", self.table).i32(at + 4 * words).emit("i32.add")
        return f.i32(self.module.exported[part.call.function].index).emit(*more)

    def _leader(self, places: Sequence[tuple[Part, int]]) -> None:
        f = self.f
        f.emit(self.tid, "i32.eqz")
        with f.if_():
            for place in places:
                self._call(*place, self.threads).call(whole)

    def _several(self, places: Sequence[tuple[Part, int]], shared: Sequence[tuple[Part, int]]) -> None:
        """The leader opens the group, runs the calls that are not shared, and then claims chunks like all threads."""
        f = self.f
        with f.scratch("i32", len(shared)) as counts:
            f.i32(0).tee(self.total).set(self.wake)
            for (part, at), count in zip(shared, counts, strict=True):
                work = at + 4 * (len(part.call.tensors) + len(part.call.params))
                f.emit(self.table).i32(work).emit("i32.add", self.threads).call(chunks).tee(count)
                f.emit(self.total, "i32.add").set(self.total)
                f.emit(self.table).mem("i32.load", work - 4).emit(self.wake, "i32.or").set(self.wake)
            f.emit(self.tid, "i32.eqz")
            with f.if_():
                f.emit(self.total)
                with f.if_():
                    self._epoch().emit(self.wake).i32(1).emit("i32.shr_u").call(open_group)
                for place in places:
                    self._call(*place, self.threads).call(whole)
            f.emit(self.total)
            with f.if_():
                self._claims(shared, counts)

    def _claims(self, shared: Sequence[tuple[Part, int]], counts: Sequence[int]) -> None:
        f, chunk = self.f, self.chunk
        f.emit(self.tid)
        with f.if_():
            self._epoch().call(await_group)
        with f.block() as out, f.loop() as again:
            f.emit(self.tid)
            self._epoch().emit(self.total).call(claim).tee(chunk).i32(0).emit("i32.lt_s").br_if(out)
            for place, count in zip(shared, counts, strict=True):
                f.emit(chunk, count, "i32.lt_u")
                with f.if_():
                    self._call(*place, self.tid, self.threads, chunk).call(piece).br(again)
                f.emit(chunk, count, "i32.sub").set(chunk)
        end_group(f, self.tid)
