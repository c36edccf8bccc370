"""Which axes of a loop's body belong together, and which of them are independent columns.

Each axis of each tensor of the body belongs to a class. A load of `u` at index(a) in the kernel that makes `t` joins
u's axis with axis a of t; a carried value joins the axes before a step with those after it. A class is a column if
every load along it reads at the index at which the result is written, and if every tensor that outlives a step has such
an axis. Then no element along it needs another one, so each is a recurrence of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Loops, Tensor
from pyruntime.ir.statements import expressions_of
from pyruntime.passes.loops.bodies import Member, extents, work_of

Axis = tuple[int, int]  # uid of a tensor, number of its axis; reduction axes follow those of the result
Class = Axis  # the representative of a class

REDUNDANCY = 2.0  # work of all units, over the work of one unit alone, up to which a column pays


class Columns:
    """The classes of the axes of a body's tensors. states: the carried values before a step; results: those after it,
    then values to stack"""

    def __init__(self, states: Sequence[Tensor], results: Sequence[Tensor], members: Sequence[Member]) -> None:
        self._parents: dict[Axis, Axis] = {}
        self._mixed: set[Axis] = set()  # members of classes along which some load moves
        self._ranks = {t.uid: t.rank for t in states}
        self._members = members
        self.stored = [*states, *results[len(states) :]]  # the tensors that outlive a step
        for before, after in zip(states, results, strict=False):
            for axis in range(before.rank):
                self._join((before.uid, axis), (after.uid, axis))
        for m in members:
            self._read(m, expressions_of(m))
        self.extents = {self.of(t, a): d for t in self.stored for a, d in enumerate(t.shape)}

    def of(self, t: Tensor, axis: int) -> Class:
        return self._root((t.uid, axis))

    def is_last(self, c: Class) -> bool:
        """Whether the class is the last axis of every tensor that outlives a step."""
        return all(t.rank > 0 and self.of(t, t.rank - 1) == c for t in self.stored)

    def _root(self, a: Axis) -> Axis:
        while (up := self._parents.get(a, a)) != a:
            a = up
        return a

    def _join(self, a: Axis, b: Axis) -> None:
        self._parents[self._root(a)] = self._root(b)

    def _read(self, m: Member, exprs: Iterable[Expr]) -> None:
        """Record the loads in the expressions of a member; those before it must be recorded."""
        for e in exprs:
            for x in walk(e):
                if x.op == "at" and x.value.uid in self._ranks:
                    self._load(m, x)
        for t in m.outputs:
            self._ranks[t.uid] = t.rank
        if isinstance(m, Loops):  # its statements make all elements
            self._mixed.update((t.uid, a) for t in (*m.inputs, *m.outputs) for a in range(t.rank) if t.shape[a] != 1)

    def _load(self, m: Member, load: Expr) -> None:
        if isinstance(m, Loops):
            return
        source, out, all_extents = load.value, m.out, extents(m)
        for axis, c in enumerate(load.args):
            if source.shape[axis] == 1:
                continue
            own = (source.uid, axis)
            follows = c.op == "index" and source.shape[axis] == all_extents[c.value]
            if follows:
                self._join(own, (out.uid, c.value))
            if not follows or c.value >= out.rank:
                self._mixed.add(own)

    def independent(self, units: Callable[[Class], float]) -> list[Class]:
        """The columns, in the order of the axes of the first stored tensor, without those for which the units would
        repeat too much work: each unit computes the values that lack its columns. units: the number of units into which
        a column is divided"""
        chosen: list[Class] = []
        for c in self._candidates():
            if self._redundancy([*chosen, c], units) <= REDUNDANCY:
                chosen.append(c)
        return chosen

    def _candidates(self) -> list[Class]:
        mixed = {self._root(a) for a in self._mixed}
        found = []
        for axis, extent in enumerate(self.stored[0].shape if self.stored else ()):
            c = self.of(self.stored[0], axis)
            times = {uid: sum(self._root((uid, a)) == c for a in range(rank)) for uid, rank in self._ranks.items()}
            if extent != 1 and c not in mixed and max(times.values()) == 1 and all(times[t.uid] for t in self.stored):
                found.append(c)
        return found

    def _redundancy(self, columns: Sequence[Class], units: Callable[[Class], float]) -> float:
        once = total = 1.0
        for m in self._members:
            work = work_of(m)
            own = {self.of(m.out, a) for a in range(m.out.rank)}
            once += work
            for c in columns:
                work *= 1.0 if c in own else units(c)
            total += work
        return total / once
