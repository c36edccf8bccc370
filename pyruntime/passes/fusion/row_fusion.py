"""Row fusion: reductions over rows and the maps between them become one procedure that keeps a row in cache.

Softmax, LayerNormalization and the like are chains of `Reduce` and `Map` over the same outer axes. Fused, they read
each row from memory once and write it once. The procedure recomputes cheap intermediate maps where it reads them, and
stores the other ones in the memory of the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyruntime.codegen.addressing import accesses
from pyruntime.codegen.provider import RowLimits
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import readers_of
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, binary, cast, const, dim, rewrite, walk
from pyruntime.ir.kernel import (
    Accum,
    Alias,
    Block,
    For,
    Kernel,
    Let,
    Loops,
    Map,
    Reduce,
    Stmt,
    Store,
    Tensor,
    tensors_in,
)
from pyruntime.ir.reference import NEUTRAL
from pyruntime.ir.shape import Shape

CHEAP = 6  # operations: a map with at most this many, none of them COSTLY, is recomputed instead of stored
RECOMPUTED = 64  # nodes of a map with the recomputed maps that it reads; a larger one is stored
COSTLY = frozenset("exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow div sqrt guard".split())
REDUCTIONS = ("sum", "max", "min", "prod")


def fuse_rows(block: Block, outputs: Iterable[Tensor], limits: RowLimits) -> None:
    """Fuse chains in this block and its inner blocks. outputs: the tensors that leave the Program."""
    _block(block, readers_of(block, outputs), limits)


def _block(block: Block, readers: Counter[int], limits: RowLimits) -> None:
    done: set[int] = set()
    groups: list[_Group] = []  # keeps the kernels alive, so that their ids stay unique
    order = _Order(block)
    for n, kernel in enumerate(block.kernels):
        for inner in kernel.blocks:
            _block(inner, readers, limits)
        if isinstance(kernel, Reduce) and id(kernel) not in done and _starts(kernel):
            group = _grow(order, n, kernel, _Bounds(readers, done, limits))
            if group is not None:
                done.update(id(k) for k in group.members)
                groups.append(group)
                order.replace(group)
    block.kernels = [k for k in block.kernels if id(k) not in done or isinstance(k, Loops)]


def _starts(kernel: Reduce) -> bool:
    return kernel.op in REDUCTIONS and kernel.expr.dtype is F32 and kernel.out.dtype is F32 and bool(kernel.extents)


def _extents(kernel: Map | Reduce) -> Shape:
    """Extents of all loops of a kernel."""
    return kernel.out.shape if isinstance(kernel, Map) else (*kernel.out.shape, *kernel.extents)


def _long(shape: Shape) -> list[object]:
    """The extents other than 1."""
    return [d for d in shape if d != 1]


@dataclass(slots=True)
class _Group:
    """Kernels to fuse.

    outer, row: extents of the outer axes and of the row's axes, without those of extent 1; each member's axes of other
        extents are these, in this order
    members: the kernels, in order
    made: by uid, the outputs of the members (an alias's entry is its base)
    recomputed: by uid, the operations of maps that are computed again where they are read, with those that they read
    """

    outer: Shape
    row: Shape
    members: list[Kernel] = field(default_factory=list)
    made: dict[int, Tensor] = field(default_factory=dict)
    recomputed: dict[int, int] = field(default_factory=dict)

    def add(self, kernel: Kernel) -> None:
        self.members.append(kernel)
        if isinstance(kernel, Map) and _cheap(kernel.expr):
            read = {self.made[t.uid].uid for t in kernel.inputs if t.uid in self.made}
            count = len(walk(kernel.expr)) + sum(self.recomputed.get(uid, 0) for uid in read)
            if count <= RECOMPUTED:
                self.recomputed[kernel.out.uid] = count
        base = self.made[kernel.base.uid] if isinstance(kernel, Alias) else kernel.outputs[0]
        self.made[kernel.outputs[0].uid] = base

    def takes(self, kernel: Kernel) -> bool:
        """Whether a kernel that reads the group may join it."""
        if isinstance(kernel, Alias):
            return _long(kernel.out.shape) == _long(kernel.base.shape)
        if not isinstance(kernel, (Map, Reduce)) or kernel.out.dtype is not F32:
            return False
        if isinstance(kernel, Reduce) and not (_starts(kernel) and _long(kernel.out.shape) == [*self.outer]):
            return False
        if _long(_extents(kernel)) != [*self.outer, *self.row]:
            return False
        more = getattr(kernel, "epilogue", None)
        loads = [x for e in (kernel.expr, more) if e is not None for x in walk(e) if x.op == "at"]
        return all(self._aligned(x, kernel) for x in loads if x.value.uid in self.made)

    def _aligned(self, at: Expr, kernel: Map | Reduce) -> bool:
        """Whether a load of a member's result reads the row that is being computed."""
        order = {n: i for i, n in enumerate(n for n, d in enumerate(_extents(kernel)) if d != 1)}
        is_row = isinstance(self.made[at.value.uid].kernel, Map)
        expected = list(range(len(self.outer) + (len(self.row) if is_row else 0)))
        coords = [c for c, d in zip(at.args, at.value.shape, strict=True) if d != 1]
        return [order.get(c.value) if c.op == "index" else None for c in coords] == expected


class _Order:
    """The kernels of a block; of each the uids of what it reads, and by uid of a result, its place."""

    def __init__(self, block: Block) -> None:
        self.kernels = block.kernels
        self.read = [{t.uid for t in k.inputs} for k in block.kernels]
        self.places = {t.uid: n for n, k in enumerate(block.kernels) for t in k.outputs}

    def replace(self, group: _Group) -> None:
        """Replace the last member by the procedure."""
        place = max([self.places[k.outputs[0].uid] for k in group.members])
        procedure = self.kernels[place] = _Writer(group).loops()
        self.read[place] = {t.uid for t in procedure.inputs}


class _Bounds(NamedTuple):
    """The limits of groups. readers: number of readers by uid of a tensor; done: ids of kernels in other groups."""

    readers: Counter[int]
    done: set[int]
    limits: RowLimits


def _grow(order: _Order, start: int, first: Reduce, bounds: _Bounds) -> _Group | None:
    """The largest group around this reduction that has one result; None if there is none. It includes maps before the
    reduction that nothing else reads, so that a mask added to attention scores is not written to memory."""
    places = sorted([order.places.get(uid, start) for uid in order.read[start]])
    before = [order.kernels[n] for n in places if n < start]
    lead = [k for k in before if isinstance(k, Map) and id(k) not in bounds.done]
    with_lead = _collect(lead, order, start, bounds) if lead else None
    return with_lead or _collect([], order, start, bounds)


def _collect(lead: Sequence[Map], order: _Order, start: int, bounds: _Bounds) -> _Group | None:
    """The group that starts with those maps of `lead` that may join, and with the reduction at this place."""
    first = order.kernels[start]
    assert isinstance(first, Reduce)
    group = _Group(tuple(_long(first.out.shape)), tuple(_long(first.extents)))
    for k in lead:
        if _cheap(k.expr) and group.takes(k) and _is_contiguous(k):
            group.add(k)
    if sh.estimate(sh.size(group.row)) > bounds.limits.elements:
        return None
    if not group.row or not group.takes(first) or (lead and not group.members):
        return None
    group.add(first)
    best = 0
    for n in range(start + 1, len(order.kernels)):
        if order.read[n].isdisjoint(group.made):
            continue
        kernel = order.kernels[n]
        if id(kernel) in bounds.done or not group.takes(kernel):
            break
        group.add(kernel)
        if isinstance(kernel, Map) and _closed(group, bounds):
            best = len(group.members)
    if not best:
        return None
    group.members = group.members[:best]
    return group


def _is_contiguous(kernel: Map) -> bool:
    """Whether a map reads along its last axis, so that recomputing it costs no more than reading its inputs."""
    found, raw = accesses(kernel.expr)
    last = ("index", max((n for n, d in enumerate(kernel.out.shape) if d != 1), default=0))
    return not raw and all(c.get(last, 0) in (0, 1) for c in found)


def _closed(group: _Group, bounds: _Bounds) -> bool:
    """Whether other kernels read only the last member's result, the result's memory suffices for stored maps, and the
    number of tensors is within the limit."""
    inside: Counter[int] = Counter()
    for k in group.members:
        inside.update({t.uid for t in k.inputs})
    alone = all(inside[k.outputs[0].uid] == bounds.readers[k.outputs[0].uid] for k in group.members[:-1])
    tensors = 1 + len(inside.keys() - group.made.keys())
    return alone and tensors <= bounds.limits.tensors and _one_stored_map(group)


def _one_stored_map(group: _Group) -> bool:
    """Whether at most one stored map is live at a time: they share the memory of the result."""
    depends_on: dict[int, set[int]] = {}  # uid -> the stored maps that a load of it reads
    stored = -1
    for k in group.members:
        read = set[int]().union(*[depends_on.get(t.uid, set()) for t in k.inputs])
        if not read <= {stored}:
            return False
        out = k.outputs[0].uid
        if isinstance(k, Map) and (k is group.members[-1] or k.out.uid not in group.recomputed):
            stored, depends_on[out] = out, {out}
        else:
            depends_on[out] = set() if isinstance(k, Reduce) else read
    return True


class _Writer:
    """Writes the procedure of a group."""

    def __init__(self, group: _Group) -> None:
        self.group = group
        self.members = [k for k in group.members if isinstance(k, (Map, Reduce))]
        self.out = self.members[-1].outputs[0]
        self.values: dict[int, Expr] = {}  # by uid of a tensor: its reduced value, or the expression of a cheap map
        self.stored: set[int] = set()
        self.variables = 0
        self.body: list[Stmt] = []

    def new(self, dtype: object = I32) -> Expr:
        self.variables += 1
        return Expr("var", (), dtype, self.variables - 1)  # type: ignore[arg-type]

    def loops(self) -> Loops:
        unit = self.new()
        self.outer_indices = self._decode(unit)
        pending: Map | None = None
        for kernel in self.members:
            if isinstance(kernel, Reduce):
                self._reduce(kernel, pending)
                pending = None
                continue
            if pending is not None:
                self._store(pending)
            pending = None
            if kernel is not self.members[-1] and kernel.out.uid in self.group.recomputed:
                self.values[kernel.out.uid] = kernel.expr
            else:
                pending = kernel
        if pending is not None:
            self._store(pending)
        extent = dim(sh.size(self.group.outer))
        made = Loops("rows", (), (), [For(unit.value, extent, self.body, "parallel")], unit_is_row=True)
        made.replaces(self.members[-1], (self.out,))
        self.out.kernel = made
        made.args = self._arguments()
        return made

    def _arguments(self) -> tuple[Tensor, ...]:
        inside = self.group.made
        exprs = [e for k in self.members for e in (k.expr, getattr(k, "epilogue", None)) if e is not None]
        return tuple([t for t in tensors_in(*exprs) if t.uid not in inside])

    def _decode(self, unit: Expr) -> list[Expr]:
        """The outer indices of a row, from the number of the work unit."""
        outer = self.group.outer
        place: list[Expr] = [const(0, I32)] * len(outer)
        rest = unit
        for n in range(len(outer) - 1, 0, -1):
            v, q = self.new(), self.new()
            extent = dim(outer[n])
            self.body += [Let(v.value, binary("rem", rest, extent)), Let(q.value, binary("div", rest, extent))]
            place[n], rest = v, q
        return [rest, *place[1:]] if outer else []

    def _indices(self, extents: Shape, row: Sequence[Expr]) -> list[Expr]:
        """The index along each axis of a member (or of the result)."""
        rest = iter([*self.outer_indices, *row])
        return [const(0, I32) if d == 1 else next(rest) for d in extents]

    def _expression(self, e: Expr, indices: list[Expr], row: Sequence[Expr], registers: dict[int, Expr]) -> Expr:
        """The expression with variables for indices, and with the values that the procedure has computed."""

        def visit(x: Expr) -> Expr | None:
            if x.op == "index":
                return indices[x.value]
            if x.op == "at" and x.value.uid in self.group.made:
                t = self.group.made[x.value.uid]
                if t.uid in registers:
                    return registers[t.uid]
                if t.uid in self.stored:
                    return self.out.at(*self._indices(self.out.shape, row))
                value = self.values[t.uid]
                if isinstance(t.kernel, Reduce):
                    return value
                # computed once: a chain of maps that read their operand twice would double with each of them
                registers[t.uid] = self._expression(value, self._indices(t.shape, row), row, registers)
                return registers[t.uid]
            return None

        return rewrite(e, visit)

    def _nest(self, row: Sequence[Expr], body: list[Stmt]) -> None:
        kind = "vector"
        for v, extent in zip(reversed(row), reversed(self.group.row), strict=True):
            body = [For(v.value, dim(extent), body, kind)]
            kind = "serial"
        self.body += body

    def _store(self, kernel: Map) -> None:
        row = [self.new() for _ in self.group.row]
        value = self._expression(kernel.expr, self._indices(kernel.out.shape, row), row, {})
        self._nest(row, [Store(self.out, tuple(self._indices(self.out.shape, row)), value)])
        self.stored.add(kernel.out.uid)

    def _reduce(self, kernel: Reduce, pending: Map | None) -> None:
        """One pass over the row. A pending map is computed and stored in the same pass."""
        acc = self.new(F32)
        row = [self.new() for _ in self.group.row]
        body: list[Stmt] = []
        registers: dict[int, Expr] = {}
        if pending is not None:
            value = self.new(F32)
            expr = self._expression(pending.expr, self._indices(pending.out.shape, row), row, {})
            body += [Let(value.value, expr), Store(self.out, tuple(self._indices(self.out.shape, row)), value)]
            registers[pending.out.uid] = value
            self.stored.add(pending.out.uid)
        body.append(
            Accum(
                acc.value,
                kernel.op,
                self._expression(kernel.expr, self._indices(_extents(kernel), row), row, registers),
            )
        )
        self.body.append(Let(acc.value, const(NEUTRAL[kernel.op](F32), F32), mutable=True))
        self._nest(row, body)
        done = self.new(F32)
        result = acc
        if kernel.epilogue is not None:
            e = self._expression(kernel.epilogue, self._indices(kernel.out.shape, []), [], {})
            result = rewrite(e, lambda x: acc if x.op == "arg" else None)
        self.body.append(Let(done.value, cast(result, F32)))
        self.values[kernel.out.uid] = done


def _cheap(e: Expr) -> bool:
    nodes = walk(e)
    return sum(1 for x in nodes if x.args and x.dtype is F32 and x.op != "at") <= CHEAP and not any(
        x.op in COSTLY for x in nodes
    )
