"""Groups the members of a body into nests, so that values between them stay in registers.

The members of a nest share its outer loops. A reduction over further axes, and maps that have these too, share inner
loops:

    for each outer index                      mix = Σk state · key     (outer: columns, inner: k)
        for each inner index: state · decay → sum
        new = (value - sum) · beta
        for each inner index: state = …; → sum
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from pyruntime.ir.dtype import BF16, F16, I32
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Loops, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import expressions_of
from pyruntime.passes.loops.bodies import Body, Dense, Member, extents
from pyruntime.passes.lowering.subnormals import unflushed

Key = Hashable  # a loop: the class of the axes that it runs over
FEW = 2  # operations of a value that is computed again in another phase


@dataclass(slots=True)
class Nest:
    """keys: of a member's axes, by its uid (those of a reduction last); outer, inner: the loops; inner is None without
    reductions. Members whose axes include the inner loops run inside of them."""

    outer: list[Key]
    inner: list[Key] | None
    members: list[Dense] = field(default_factory=list)
    keys: dict[int, list[Key | None]] = field(default_factory=dict)

    def is_inside(self, m: Dense) -> bool:
        inner = set(self.inner or ())
        return bool(inner) and (isinstance(m, Reduce) or not inner.isdisjoint(self.keys[m.out.uid]))

    def extents(self) -> dict[Key | None, AnyDim]:
        return {
            key: d for m in self.members for key, d in zip(self.keys[m.out.uid], extents(m), strict=True)
        }  # fmt: skip


class Grouping:
    """key: that of an axis of a member: its class, or None if its index is fixed; is_fixed: whether a key is that of
    an index that the unit fixes; replaced: the carried value that a member overwrites, by uid of its result; is_group:
    whether a unit is a workgroup, whose invocations share loops over elements, but not the loop of a sum of all of them
    """

    def __init__(
        self, key: Callable[[Dense, int], Key | None], is_fixed: Callable[[Key], bool], replaced: Mapping[int, Tensor],
        body: Body, is_group: bool,
    ) -> None:  # fmt: skip
        self.key, self.is_fixed, self.replaced, self.body, self.is_group = key, is_fixed, replaced, body, is_group

    def nests(self, members: Sequence[Member]) -> list[Nest | Loops]:
        """The nests, and the procedures between them."""
        out: list[Nest | Loops] = []
        for m in members:
            if isinstance(m, Loops):
                out.append(m)
                continue
            keys = self._keys(m)
            nest = out[-1] if out else None
            if not isinstance(nest, Nest) or not self._joins(nest, m, keys):
                loops, sums = self._loops(m, keys)
                nest = Nest(loops, sums if isinstance(m, Reduce) else None)
                out.append(nest)
            nest.members.append(m)
            nest.keys[m.out.uid] = keys
        return out

    def _keys(self, m: Dense) -> list[Key | None]:
        keys = [self.key(m, n) for n in range(len(extents(m)))]
        twice = {k for k in keys if k is not None and keys.count(k) > 1}  # such as h · hᵀ: the axes differ
        return [(m.out.uid, n, "alone") if k in twice else k for n, k in enumerate(keys)]

    def _loops(self, m: Dense, keys: list[Key | None]) -> tuple[list[Key], list[Key]]:
        rank = m.out.rank
        outer = [k for k in keys[:rank] if k is not None and not self.is_fixed(k)]
        return outer, [k for k in keys[rank:] if k is not None]

    def _joins(self, nest: Nest, m: Dense, keys: list[Key | None]) -> bool:
        """Whether the member can share the nest's loops. If it is the nest's first reduction, the loops over its terms
        become the nest's inner loops."""
        if any(x.out.dtype in (F16, BF16) for x in (m, *nest.members)):
            return False  # a store rounds half floats
        if any(x.out.uid in self.body.products for x in (m, *nest.members)):
            return False
        in_lanes = all(map(_has_lanes, nest.members))
        if in_lanes > (_has_lanes(m) or _sums_in_lanes(m, keys, nest)):
            return False  # the others could be a vector loop alone
        if in_lanes < _has_lanes(m) and nest.inner is None:
            return False  # it could be a vector loop alone
        if self.body.branches.get(m.out.uid) != self.body.branches.get(nest.members[0].out.uid):
            return False
        if not self._is_aligned(nest, m, keys):
            return False
        outer, sums = self._loops(m, keys)
        may_mix = not self.is_group or bool(nest.outer if isinstance(m, Map) else outer)
        if isinstance(m, Map):
            inside = may_mix and bool(nest.inner)
            return outer == nest.outer or (inside and set(outer) == {*nest.outer, *(nest.inner or ())})
        if nest.inner is not None:
            return outer == nest.outer and sums == nest.inner
        if outer == nest.outer:
            nest.inner = sums
            return True
        if sums and may_mix and set(nest.outer) == {*outer, *sums}:
            nest.outer, nest.inner = outer, sums
            return True
        return False

    def _is_aligned(self, nest: Nest, m: Dense, keys: list[Key | None]) -> bool:
        """Whether the member reads what the nest makes, and the nest reads what it overwrites, at the same indices."""
        made = [x for x in loads(m) if x.value.uid in nest.keys]
        if not all(_follows(x, keys, nest.keys[x.value.uid]) for x in made):
            return False
        state = self.replaced.get(m.out.uid)
        read = [(own, x) for own in nest.members for x in loads(own) if x.value is state]
        return all(_follows(x, nest.keys[own.out.uid], keys) for own, x in read)


