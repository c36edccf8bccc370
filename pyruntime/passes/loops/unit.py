"""One unit of a loop's procedure: the columns that it computes, and where it has its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BF16, BOOL, F16, I32, I64
from pyruntime.ir.expr import Expr, cast, const, dim, index, minimum, rem, rewrite, walk
from pyruntime.ir.kernel import Builder, Leaf, Loop, Loops, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.passes.loops.axes import Axis, loads_lanes, over, stores_lanes
from pyruntime.passes.loops.bodies import Body, Dense, Member, StepByStep, extents
from pyruntime.passes.loops.columns import Class, Columns
from pyruntime.passes.loops.nests import Grouping, Key, Nest, loads, phases
from pyruntime.passes.loops.products import LARGE

CHUNK = 64  # columns of a unit: states of one row stay in the first-level cache, and there are units for threads
ROWS, SUMMED_ROWS = 2, 4  # rows of a unit that share each load of a matrix; those that sum along their own axis
MOST_SCRATCH = 64 << 20  # bytes of all units
GROUP = 64  # invocations of a unit on a GPU, if there are at most as many units


class Place(NamedTuple):
    """Where a value of the body is stored. coords: from the coordinates of the value"""

    tensor: Tensor
    coords: Callable[[Sequence[Expr]], list[Expr]]

    def at(self, coords: Sequence[Expr]) -> Expr:
        return self.tensor.at(*self.coords(coords))


class Unit:
    """The unit of a loop. Its columns are those that `columns.py` finds. With `lanes`, if the last axis of everything
    that outlives a step is a column, a unit has a chunk of it, in vectors; without, each column is a unit, as GPUs
    need.

    k: the builder of the procedure; places: of values, by uid
    step: the number of the step, which wraps if `number64`, the same in 64 bits, is not None; row: of the stacks
    registers: values that are variables, by uid; scalars: uids of those that are one number for the whole step
    replaced: by uid of a result, the state that it overwrites
    of_columns: uids of the scratch memory of values that have columns
    packed: matrices in blocks of vectors; see `pack`
    """

    def __init__(self, loop: Loop, body: Body, lanes: bool) -> None:
        self.loop, self.body, self.lanes, self.k = loop, body, lanes, Builder()
        self.states = loop.body.inputs[2:]
        self.inside = {t.uid for t in (*loop.body.inputs, *[t for m in body.members for t in m.outputs])}
        self.outer_kind = "serial" if lanes else "vector"  # of loops around others: a workgroup shares all of them
        self.columns = Columns(self.states, body.results, body.members)
        found = self.columns.independent(self._units_of)
        self.lane = found.pop() if found and self._is_lane(found[-1]) else None
        self.group = next((c for c in found[::-1] if lanes and self._sharing(c)), None)
        self.rows = ROWS if self.group is None else self._rows(self.group)
        self.outer = [c for c in found if c != self.group]
        self.indices: dict[Key, Expr] = {}  # of the outer columns
        self.places: dict[int, Place] = {}
        self.registers: dict[int, Expr] = {}
        self.scalars: set[int] = set()
        self.replaced: dict[int, Tensor] = {}
        self.scratch: list[Tensor] = []
        self.of_columns: set[int] = set()
        self.packed: dict[tuple[int, ...], Map] = {}
        self.step = self.row = const(0, I32)
        self.number64: Expr | None = None
        self.low: Expr | None = None  # the first column of the chunk
        self.low_row, self.row_count = const(0, I32), const(self.rows, I32)
        self.chunks: AnyDim = 1
        self.width: AnyDim = 1 if self.lane is None else self.columns.extents[self.lane]
        if not isinstance(self.width, int) or self.width > CHUNK:
            self.chunks, self.width = sh.ceildiv(self.width, CHUNK), CHUNK
        self.groups = 1 if self.group is None else sh.ceildiv(self.columns.extents[self.group], self.rows)
        self.count = sh.size([self.columns.extents[c] for c in self.outer]) * self.chunks * self.groups
        self.is_group = not lanes and sh.estimate(self.count) <= GROUP  # a workgroup of a GPU

    def _is_lane(self, c: Class) -> bool:
        return self.lanes and self.columns.is_last(c)

    def _sharing(self, c: Class) -> list[Reduce]:
        """Sums for all elements of a column that read the same matrix from outside the loop."""
        return [
            m for m in self.body.members
            if isinstance(m, Reduce) and any(self._key(m, a) == c for a in range(m.out.rank))
            and any(self.is_matrix(x) and not self._follows(m, x, c) for x in loads(m))
        ]  # fmt: skip

    def _rows(self, c: Class) -> int:
        """The rows of a unit. If rows are the last axis of a sum's result, they are read along their own axis."""
        extent = self.columns.extents[c]
        keys = [[self._key(m, a) for a in range(m.out.rank) if m.out.shape[a] != 1] for m in self._sharing(c)]
        is_long = not isinstance(extent, int) or extent >= SUMMED_ROWS
        return SUMMED_ROWS if is_long and any(k[-1] == c for k in keys) else ROWS

    def is_matrix(self, load: Expr) -> bool:
        """Whether a load is of a large matrix from outside the loop."""
        t = load.value
        return t.rank > 1 and t.uid not in self.inside and sh.estimate(sh.size(t.shape)) >= LARGE

    def _follows(self, m: Dense, load: Expr, c: Class) -> bool:
        return any(x.op == "index" and self._key(m, x.value) == c for a in load.args for x in walk(a))

    def _units_of(self, c: Class) -> float:
        extent = sh.estimate(self.columns.extents[c])
        return -(-extent // CHUNK) if self._is_lane(c) else extent

    def decode(self, number: Expr) -> None:
        """Declare variables for the indices of the unit's columns. Of no columns there may be a unit, too."""
        k, rest, extents_of = self.k, number, self.columns.extents
        self.number, self.lane_count = number, dim(self.width)
        if self.chunks != 1:
            assert self.lane is not None
            rest, part = self._split(rest, self.chunks)
            self.low = k.let(part * CHUNK)
            whole = extents_of[self.lane]
            if not isinstance(whole, int) or whole % CHUNK:
                self.lane_count = k.let(minimum(dim(whole) - self.low, const(CHUNK, I32)))
        if self.group is not None:
            rest, part = self._split(rest, self.groups)
            self.low_row = k.let(part * self.rows)
            rows = extents_of[self.group]
            if not isinstance(rows, int) or rows % self.rows:
                self.row_count = k.let(minimum(dim(rows) - self.low_row, const(self.rows, I32)))
        for c in reversed(self.outer[1:]):
            rest, part = self._split(rest, extents_of[c])
            self.indices[c] = k.let(part)
        if self.outer:
            self.indices[self.outer[0]] = rest

    def _split(self, number: Expr, extent: AnyDim) -> tuple[Expr, Expr]:
        """The quotient and the remainder of a number, which is 0 if the extent is."""
        size = dim(sh.maximum(extent, 1))
        return self.k.let(number / size), rem(number, size)

    # ── places ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def assign(self, outputs: Sequence[Tensor]) -> list[Nest | Loops]:
        """Give every value that is not only in variables its place. outputs: final states, then stacks. Returns the
        nests of the body."""
        for state, out in zip(self.states, outputs, strict=False):
            self.places[state.uid] = Place(out, list)
        self.copied: list[tuple[Tensor, Tensor]] = []  # states whose new values are copied after each step
        for n, result in enumerate(self.body.results):
            if n >= len(self.states):
                self.places[result.uid] = Place(outputs[n], lambda c: [self.row, *c])
            elif self._in_place(self.states[n], result):
                self.places[result.uid] = self.places[self.states[n].uid]
                self.replaced[result.uid] = self.states[n]
            else:
                self.copied.append((self.states[n], result))
        grouping = Grouping(self._key, lambda c: c in self.outer, self.replaced, self.body, self.is_group)
        nests = grouping.nests(self.body.members)
        self._assign_scratch(nests)
        return nests

    def _in_place(self, state: Tensor, result: Tensor) -> bool:
        """Whether a step may overwrite the state with its new value when it computes that: nothing reads the old value
        afterwards."""
        is_made = False
        for m in self.body.members:
            is_own = any(t is result for t in m.outputs)
            if is_own and isinstance(m, Loops) and _takes_over(m, result, state):
                is_made = True
                continue
            if any(t is state for t in m.inputs) and isinstance(m, Loops) and (is_own or is_made):
                return False
            if any(x.value is state and (is_made or (is_own and not _is_own_index(m, x))) for x in loads(m)):
                return False
            is_made = is_made or is_own
        return is_made

    def _assign_scratch(self, nests: Sequence[Nest | Loops]) -> None:
        """Values that another nest, or a later phase of their own, reads are stored in scratch memory of the unit."""
        branches = self.body.branches
        read = {new.uid for _, new in self.copied}
        read |= {t.uid for found in branches.values() for t, _ in found if t.uid in branches}
        known: set[int] = set()  # in variables: results of this phase, of reductions, and outside of inner loops
        for nest in nests:
            known &= self.scalars
            if isinstance(nest, Loops):
                read.update(t.uid for t in (*nest.inputs, *nest.outputs) if t.uid not in known)
                continue
            phase, of_phase = -1, set[int]()
            for m, number in phases(nest, self.replaced):
                if number != phase:
                    known -= of_phase
                    phase, of_phase = number, set()
                if number >= 0 and isinstance(m, Map):
                    of_phase.add(m.out.uid)
                read.update(t.uid for t in m.inputs if t.uid not in known)
                known.add(m.out.uid)
                is_scalar = not nest.outer and (number < 0 or isinstance(m, Reduce))
                if is_scalar and m.out.dtype not in (F16, BF16) and m.out.uid not in branches:
                    self.scalars.add(m.out.uid)
        made = [t for member in self.body.members for t in member.outputs if t.uid in read]
        own = [t for nest in nests if isinstance(nest, Loops) for t in nest.scratch]
        for t in (*made, *own):
            if t.uid not in self.places:
                self.places[t.uid] = self._scratch(t)
        if sum(sh.estimate(sh.size(t.shape)) * t.dtype.size for t in self.scratch) > MOST_SCRATCH:
            raise StepByStep(f"its values between kernels take more than {MOST_SCRATCH >> 20} MiB")

    def _scratch(self, t: Tensor) -> Place:
        inner = [a for a in range(t.rank) if self.columns.of(t, a) not in self.outer and t.shape[a] != 1]
        lane, rows = (
            [a for a in inner if c is not None and self.columns.of(t, a) == c] for c in (self.lane, self.group)
        )
        shape = [self.width if a in lane else self.rows if a in rows else t.shape[a] for a in inner]
        own = Leaf("scratch").making((sh.maximum(self.count, 1), *shape), t.dtype).out
        self.scratch.append(own)
        found = [c for c in (*self.outer, self.lane, self.group) if c is not None]
        if any(self.columns.of(t, a) in found for a in range(t.rank)):
            self.of_columns.add(own.uid)

        def coords(c: Sequence[Expr]) -> list[Expr]:
            own_coords = {a: c[a] - self.low for a in lane if self.low is not None}
            own_coords |= {a: c[a] - self.low_row for a in rows}
            return [self.number, *[own_coords.get(a, c[a]) for a in inner]]

        return Place(own, coords)

    def pack(self, matrix: Tensor, column: int, width: int, first: int, count: int) -> Tensor:
        """`count` columns of a matrix (…, K, N), or (…, N, K) if N is not the last axis, as (…, count / width, K,
        width), so that a nest reads them from start to end. column: the axis N; first: of the columns"""
        key = matrix.uid, column, width, first, count
        if key not in self.packed:
            rank = matrix.rank
            row = 2 * rank - 3 - column
            at = {column: index(rank - 2) * width + index(rank) + first, row: index(rank - 1)}
            view = Map(matrix.at(*[at.get(n, index(n)) for n in range(rank)]))
            shape = (*matrix.shape[:-2], count // width, matrix.shape[row], width)
            self.packed[key] = view.making(shape, matrix.dtype, self.loop.node)
        return self.packed[key].out

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _key(self, m: Dense, axis: int) -> Key | None:
        return None if extents(m)[axis] == 1 else self.columns.of(m.out, axis)

    def axis(self, key: Key, extent: AnyDim) -> Axis:
        """A new loop."""
        if self.group is not None and key == self.group:
            return Axis(self.k.new(I32), self.row_count, self.low_row)
        is_lane = self.lane is not None and key == self.lane
        return Axis(self.k.new(I32), self.lane_count if is_lane else dim(extent), self.low if is_lane else None)

    def register(self, t: Tensor) -> Expr | None:
        """The variable of a value that is one number for the whole step."""
        return self.registers.get(t.uid)

    def expression(self, e: Expr, indices: Sequence[Expr], registers: Callable[[Tensor], Expr | None]) -> Expr:
        """An expression of a member in terms of variables and places. registers: values that are variables"""
        number, going = self.loop.body.inputs[:2]

        def visit(x: Expr) -> Expr | None:
            if x.op == "index":
                return indices[x.value]
            if x.op == "at" and x.value is number:
                return cast(self.step, I64) if self.number64 is None else self.number64
            if x.op == "at" and x.value is going:
                return const(True, BOOL)  # whenever the body runs
            if x.op == "at" and (found := registers(x.value)) is not None:
                return found
            if x.op == "at" and x.value.uid in self.places:
                return self.places[x.value.uid].at(x.args)
            if x.op == "cast" and x.dtype is I32 and self._is_step(x.args[0]):
                return self.step
            if x.op == "checked" and self._is_step(x.args[0]) and x.args[1].value == self.loop.limit:
                return self.step
            return None

        return rewrite(e, visit)

    def _is_step(self, e: Expr) -> bool:
        return e is self.step or e is self.number64 or (e.op == "cast" and e.args[0] is self.step)

    def start(self, initials: Sequence[Tensor]) -> None:
        """Write the copy of the initial values of the states."""
        for state, initial in zip(self.states, initials, strict=True):
            self.copy(state, Place(initial, list).at, self.places[state.uid])

    def end_step(self) -> None:
        for state, new in self.copied:
            self.copy(state, self.places[new.uid].at, self.places[state.uid])

    def copy(self, t: Tensor, value: Callable[[Sequence[Expr]], Expr], to: Place) -> None:
        indices: list[Expr] = []
        axes: list[Axis] = []
        for a, d in enumerate(t.shape):
            c = self.columns.of(t, a)
            if d == 1 or c in self.indices:
                indices.append(const(0, I32) if d == 1 else self.indices[c])
            else:
                axes.append(self.axis(c, d))
                indices.append(axes[-1].index)
        made, coords = value(indices), to.coords(indices)
        in_lanes = axes and stores_lanes(axes[-1].var, to.tensor, coords) and loads_lanes(axes[-1].var, made)
        with over(self.k, axes, "vector" if in_lanes else self.outer_kind, self.outer_kind):
            self.k.store(to.tensor, coords, cast(made, to.tensor.dtype))


def _takes_over(m: Loops, result: Tensor, state: Tensor) -> bool:
    """Whether the result takes over the memory of the state, of which the procedure reads nothing else."""
    bases = [base for base, t in zip(m.bases, m.outputs, strict=False) if t is result]
    is_own = bool(bases) and bases[0] is state and m.bases.count(state) == 1
    return is_own and all(x.value is not state for x in loads(m))


def _is_own_index(m: Member, load: Expr) -> bool:
    """Whether a map loads the element at its own index."""
    at = [c.value if c.op == "index" else None if d != 1 else n
          for n, (c, d) in enumerate(zip(load.args, load.value.shape, strict=True))]  # fmt: skip
    return isinstance(m, Map) and at == list(range(m.out.rank))
