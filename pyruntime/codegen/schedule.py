"""Lowers kernels to the loop form: merges axes where every access allows it, and turns coordinates into addresses.

There are two schedules. "cpu": the outer axes form work units, the innermost axis is a vector loop. "gpu": every output
element is a work unit. Code depends on structure alone (rank after merging, and which strides are 0, 1 or other), never
on extents, so that equal kernels of a model share one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.addressing import Indexing, Lowering, accesses, variable, without_units
from pyruntime.codegen.loop_ir import Lowered
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BF16, F16, F32, I32, I64, U32, DType
from pyruntime.ir.expr import Expr, affine, binary, cast, const, dim, index, rewrite, select, uses_index, walk
from pyruntime.ir.kernel import Accum, Block, Call, For, Kernel, Let, Loops, Map, Reduce, Set, Stmt, Store, When, While
from pyruntime.ir.reference import NEUTRAL
from pyruntime.ir.shape import AnyDim

LANES = 4  # a shorter reduction does not use SIMD lanes
CHUNK = 4096  # elements of a work unit of a one-dimensional map: 16 kB of float32, half of a first-level cache


def lower(kernel: Kernel, schedule: str = "cpu") -> Lowered:
    """The loop form of a Map, Reduce or Loops (or of a Call's definition)."""
    if isinstance(kernel, Call):
        assert not isinstance(kernel.meaning, Block)
        return lower(kernel.meaning, schedule)
    work = Lowering(kernel)
    if isinstance(kernel, Loops):
        return work.loops(kernel)
    assert isinstance(kernel, (Map, Reduce))
    return Nest(work, kernel, schedule).lowered()


# ── maps and reductions ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Group:
    """Adjacent axes merged into one. extent: their product; axis: the innermost one, whose strides are the group's."""

    extent: AnyDim
    axis: int


class Nest(Indexing):
    """The loops of one Map or Reduce."""

    def __init__(self, work: Lowering, kernel: Map | Reduce, schedule: str) -> None:
        super().__init__(work)
        self.kernel = kernel
        self.gpu = schedule == "gpu"
        self.rank = len(kernel.out.shape)
        self.extents = (*kernel.out.shape, *(kernel.extents if isinstance(kernel, Reduce) else ()))
        self.expr = without_units(kernel.expr, self.extents)
        self.accesses, self.raw = accesses(self.expr)
        # axes that the epilogue distinguishes are not merged
        if isinstance(kernel, Reduce) and kernel.epilogue is not None:
            more, raw = accesses(kernel.epilogue)
            self.accesses, self.raw = [*self.accesses, *more], self.raw | raw
        store = {("index", n): s for n, s in enumerate(sh.strides(kernel.out.shape))}
        self.outer = self._merge(range(self.rank), [*self.accesses, store])
        self.inner = self._merge(range(self.rank, len(self.extents)), self.accesses)
        self.store = store

    def _merge(self, axes: range, accesses: Sequence[dict[Any, AnyDim]]) -> list[Group]:
        groups: list[Group] = []
        for n in axes:
            extent = self.extents[n]
            if extent == 1:
                continue
            if groups and self._mergeable(groups[-1].axis, n, accesses):
                groups[-1] = Group(groups[-1].extent * extent, n)
            else:
                groups.append(Group(extent, n))
        return groups

    def _mergeable(self, a: int, b: int, accesses: Sequence[dict[Any, AnyDim]]) -> bool:
        if a in self.raw or b in self.raw:
            return False
        extent = self.extents[b]
        return all(c.get(("index", a), 0) == c.get(("index", b), 0) * extent for c in accesses)

    # ── schedules ──

    def lowered(self) -> Lowered:
        if isinstance(self.kernel, Map):
            return self._map()
        return self._reduce(self.kernel)

    def decode(self, groups: Sequence[Group], unit: Expr) -> list[Stmt]:
        """Statements that compute the variables of the groups from the number of a work unit."""
        out: list[Stmt] = []
        rest = unit
        for g in reversed(groups[1:]):
            extent = self.work.number(g.extent)
            self.index_of[g.axis] = [self.work.let(binary("rem", rest, extent), out)]
            rest = self.work.let(binary("div", rest, extent), out)
        for g in groups[:1]:
            self.index_of[g.axis] = [self.work.let(rest, out)]
        return out

    def parallel(self, unit: Expr, groups: Sequence[Group], body: list[Stmt]) -> Lowered:
        """The code whose work units, numbered by `unit`, are the elements of these groups."""
        return self._parallel(unit, sh.size([g.extent for g in groups]), body)

    def _parallel(self, unit: Expr, work: AnyDim, body: list[Stmt]) -> Lowered:
        return self.work.finish([For(unit.value, self.work.number(work), body, "parallel")], work)

    def _write(self, value: Expr) -> Store:
        out = self.kernel.out
        return Store(0, (self.address(out, [index(n) for n in range(self.rank)]),), cast(value, out.dtype))

    def _map(self) -> Lowered:
        unit = self.work.new()
        groups = self.outer
        if self.gpu or not groups:
            body = self.decode(groups, unit)
            return self.parallel(unit, groups, [*body, self._write(self.load(self.expr))])
        inner = groups[-1]
        if len(groups) == 1:
            low, high, before, work = self._chunk(unit, inner.extent)
        elif len(groups) > 2 and _is_short(inner.extent):
            return self._rows_of_few(unit, groups)
        else:
            before = self.decode(groups[:-1], unit)
            low, high = const(0, I32), self.work.number(inner.extent)
            work = sh.size([g.extent for g in groups[:-1]])
        return self._parallel(unit, work, [*before, *self._pieces(inner, low, high)])

    def _rows_of_few(self, unit: Expr, groups: list[Group]) -> Lowered:
        """If the innermost axis is short, a work unit also loops over the next axis: decoding its number takes
        divisions."""
        body = self.decode(groups[:-2], unit)
        row, inner, zero = self.work.new(), groups[-1], const(0, I32)
        self.index_of[groups[-2].axis] = [row]
        pieces = self._pieces(inner, zero, self.work.number(inner.extent))
        loop = For(row.value, self.work.number(groups[-2].extent), pieces, "serial")
        return self.parallel(unit, groups[:-2], [*body, loop])

    def _chunk(self, unit: Expr, extent: AnyDim) -> tuple[Expr, Expr, list[Stmt], AnyDim]:
        low, high = self.work.new(), self.work.new()
        start = binary("mul", unit, self.work.number(CHUNK))
        stop = binary("min", binary("add", low, self.work.number(CHUNK)), self.work.number(extent))
        return low, high, [Let(low.value, start), Let(high.value, stop)], sh.ceildiv(extent, CHUNK)

    def _pieces(self, inner: Group, low: Expr, high: Expr) -> list[Stmt]:
        """The vector loop over [low, high), split where a guard of the expression changes."""
        conditions = _guards_along(self.expr, inner.axis)
        points = _change_points(conditions, inner.axis)
        work = self.work
        if not conditions or points is None:
            return [self._vector(inner, low, binary("sub", high, low), self.expr)]
        at, start, stop = work.new(), work.new(), work.new()
        ends = high
        for p in points:
            p = self.load(p)
            ends = binary("min", ends, select(binary("gt", p, start), p, high))
        self.index_of[inner.axis] = [start]
        flags: dict[Any, Expr] = {}
        lets: list[Stmt] = [Let(start.value, at), Let(stop.value, ends)]
        for c in conditions:
            if c.key() not in flags:
                flags[c.key()] = work.let(self.load(c), lets)
        held = rewrite(self.expr, lambda e: _hold(e, flags))
        loop = self._vector(inner, start, binary("sub", stop, start), held)
        body = [*lets, loop, Set(at.value, stop)]
        return [Let(at.value, low, mutable=True), While(binary("lt", at, high), body)]

    def _vector(self, inner: Group, low: Expr, count: Expr, e: Expr) -> For:
        j = self.work.new()
        self.vector = j
        self.index_of[inner.axis] = [j] if low.op == "const" and low.value == 0 else [low, j]
        return For(j.value, count, [self._write(self.load(e))], "vector")

    # ── reductions ──

    def _reduce(self, kernel: Reduce) -> Lowered:
        unit = self.work.new()
        along = not self.gpu and self._unit_stride(self.inner)
        across = not self.gpu and not kernel.op.startswith("arg") and self._in_lanes(self.outer)
        if along and across:
            along = not _is_short(self.inner[-1].extent)
            across = not along
        outer = self.outer[:-1] if across else self.outer
        body = self.decode(outer, unit)
        if across:
            g = self.outer[-1]
            j = self.work.new()
            self.vector = j
            self.index_of[g.axis] = [j]
            body.append(For(j.value, self.work.number(g.extent), self._accumulate(kernel, along=False), "vector"))
        else:
            body += self._accumulate(kernel, along)
        return self.parallel(unit, outer, body)

    def _unit_stride(self, groups: list[Group]) -> bool:
        """Whether some access follows the last of these groups contiguously, and none irregularly."""
        if not groups or groups[-1].axis in self.raw:
            return False
        strides = [c.get(("index", groups[-1].axis), 0) for c in self.accesses]
        return any(s == 1 for s in strides) and all(isinstance(s, int) and s in (0, 1) for s in strides)

    def _in_lanes(self, groups: list[Group]) -> bool:
        """Whether neighbours along the last of these groups read adjacent elements, or every second one. Guards of
        windows may differ between neighbours."""
        if not groups:
            return False
        axis = groups[-1].axis
        strides = [c.get(("index", axis), 0) for c in self.accesses]
        conditions = _guards_along(self.expr, axis)
        if axis in self.raw and not all(_is_stepwise(x, axis) for c in conditions for x in walk(c)):
            return False
        return any(s in (1, 2) for s in strides) and all(isinstance(s, int) and s in (0, 1, 2) for s in strides)

    def _accumulate(self, kernel: Reduce, along: bool) -> list[Stmt]:
        if kernel.op.startswith("arg"):
            return self._extreme(kernel)
        dtype = accumulator(kernel.expr.dtype, kernel.op)
        body: list[Stmt] = []
        acc = self.work.let(const(NEUTRAL[kernel.op](dtype), dtype), body, mutable=True)
        loops = self.loops()
        if along:
            self.vector = loops[-1]
        body += self.nested(
            loops, [Accum(acc.value, kernel.op, cast(self.load(self.expr), dtype))], "vector" if along else "serial"
        )
        return [*body, self.finish(kernel, acc)]

    def loops(self) -> list[Expr]:
        """New variables of the loops over the reduction axes."""
        loops = [self.work.new() for _ in self.inner]
        self.index_of |= {g.axis: [v] for v, g in zip(loops, self.inner, strict=True)}
        return loops

    def nested(self, loops: list[Expr], body: list[Stmt], kind: str = "serial", width: int = 1) -> list[Stmt]:
        """The body in the loops over the reduction axes. kind, width: of the innermost loop, and the elements of each
        of its iterations"""
        for v, g in zip(reversed(loops), reversed(self.inner), strict=True):
            body = [For(v.value, self.work.number(sh.ceildiv(g.extent, width)), body, kind)]
            kind, width = "serial", 1
        return body

    def finish(self, kernel: Reduce, acc: Expr) -> Store:
        if kernel.epilogue is None:
            return self._write(acc)
        held = rewrite(kernel.epilogue, lambda e: cast(acc, kernel.expr.dtype) if e.op == "arg" else None)
        return self._write(self.load(held))

    def _extreme(self, kernel: Reduce) -> list[Stmt]:
        """Statements for argmin and argmax. A NaN beats every number, and the first NaN stays if the first element
        counts."""
        work, dtype = self.work, kernel.expr.dtype
        best, found, n = work.new(dtype), work.new(I64), work.new(I64)
        loops = self.loops()
        x = work.new(dtype)
        better = binary("gt" if kernel.op.startswith("argmax") else "lt", x, best)
        last = kernel.op.endswith("_last")
        if last:
            better = binary("or", better, binary("eq", x, best))
        if dtype.is_float:
            better = binary("or", better, binary("ne", x, x))
            better = better if last else binary("and", binary("eq", best, best), better)
        first = binary("eq", n, const(0, I64))
        one = const(1, I64)
        body: list[Stmt] = [
            Let(x.value, self.load(self.expr)),
            When(binary("or", first, better), [Set(best.value, x), Set(found.value, n)], []),
            Set(n.value, binary("add", n, one)),
        ]
        zero = const(0, I64)
        start = [Let(v.value, z, mutable=True) for v, z in ((best, const(0, dtype)), (found, zero), (n, zero))]
        return [*start, *self.nested(loops, body), self._write(found)]


def accumulator(dtype: DType, op: str) -> DType:
    """The type in which to accumulate: float32 for half floats, 32 bits for narrow integers."""
    if dtype in (F16, BF16):
        return F32
    if dtype.is_int and dtype.size < 4 and op in ("sum", "prod"):
        return I32 if dtype.kind == "i" else U32
    return dtype


def _is_short(extent: AnyDim) -> bool:
    """Whether an axis surely has fewer elements than a vector."""
    return isinstance(extent, int) and extent < LANES


def _guards_along(e: Expr, axis: int) -> list[Expr]:
    """Conditions of guards that depend on the index of an axis."""
    return [x.args[0] for x in walk(e) if x.op == "guard" and uses_index(x.args[0], axis)]


def _change_points(conditions: Sequence[Expr], axis: int) -> list[Expr] | None:
    """The indices along an axis at which comparisons in these conditions may change; None if they cannot be
    computed."""
    if not all(_is_stepwise(x, axis) for c in conditions for x in walk(c)):
        return None
    points: dict[Any, Expr] = {}
    for x in (x for c in conditions for x in walk(c) if x.op in _STEPS and uses_index(x, axis)):
        changes = _changes(x, axis)
        if changes is None:
            return None
        points |= {p.key(): p for p in changes}
    return list(points.values()) if len(points) <= 12 else None


def _is_stepwise(x: Expr, axis: int) -> bool:
    """Whether comparisons determine where a part of a condition changes: it is a comparison, a combination of
    comparisons, an int32, or a load that does not depend on the axis."""
    if x.op == "at":
        return not uses_index(x, axis)
    return x.op in ("and", "or", "not") or x.op in _STEPS or x.dtype is I32


def _changes(comparison: Expr, axis: int) -> list[Expr] | None:
    """Return the indices along an axis at which the result of an int32 comparison changes. None unless the difference
    of its sides is the index, or minus the index, plus terms without it."""
    left, right = comparison.args
    form = affine(binary("sub", left, right)) if left.dtype is I32 else None
    slope = form[1].get(("index", axis)) if form else None
    if form is None or slope not in (1, -1):
        return None
    rest = _linear(-slope * form[0], {k: -slope * v for k, v in form[1].items()}, axis)
    return [binary("add", rest, shift) for shift in _STEPS[comparison.op][0 if slope == 1 else 1]]


# for f = ±index + rest compared with 0: the indices where the comparison changes, relative to the index with f = 0
_STEPS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "lt": ((0,), (1,)), "ge": ((0,), (1,)), "le": ((1,), (0,)), "gt": ((1,), (0,)),
    "eq": ((0, 1), (0, 1)), "ne": ((0, 1), (0, 1)),
}  # fmt: skip


def _linear(base: AnyDim, coefficients: dict[Any, AnyDim], axis: int) -> Expr:
    out = dim(base)
    for k, c in coefficients.items():
        if k != ("index", axis):
            out = binary("add", out, binary("mul", variable(k), dim(c)))
    return out


def _hold(e: Expr, flags: dict[Any, Expr]) -> Expr | None:
    if e.op == "guard" and e.args[0].key() in flags:
        return Expr("guard", (flags[e.args[0].key()], e.args[1], e.args[2]), e.dtype)
    return None
