"""States of a loop in memory that is faster than storage buffers, while a dispatch runs its steps.

    local = states                            at the start of each range of steps
    for each step: …                          reads and writes `local`
    states = local                            at the end of the range

A unit that is one invocation has its part of a state in an array of its own, in registers if the driver unrolls loops;
a unit that is a workgroup has it in workgroup memory. Values that only the steps need have no storage buffer at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

from pyruntime.codegen.addressing import PRIVATE, WORKGROUP, local_memory
from pyruntime.ir.dtype import BOOL, I32
from pyruntime.ir.expr import Expr, dim, rewrite, walk
from pyruntime.ir.kernel import For, Leaf, Let, Loops, Stmt, Store, Tensor, While
from pyruntime.ir.statements import nodes, rebuild, statements

from ..printer.loops import Array

MOST = 64  # elements of an array of an invocation; all of its arrays have at most twice as many


@dataclass(slots=True)
class _Part:
    """The part of a tensor that a unit has. coords: by axis, the index that all accesses have, None for an axis of
    which the unit has all elements"""

    tensor: Tensor
    coords: list[Expr | None]

    def local(self, coords: Sequence[Expr]) -> list[Expr]:
        return [c for c, fixed in zip(coords, self.coords, strict=True) if fixed is None]

    @property
    def shape(self) -> list[int]:
        return [d for d, c in zip(self.tensor.shape, self.coords, strict=True) if c is None and isinstance(d, int)]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def with_local_states(kernel: Loops, shared_bytes: int) -> Loops:
    """The procedure with local memory for states. shared_bytes: of workgroup memory, if a unit is a workgroup; else
    0"""
    (units,) = kernel.body
    assert isinstance(units, For)
    place = next(
        (n for n, s in enumerate(units.body) if isinstance(s, While) or isinstance(s, For) and s.kind == "steps"), None
    )
    if place is None or kernel.bases:
        return kernel
    before, steps, after = units.body[:place], units.body[place], units.body[place + 1 :]
    known = {units.var} | {s.var for s in before if isinstance(s, Let) and not s.mutable}
    most, left = (shared_bytes // 4, shared_bytes // 4) if shared_bytes else (MOST, 2 * MOST)
    scratch = {t.uid for t in kernel.scratch}
    local: dict[int, tuple[_Part, Tensor]] = {}
    for t in (*kernel.outputs, *kernel.scratch):
        part = _part_of(t, steps, known)
        if part is not None and part.size <= min(most, left):
            left -= part.size
            local[t.uid] = part, Tensor(tuple(part.shape), t.dtype, Leaf(WORKGROUP if shared_bytes else PRIVATE))
    outside = {x.value.uid for x in nodes([*before, *after]) if x.op == "at"}
    outside |= {s.target.uid for s in statements([*before, *after]) if isinstance(s, Store)}
    gone = {uid for uid in local if uid in scratch and uid not in outside}
    copied = [found for uid, found in local.items() if uid not in gone]
    made = copy(kernel)
    made.scratch = tuple([t for t in kernel.scratch if t.uid not in gone] + [own for _, own in local.values()])
    first = 1 + max(s.var for s in statements(kernel.body) if isinstance(s, (Let, For)))
    body = [
        *before, *_copies(copied, first, True), *_localised([steps], local), *_copies(copied, first, False), *after
    ]  # fmt: skip
    made.body = [For(units.var, units.extent, body, units.kind)]
    return made


def _part_of(t: Tensor, steps: Stmt, known: set[int]) -> _Part | None:
    """The part of a tensor that the steps read and write; None if it is not known, or has no words of 32 bits."""
    loads = [x.args for x in nodes([steps]) if x.op == "at" and x.value is t]
    stores = [s.coords for s in statements([steps]) if isinstance(s, Store) and s.target is t]
    if not loads or not stores or (t.dtype.bits < 32 and t.dtype is not BOOL):
        return None
    fixed: list[Expr | None] = []
    for axis, d in enumerate(t.shape):
        found = {c[axis].key(): c[axis] for c in (*loads, *stores)}
        one = next(iter(found.values()))
        used = _variables(found.values())
        if len(found) == 1 and used <= known:
            fixed.append(one)
        elif isinstance(d, int) and used.isdisjoint(known):
            fixed.append(None)
        else:
            return None
    return _Part(t, fixed)


def _variables(exprs: Iterable[Expr]) -> set[int]:
    """The variables on which expressions depend; -1 for a value in memory."""
    return {x.value if x.op == "var" else -1 for e in exprs for x in walk(e) if x.op in ("var", "at", "range")}


def _copies(local: Sequence[tuple[_Part, Tensor]], first: int, to_local: bool) -> list[Stmt]:
    """Copies of states into local memory, or back. first: the number of the first variable that is free"""
    out: list[Stmt] = []
    for part, own in local:
        variables = [Expr("var", (), I32, first + n) for n in range(own.rank)]
        rest = iter(variables)
        coords = tuple([next(rest) if c is None else c for c in part.coords])
        s: Stmt = Store(part.tensor, coords, own.at(*variables))
        s = Store(own, tuple(variables), part.tensor.at(*coords)) if to_local else s
        for v, d in zip(variables[::-1], own.shape[::-1], strict=True):
            s = For(v.value, dim(d), [s], "vector")
        out.append(s)
        first += own.rank
    return out


def _localised(body: list[Stmt], local: dict[int, tuple[_Part, Tensor]]) -> list[Stmt]:
    """The statements with local memory in place of the tensors that have some."""

    def load(e: Expr) -> Expr | None:
        if e.op != "at" or e.value.uid not in local:
            return None
        part, own = local[e.value.uid]
        return own.at(*part.local(e.args))

    def statement(s: Stmt) -> Stmt:
        made = rebuild(s, lambda e: rewrite(e, load, memo), lambda inner: [statement(x) for x in inner])
        if isinstance(made, Store) and made.target.uid in local:
            part, own = local[made.target.uid]
            return Store(own, tuple(part.local(made.coords)), made.value)
        return made

    memo: dict[int, Expr] = {}
    return [statement(s) for s in body]


def arrays_of(kernel: Loops) -> list[Array]:
    """The arrays of a shader for local memory."""
    space = {t.uid: t.kernel.kind for t in kernel.scratch if isinstance(t.kernel, Leaf)}
    found = enumerate(local_memory(kernel))
    return [Array(f"local{n}", t.dtype, math.prod(t.shape), space[t.uid]) for n, t in found]
