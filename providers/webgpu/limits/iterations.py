"""Counts loop iterations of an invocation, for adapters that stop after a number of them.

Where they depend on symbols, the placement of a kernel uses an estimate, and the Program checks the count in each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from pyruntime.codegen.addressing import local_memory
from pyruntime.codegen.operations import statements
from pyruntime.codegen.step_ranges import as_dispatches, steps_of
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import For, Kernel, Let, Loops, Map, Reduce, Stmt, When, While, root
from pyruntime.ir.shape import AnyDim, Dim, Undecided
from pyruntime.ir.statements import expressions_of

from ..adapter import Adapter
from ..printer.loops import GROUP
from ..schedules import workgroup_procedure, workgroup_rows
from ..schedules.joined_tensors import with_joined_tensors
from ..schedules.local_states import with_local_states
from ..schedules.workgroup_reduction import cooperates
from . import int64_fits
from .integer_ranges import ExpressionRanges, Range, Ranges, of_type

Count = Any  # float | AnyDim
# Most iterations of an invocation in a range of steps. Each takes up to a microsecond, because states are in memory;
# drivers end dispatches of two seconds, and llvmpipe those of 65,535 iterations.
RANGE = 1 << 15
SOFTWARE_RANGE = 1 << 22  # operations of all invocations on adapters that compute on the CPU: 2 to 5 ns each
RANGES = 1 << 16  # each has a parameter block of 256 bytes; longer loops have longer ranges


class _Extents(Protocol):
    def of(self, s: For) -> Count:
        """An upper bound of a loop's extent."""

    def of_dim(self, d: AnyDim) -> Count: ...

    def learn(self, s: Stmt) -> None:
        """Record what a statement declares."""


class _Unbounded(Exception):
    """No bound of the iterations is known."""


def estimated(kernel: Map | Reduce | Loops, ranges: Ranges, adapter: Adapter) -> float:
    """Loop iterations of one invocation, with an estimate for symbols; infinity if unknown."""
    try:
        return float(_count(kernel, adapter, _Estimates(kernel, ranges)))
    except _Unbounded:
        return math.inf


def at_most(kernel: Map | Reduce | Loops, adapter: Adapter) -> AnyDim | None:
    """Loop iterations of one invocation, at most, as a dim; None if no such dim is known."""
    try:
        count = _count(kernel, adapter, _Bounds())
    except (_Unbounded, Undecided):
        return None
    return count if isinstance(count, Dim) else int(count)