def loads(m: Member) -> list[Expr]:
    return [x for e in expressions_of(m) for x in walk(e) if x.op == "at"]


def _sums_in_lanes(m: Dense, keys: Sequence[Key | None], nest: Nest) -> bool:
    """Whether a member sums along the last axis of a nest, and that may be the vector loop."""
    is_last = isinstance(m, Reduce) and nest.inner is None and bool(nest.outer) and keys[-1] == nest.outer[-1]
    return is_last and _has_lanes(m, len(keys) - 1)


def _has_lanes(m: Dense, last: int | None = None) -> bool:
    """Whether an axis, by default the last one of the result, may be that of a vector loop: its numbers have 32 bits at
    most, and neighbours load neighbours, or the same element."""
    last = max([-1, *[a for a, d in enumerate(m.out.shape) if d != 1]]) if last is None else last
    if m.out.dtype.bits == 64 or last < 0:
        return False
    for x in loads(m):
        for axis, c in enumerate(x.args):
            if any(part.op == "index" and part.value == last for part in walk(c)):
                if c.op != "index" or any(d != 1 for d in x.value.shape[axis + 1 :]):
                    return False
    return True


def _follows(load: Expr, keys: Sequence[Key | None], source: Sequence[Key | None]) -> bool:
    """Whether the load reads element (i, j, …) in iteration (i, j, …): each coordinate is the index of the loop
    with the key of that axis."""
    for c, key, d in zip(load.args, source, load.value.shape, strict=False):
        if d != 1 and not (c.op == "index" and keys[c.value] == key):
            return False
    return True


def phases(nest: Nest, replaced: Mapping[int, Tensor]) -> list[tuple[Dense, int]]:
    """The members in the order in which they are computed, with the numbers of their phases: members with the same
    number, from 0, share inner loops; -1 is outside of these. A cheap value is computed again in a later phase that
    reads it, if it can be. replaced: states that results overwrite, by uid of the result"""
    out: list[tuple[Dense, int]] = []
    phase, sums, own, is_open = -1, set[int](), dict[int, Dense](), False
    earlier: dict[int, Map] = {}  # cheap maps of earlier phases
    overwritten: set[int] = set()  # states whose old values are gone
    for m in nest.members:
        if not nest.is_inside(m):
            is_open = False
            out.append((m, -1))
        else:
            if not is_open or any(t.uid in sums for t in m.inputs):
                earlier |= {uid: _unflushed(k) for uid, k in own.items() if isinstance(k, Map) and _takes_few(k)}
                phase, sums, own, is_open = phase + 1, set(), {}, True
            for t in m.inputs:
                again = earlier.get(t.uid)
                if again is None or t.uid in own or t.uid in replaced:
                    continue
                if not any(x.uid in overwritten or x.uid in earlier for x in again.inputs):
                    own[t.uid] = again
                    out.append((again, phase))
            own[m.out.uid] = m
            out.append((m, phase))
            if isinstance(m, Reduce):
                sums.add(m.out.uid)
        if m.out.uid in replaced:
            overwritten.add(replaced[m.out.uid].uid)
    return out


def _takes_few(m: Map) -> bool:
    operations = [x for x in walk(unflushed(m.expr)) if x.args and x.op != "at" and x.dtype is not I32]
    return len(operations) <= FEW and all(x.op in ("add", "sub", "mul", "neg") for x in operations)


def _unflushed(m: Map) -> Map:
    """The map for another phase, where it is computed again: subnormal numbers stay."""
    made = Map(unflushed(m.expr))
    made.replaces(m, m.outputs)
    return made
