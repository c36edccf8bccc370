"""Writes the statements of a nest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext

from pyruntime.codegen.schedule import LANES, accumulator
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, cast, const, dim, rewrite, walk
from pyruntime.ir.kernel import Accum, Map, Reduce, Tensor, Var
from pyruntime.ir.reference import NEUTRAL
from pyruntime.ir.statements import expressions_of
from pyruntime.passes.loops.axes import Axis, depends, loads_lanes, over, stores_lanes
from pyruntime.passes.loops.bodies import Dense
from pyruntime.passes.loops.nests import Key, Nest, loads, phases
from pyruntime.passes.loops.products import first_column
from pyruntime.passes.loops.unit import ROWS, Unit

# Vectors of sums at once, which hide the latency of an addition. With 8 a delta net takes a tenth less time, but greedy
# decoding more, and opening their sessions a third more.
PARTS = 4


class NestWriter:
    """Writes one nest. Its vector loop runs over the last outer axis, several vectors at once if it sums, or else over
    the last inner axis."""

    def __init__(self, unit: Unit, nest: Nest) -> None:
        self.unit, self.k, self.nest = unit, unit.k, nest
        extents = nest.extents()
        self.outer = {key: unit.axis(key, extents[key]) for key in nest.outer}
        self.inner = {key: unit.axis(key, extents[key]) for key in nest.inner or ()}
        self.registers: dict[tuple[int, int], Expr] = {}  # by uid and number of the part
        self.parts, self.rows, self.block, self.lane = 1, 1, const(0, I32), const(0, I32)
        self.split: Key | None = None  # the axis that is split into parts
        self.along = False  # whether the last inner loop is the vector loop
        self.stored: set[int] = set()  # values that are in their places
        self.is_product = nest.members[0].out.uid in unit.body.products

    def write(self) -> None:
        axes = list(self.outer.values())
        split, parts = self._divided(axes)
        # invocations of a GPU may load anything
        packs = self.is_product or split is not None
        across = bool(axes) and (not self.unit.lanes or self._fits(axes[-1].var, packs=packs))
        if across:
            self.split, self.parts = split, parts
        inner = list(self.inner.values())
        self.along = bool(inner) and not across and self._fits(inner[-1].var, inside=True)
        if not self._shares_loads():
            self._write(axes, across)
            return
        rows = self.unit.row_count
        with self.k.when(rows == self.unit.rows) if rows.op != "const" else nullcontext():
            self.rows = self.unit.rows
            self._write([a for key, a in self.outer.items() if key != self.unit.group], across)
        if rows.op != "const":
            with self.k.otherwise():
                self.rows, self.stored = 1, set()
                self._write(axes, across)

    def _write(self, axes: Sequence[Axis], across: bool) -> None:
        with ExitStack() as stack:
            stack.enter_context(over(self.k, axes[:-1] if across else axes, self.unit.outer_kind, self.unit.outer_kind))
            if across:
                self._enter_lanes(stack, axes[-1])
            self._phases()

    def _shares_loads(self) -> bool:
        """Whether all rows of the unit are computed at once, because they read the same blocks of a matrix, or because
        lanes are along their own axis."""
        group = self.unit.group
        if self.along:
            return group in self.nest.outer
        if self.split is None or group not in self.nest.outer[:-1]:
            return False
        packed = [(m, x) for m in self.nest.members for x in loads(m) if self._column(m, x) is not None]
        keys = [
            [self.nest.keys[m.out.uid][c.value] for a in x.args for c in walk(a) if c.op == "index"] for m, x in packed
        ]
        return any(group not in found for found in keys)

    # ── lanes ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fits(self, v: Expr, inside: bool = False, packs: bool = False) -> bool:
        """Whether all loads and stores follow a variable in steps of one element, or stay. inside: only those of inner
        loops count; packs: matrices that can be packed for the nest count as packed"""
        made = {m.out.uid for m in self.nest.members}
        for m, phase in phases(self.nest, self.unit.replaced):
            if inside and phase < 0:
                continue
            indices = self._indices(m, 0)
            for e in [m.expr] if inside else expressions_of(m):
                if packs:
                    e = self._without_packed(m, e)
                value = self.unit.expression(e, indices, lambda t: const(0, t.dtype) if t.uid in made else None)
                if not loads_lanes(v, value):
                    return False
            if m.out.uid in self.unit.places and not (inside and isinstance(m, Reduce)):
                place = self.unit.places[m.out.uid]
                if not stores_lanes(v, place.tensor, place.coords(indices[: m.out.rank])):
                    return False
        return True

    def _without_packed(self, m: Dense, e: Expr) -> Expr:
        return rewrite(e, lambda x: None if self._column(m, x) is None else const(0, x.dtype))

    def _divided(self, axes: Sequence[Axis]) -> tuple[Key | None, int]:
        """The axis whose vectors are computed several at once, and their number."""
        order = phases(self.nest, self.unit.replaced)
        sums = max(Counter(p for m, p in order if isinstance(m, Reduce)).values(), default=0)
        if self.is_product or not axes or not sums or not self.unit.lanes or axes[-1].extent.op != "const":
            return None, 1
        extent = axes[-1].extent.value
        most = PARTS * ROWS // self.unit.rows // max(sums, 1)
        fitting = [p for p in range(most, 1, -1) if extent and extent % (LANES * p) == 0]
        return (self.nest.outer[-1], fitting[0]) if fitting else (None, 1)

    def _enter_lanes(self, stack: ExitStack, last: Axis) -> None:
        """Opens the vector loop."""
        k = self.k
        if self.split is None:
            stack.enter_context(over(k, [last], "vector"))
            return
        self.block = stack.enter_context(k.loop(last.extent.value // (LANES * self.parts)))
        self.lane = k.new(I32)
        stack.enter_context(over(k, [Axis(self.lane, dim(LANES))], "vector"))

    def _indices(self, m: Dense, part: int) -> list[Expr]:
        """The index of each axis of a member."""
        out: list[Expr] = []
        for key in self.nest.keys[m.out.uid]:
            if key is None:
                out.append(const(0, I32))
            elif key in self.unit.indices:
                out.append(self.unit.indices[key])
            else:
                axis, (row, of_row) = self.outer.get(key) or self.inner[key], divmod(part, self.parts)
                place = self.block * (LANES * self.parts) + (self.lane + of_row * LANES)
                is_row = self.rows > 1 and key == self.unit.group
                out.append(
                    axis.at(place if key == self.split else const(row, I32))
                    if is_row or key == self.split
                    else axis.index
                )
        return out

    # ── phases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _phases(self) -> None:
        todo = phases(self.nest, self.unit.replaced)
        while todo:
            m, phase = todo[0]
            if phase < 0:
                todo.pop(0)
                for part in range(self.parts * self.rows):  # a reduction here has one term
                    self._set(m, part, self._finished(m, self._value(m, m.expr, part), part))
                continue
            same = [x for x, p in todo if p == phase]
            todo = todo[len(same) :]
            self._phase(same)

    def _phase(self, members: Sequence[Dense]) -> None:
        """The inner loops that these members share."""
        k = self.k
        totals: dict[tuple[int, int], Var] = {}
        for m in members:
            if isinstance(m, Reduce):
                dtype = accumulator(m.expr.dtype, m.op)
                totals |= {(m.out.uid, p): k.var(NEUTRAL[m.op](dtype), dtype) for p in range(self.parts * self.rows)}
        before = dict(self.registers)
        with over(k, list(self.inner.values()), "vector" if self.along else "serial"):
            shared: dict[object, Expr] = {}
            for m in members:
                for part in range(self.parts * self.rows):
                    value = self._once(self._value(m, self._packed(m, part), part), shared)
                    if isinstance(m, Reduce):
                        total = totals[m.out.uid, part].get
                        k.emit(Accum(total.value, m.op, cast(value, total.dtype)))
                    else:
                        self._set(m, part, value)
        self.registers = before
        for m in members:
            for part in range(self.parts * self.rows if isinstance(m, Reduce) else 0):
                total = cast(totals[m.out.uid, part].get, m.expr.dtype)
                self._set(m, part, self._finished(m, total, part))

    def _value(self, m: Dense, e: Expr, part: int) -> Expr:
        return self.unit.expression(e, self._indices(m, part), lambda t: self._register(t, part))

    def _register(self, t: Tensor, part: int) -> Expr | None:
        return self.registers.get((t.uid, part), self.unit.registers.get(t.uid))

    def _finished(self, m: Dense, total: Expr, part: int) -> Expr:
        """The value of a map, or of a reduction after its epilogue."""
        if isinstance(m, Map) or m.epilogue is None:
            return total
        return rewrite(self._value(m, m.epilogue, part), lambda x: total if x.op == "arg" else None)

    def _packed(self, m: Dense, part: int) -> Expr:
        """The member's expression with loads of matrices from outside the loop in blocks of this nest's vectors."""
        if self.is_product:
            return rewrite(m.expr, lambda x: self._transposed(m, x))
        if self.split is None:
            return m.expr
        width, base = LANES * self.parts, self.outer[self.split].base
        block = self.block if base is None else base / width + self.block  # chunks are multiples of the width

        def visit(x: Expr) -> Expr | None:
            column = self._column(m, x)
            if column is None:
                return None
            row = x.args[2 * x.value.rank - 3 - column]
            columns = self.nest.extents()[self.nest.outer[-1]]  # of all chunks
            first = first_column(x.args[column])
            assert first is not None and isinstance(columns, int)
            packed = self.unit.pack(x.value, column, width, first, columns)
            return packed.at(*x.args[:-2], block, row, self.lane + part % self.parts * LANES)

        return rewrite(m.expr, visit)

    def _transposed(self, m: Dense, x: Expr) -> Expr | None:
        """The load of a matrix whose columns are not its last axis from its transpose."""
        column = self._column(m, x)
        if column is None or column == x.value.rank - 1 or not isinstance(x.value.shape[column], int):
            return None
        columns = x.value.shape[column]
        return self.unit.pack(x.value, column, columns, 0, columns).at(*x.args[:-2], const(0, I32), *x.args[:-3:-1])

    def _column(self, m: Dense, x: Expr) -> int | None:
        """The axis of a matrix from outside the loop along which a load follows the last outer axis, if it follows the
        terms of the nest's sums along the other one; None for other loads. Further axes are before these two."""
        if x.op != "at" or not isinstance(m, Reduce) or not self.unit.is_matrix(x) or not self.nest.outer:
            return None
        keys, (*lead, a, b) = self.nest.keys[m.out.uid], x.args
        places = [{keys[i.value] for i in walk(c) if i.op == "index"} for c in (a, b)]
        of_lead = {keys[c.value] if c.op == "index" else None for c in lead}
        last = self.nest.outer[-1]
        if any(c.op not in ("index", "const") for c in lead) or of_lead & {*self.inner, last}:
            return None
        for column, row, axis in ((b, a, x.value.rank - 1), (a, b, x.value.rank - 2)):
            if row.op == "index" and keys[row.value] in self.inner and places[axis - x.value.rank] == {last}:
                return axis if first_column(column) is not None else None
        return None

    def _once(self, value: Expr, shared: dict[object, Expr]) -> Expr:
        """The value with loads that several parts or rows share in variables, so that they are loaded once."""
        if self.split is None and self.rows == 1:
            return value
        places = self.unit.places
        written = {places[m.out.uid].tensor.uid for m in self.nest.members if m.out.uid in places}

        def visit(x: Expr) -> Expr | None:
            differs = self.rows == 1 and depends(x, self.lane)  # rows share the loads of lanes
            if x.op != "at" or x.dtype is not F32 or differs or x.value.uid in written:
                return None
            if x.key() not in shared:
                shared[x.key()] = self.k.let(x)
            return shared[x.key()]

        return rewrite(value, visit)

    def _set(self, m: Dense, part: int, value: Expr) -> None:
        """Put a value into a variable, and store it if it has a place."""
        unit = self.unit
        made = self.registers[m.out.uid, part] = self.k.let(cast(value, m.out.dtype))
        if m.out.uid in unit.scalars:
            unit.registers[m.out.uid] = made
        if m.out.uid in unit.places and m.out.uid not in self.stored:
            self.stored |= {m.out.uid} if part == self.parts * self.rows - 1 else set()
            place = unit.places[m.out.uid]
            self.k.store(place.tensor, place.coords(self._indices(m, part)[: m.out.rank]), made)