def parts(kernel: Kernel, adapter: Adapter) -> list[Kernel]:
    """A whole loop as dispatches of ranges of its steps, with local memory for its states, and with copies before and
    after it if one shader would have too many tensors; other kernels as they are."""
    if not isinstance(kernel, Loops) or kernel.name != "loop":
        return [kernel]
    steps = kernel if steps_of(kernel) is None else _in_ranges(kernel, adapter)
    local = with_local_states(steps, adapter.shared_bytes // 2 if workgroup_procedure.cooperates(kernel) else 0)
    count, limit = buffers(local), adapter.storage_buffers
    return [local] if count <= limit else [*with_joined_tensors(local, limit, count)]


def main_part(kernel: Kernel, adapter: Adapter) -> Kernel:
    """The part that is neither before nor after the others."""
    found = parts(kernel, adapter)
    return next((k for k in found if isinstance(k, Loops) and k.name == "loop"), found[-1])


def buffers(kernel: Kernel) -> int:
    """The number of storage buffers of its shader: one for all tensors that share memory, one for the fault record."""
    local = local_memory(kernel)
    tensors = [*kernel.outputs, *kernel.inputs, *(kernel.scratch if isinstance(kernel, Loops) else ())]
    seen: set[int] = set()
    checks = any(x.op == "checked" for e in expressions_of(kernel) for x in walk(e, seen))
    return len({root(t).uid for t in tensors if t not in local}) + checks


def _in_ranges(kernel: Loops, adapter: Adapter) -> Loops:
    steps = steps_of(kernel)
    assert steps is not None
    shares = workgroup_procedure.cooperates(kernel)
    rounds: AnyDim = 1
    for extents in (_Bounds(), _Estimates(kernel, Ranges())):
        try:
            rounds = sh.maximum(_whole(1 + _rounds(steps.loop.body, extents, shares)), 1)
            break
        except (_Unbounded, Undecided):
            continue
    length: AnyDim = sh.floordiv(RANGE, rounds)
    if adapter.software:
        try:
            work = sh.maximum(statements(steps.loop.body) * steps.units.extent.value, 1)
            length = sh.minimum(length, sh.floordiv(SOFTWARE_RANGE, work))
        except Undecided:  # more factors than a dim may have
            length = 1
    least = sh.maximum(sh.ceildiv(steps.loop.extent.value, RANGES), 1)
    return as_dispatches(kernel, sh.maximum(length, least))


def _whole(count: Count) -> AnyDim:
    return count if isinstance(count, Dim) else int(min(count, RANGE))


def _count(kernel: Map | Reduce | Loops, adapter: Adapter, extents: _Extents) -> Count:
    if isinstance(kernel, Loops):
        body = kernel.body
        if len(body) == 1 and isinstance(body[0], For) and body[0].kind == "parallel":
            extents.learn(body[0])
            body = body[0].body
        if kernel.unit_is_row and workgroup_rows.cooperates(kernel, adapter):
            return _shared(_rounds(body, extents, False))
        return _rounds(body, extents, workgroup_procedure.cooperates(kernel))
    total: Count = 0
    for d in reversed(kernel.extents if isinstance(kernel, Reduce) else ()):
        total = extents.of_dim(d) * (1 + total)
    return _shared(total) if isinstance(kernel, Reduce) and cooperates(kernel, adapter) else total


def _shared(count: Count) -> Count:
    """Of each invocation of a workgroup."""
    return -(-count // GROUP)


def _rounds(body: list[Stmt], extents: _Extents, together: bool) -> Count:
    total: Count = 0
    for s in body:
        extents.learn(s)
        found = workgroup_procedure.shares(s, set()) if together and isinstance(s, For) else []
        if isinstance(s, For):
            counts = [math.prod(extents.of(x) for x in share.loops) for share in found]
            for share, count in zip(found, counts, strict=True):
                total += (count // GROUP + 1) * (1 + _rounds(share.body, extents, False))
            if not found:
                total += extents.of(s) * (1 + _rounds(s.body, extents, together))
        elif isinstance(s, While):
            if s.most is None:
                raise _Unbounded
            total += extents.of_dim(s.most) * (1 + _rounds(s.body, extents, together))
        elif isinstance(s, When):
            sides = [_rounds(side, extents, together) for side in (s.then, s.orelse)]
            total += sh.maximum(*sides) if any(isinstance(side, Dim) for side in sides) else max(sides)
    return total


class _Estimates:
    """Numbers, with an estimate for symbols."""

    def __init__(self, kernel: Map | Reduce | Loops, ranges: Ranges) -> None:
        self.bounds = ExpressionRanges(ranges, kernel, lambda d: Range(sh.estimate(d), sh.estimate(d)))

    def of(self, s: For) -> float:
        high = self.bounds.of(s.extent).high
        return math.inf if high >= of_type(I32).high else max(high, 0)

    def of_dim(self, d: AnyDim) -> float:
        return sh.estimate(d)

    def learn(self, s: Stmt) -> None:
        int64_fits.learn(s, self.bounds)


class _Bounds:
    """Dims."""

    def __init__(self) -> None:
        self._variables: dict[int, AnyDim] = {}  # upper bounds of non-negative variables

    def of(self, s: For) -> AnyDim:
        return sh.maximum(self._high(s.extent), 0)

    def of_dim(self, d: AnyDim) -> AnyDim:
        return d

    def learn(self, s: Stmt) -> None:
        if isinstance(s, For):
            self._variables[s.var] = sh.maximum(self._high(s.extent) - 1, 0)
        elif isinstance(s, Let) and not s.mutable and s.value.dtype is I32:
            try:
                self._variables[s.var] = self._high(s.value)
            except _Unbounded:
                self._variables.pop(s.var, None)

    def _high(self, e: Expr) -> AnyDim:
        """An upper bound of an int32 expression."""
        if e.op in ("const", "dim"):
            found: AnyDim = e.value
            return found
        if e.op == "var" and e.value in self._variables:
            return self._variables[e.value]
        find = _HIGH.get(e.op)
        if find is None:
            raise _Unbounded
        return find(self, *e.args)

    def _low(self, e: Expr) -> AnyDim:
        """A lower bound."""
        if e.op in ("const", "dim"):
            found: AnyDim = e.value
            return found
        if e.op == "var" and e.value in self._variables:
            return 0
        if e.op in ("add", "mul"):
            a, b = map(self._low, e.args)
            if e.op == "add":
                return a + b
            if min(sh.interval(a)[0], sh.interval(b)[0]) >= 0:
                return a * b
        raise _Unbounded

    def add(self, a: Expr, b: Expr) -> AnyDim:
        return self._high(a) + self._high(b)

    def sub(self, a: Expr, b: Expr) -> AnyDim:
        return self._high(a) - self._low(b)

    def mul(self, a: Expr, b: Expr) -> AnyDim:
        if min(sh.interval(self._low(x))[0] for x in (a, b)) < 0:
            raise _Unbounded
        return self._high(a) * self._high(b)

    def div(self, a: Expr, b: Expr) -> AnyDim:
        if b.op != "const" or b.value <= 0:
            raise _Unbounded
        return sh.floordiv(self._high(a), b.value)

    def min(self, a: Expr, b: Expr) -> AnyDim:
        """The smaller of the bounds that are known."""
        known = []
        for x in (a, b):
            try:
                known.append(self._high(x))
            except _Unbounded:
                continue
        if not known:
            raise _Unbounded
        return sh.minimum(*known) if len(known) > 1 else known[0]

    def max(self, a: Expr, b: Expr) -> AnyDim:
        return sh.maximum(self._high(a), self._high(b))

    def select(self, _: Expr, a: Expr, b: Expr) -> AnyDim:
        return sh.maximum(self._high(a), self._high(b))


_HIGH: dict[str, Callable[..., AnyDim]] = {
    "add": _Bounds.add, "sub": _Bounds.sub, "mul": _Bounds.mul, "div": _Bounds.div, "min": _Bounds.min,
    "max": _Bounds.max, "select": _Bounds.select, "guard": _Bounds.select,
}  # fmt: skip
