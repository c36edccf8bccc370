"""Writes the statements of a nest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

from pyruntime.codegen.schedule import LANES, accumulator
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, I64
from pyruntime.ir.expr import Expr, binary, cast, const, dim, rewrite
from pyruntime.ir.kernel import Accum, Map, Reduce, Tensor, Var
from pyruntime.ir.reference import NEUTRAL
from pyruntime.passes.loops.axes import Axis, depends, loads_lanes, over, stores_lanes
from pyruntime.passes.loops.bodies import Dense, expressions
from pyruntime.passes.loops.nests import Key, Nest, is_extreme, phases
from pyruntime.passes.loops.unit import Unit

LARGE = 1 << 12  # elements of a matrix that is packed for the loop
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
        self.parts, self.block, self.lane = 1, const(0, I32), const(0, I32)
        self.split: Key | None = None  # the axis that is split into parts
        self.along = False  # whether the last inner loop is the vector loop
        self.stored: set[int] = set()  # values that are in their places

    def write(self) -> None:
        first = self.nest.members[0]
        if isinstance(first, Reduce) and is_extreme(first):
            self._extreme(first)
            return
        axes = list(self.outer.values())
        across = bool(axes) and self._fits(axes[-1].var)
        inner = list(self.inner.values())
        self.along = bool(inner) and not across and self._fits(inner[-1].var, inside=True)
        with ExitStack() as stack:
            stack.enter_context(over(self.k, axes[:-1] if across else axes, "serial"))
            if across:
                self._enter_lanes(stack, axes[-1])
            self._phases()

    # ── lanes ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fits(self, v: Expr, inside: bool = False) -> bool:
        """Whether all loads and stores follow a variable in steps of one element, or stay. inside: only those of inner
        loops count"""
        made = {m.out.uid for m in self.nest.members}
        for m, phase in phases(self.nest, self.unit.replaced):
            if inside and phase < 0:
                continue
            indices = self._indices(m, 0)
            for e in [m.expr] if inside else expressions(m):
                value = self.unit.expression(e, indices, lambda t: const(0, t.dtype) if t.uid in made else None)
                if not loads_lanes(v, value):
                    return False
            if m.out.uid in self.unit.places and not (inside and isinstance(m, Reduce)):
                place = self.unit.places[m.out.uid]
                if not stores_lanes(v, place.tensor, place.coords(indices[: m.out.rank])):
                    return False
        return True

    def _enter_lanes(self, stack: ExitStack, last: Axis) -> None:
        """Opens the vector loop."""
        k = self.k
        order = phases(self.nest, self.unit.replaced)
        sums = max(Counter(p for m, p in order if isinstance(m, Reduce)).values(), default=0)
        extent = last.extent.value if last.extent.op == "const" and sums and self.unit.lanes else 0
        fitting = [p for p in range(PARTS // max(sums, 1), 1, -1) if extent and extent % (LANES * p) == 0]
        self.parts = fitting[0] if fitting else 1
        if self.parts == 1:
            stack.enter_context(over(k, [last], "vector"))
            return
        self.split = self.nest.outer[-1]
        self.block = stack.enter_context(k.loop(extent // (LANES * self.parts)))
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
                axis = self.outer.get(key) or self.inner[key]
                place = self.block * (LANES * self.parts) + (self.lane + part * LANES)
                out.append(axis.at(place) if key == self.split else axis.index)
        return out

    # ── phases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _phases(self) -> None:
        todo = phases(self.nest, self.unit.replaced)
        while todo:
            m, phase = todo[0]
            if phase < 0:
                todo.pop(0)
                for part in range(self.parts):  # a reduction here has one term
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
                totals |= {(m.out.uid, p): k.var(NEUTRAL[m.op](dtype), dtype) for p in range(self.parts)}
        before = dict(self.registers)
        with over(k, list(self.inner.values()), "vector" if self.along else "serial"):
            shared: dict[object, Expr] = {}
            for m in members:
                for part in range(self.parts):
                    value = self._once(self._value(m, self._packed(m, part), part), shared)
                    if isinstance(m, Reduce):
                        total = totals[m.out.uid, part].get
                        k.emit(Accum(total.value, m.op, cast(value, total.dtype)))
                    else:
                        self._set(m, part, value)
        self.registers = before
        for m in members:
            for part in range(self.parts if isinstance(m, Reduce) else 0):
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
        keys, split = self.nest.keys[m.out.uid], self.split
        if split is None:
            return m.expr
        width, base = LANES * self.parts, self.outer[split].base
        block = self.block if base is None else base / width + self.block  # chunks are multiples of the width

        def visit(x: Expr) -> Expr | None:
            if x.op != "at" or x.value.rank != 2 or x.value.uid in self.unit.inside:
                return None
            if any(c.op != "index" for c in x.args):
                return None
            row, column = (keys[c.value] for c in x.args)
            if column != split or row not in self.inner or sh.estimate(sh.size(x.value.shape)) < LARGE:
                return None
            return self.unit.pack(x.value, width).at(block, x.args[0], self.lane + part * LANES)

        return rewrite(m.expr, visit)

    def _once(self, value: Expr, shared: dict[object, Expr]) -> Expr:
        """The value with loads that all lanes share in variables, so that they are loaded once for all parts."""
        if self.split is None:
            return value
        places = self.unit.places
        written = {places[m.out.uid].tensor.uid for m in self.nest.members if m.out.uid in places}

        def visit(x: Expr) -> Expr | None:
            if x.op != "at" or x.dtype is not F32 or depends(x, self.lane) or x.value.uid in written:
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
            self.stored |= {m.out.uid} if part == self.parts - 1 else set()
            place = unit.places[m.out.uid]
            self.k.store(place.tensor, place.coords(self._indices(m, part)[: m.out.rank]), made)

    def _extreme(self, m: Reduce) -> None:
        """ArgMax or ArgMin: the index of the first (or last) largest or smallest element; a NaN counts as that."""
        k, dtype = self.k, m.expr.dtype
        value = self._value(m, m.expr, 0)
        is_last = m.op.endswith("_last")
        with over(k, list(self.outer.values()), "serial"):
            best, found, n = k.var(0, dtype), k.var(0, I32), k.var(0, I32)
            with over(k, list(self.inner.values()), "serial"):
                x = k.let(value)
                better = binary("gt" if m.op.startswith("argmax") else "lt", x, best.get)
                if is_last:
                    better = better | (x == best.get)
                if dtype.is_float:
                    better = better | (x != x)
                    better = better if is_last else better & (best.get == best.get)
                with k.when((n.get == 0) | better):
                    best.set(x)
                    found.set(n.get)
                n.set(n.get + 1)
            self._set(m, 0, self._finished(m, cast(found.get, I64), 0))
