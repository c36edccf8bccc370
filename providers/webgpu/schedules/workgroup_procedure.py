"""Procedures with one workgroup for each work unit: its invocations share loops with independent iterations.

All invocations execute the other statements alike, so that their variables agree; one of them stores. A barrier follows
each store, and precedes a store that may change values that were read. WGSL requires uniform control flow around
barriers, and treats loads from storage buffers as non-uniform: such loop bounds go through workgroup memory.

Spec: https://www.w3.org/TR/WGSL/#uniformity
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from pyruntime.codegen.loop_ir import LoopCode
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Accum, For, Let, Loops, Set, Stmt, Store
from pyruntime.ir.statements import children, nodes, statements

from ..printer.loops import GROUP, Array, Printer, Shader, prepared

FEW = 64  # work units; more units fill the machine without sharing
LONG = 16  # iterations; shorter loops are not shared
STORAGE = ""  # stands for all buffers, beside the names of arrays in workgroup memory


@dataclass(slots=True)
class Share:
    """Nested independent loops, flattened into one whose iterations the invocations share. Each iteration computes
    `lets`."""

    loops: list[For]
    lets: list[Let]
    body: list[Stmt]


def cooperates(kernel: Loops) -> bool:
    """Whether workgroups should share work units: there are few units, with long independent loops."""
    body, units, first = kernel.body, 1.0, kernel.body[0]
    if len(body) == 1 and isinstance(first, For) and first.kind == "parallel":
        body, units = first.body, sh.estimate(first.extent.value)
    found = [share for s in statements(body) if isinstance(s, For) for share in shares(s, set())]
    return units <= FEW and any(_count(share) >= LONG for share in found)


def _count(share: Share) -> float:
    known = [sh.estimate(s.extent.value) for s in share.loops if s.extent.op in ("const", "dim", "param")]
    total = 1.0
    for n in known:
        total *= n
    return total


def shares(s: For, written: set[int]) -> list[Share]:
    """How a loop is shared; empty if its iterations are not independent. An independent loop that contains only loops
    is flattened with each of them separately. written: buffers that the kernel stores to."""
    if not _independent(s):
        return []
    out: list[Share] = []
    lets: list[Let] = []
    for inner in s.body:
        if isinstance(inner, Let) and not inner.mutable and not _loads(inner.value, written):
            lets.append(inner)
        elif _independent(inner) and not _names(inner.extent) & {s.var, *(x.var for x in lets)}:
            out.append(Share([s, inner], list(lets), inner.body))
        else:
            return [Share([s], [], s.body)]
    return out or [Share([s], [], s.body)]


def _independent(s: Stmt) -> TypeGuard[For]:
    return isinstance(s, For) and s.kind in ("vector", "parallel") and not _changes(s.body)


def _names(e: Expr) -> set[int]:
    return {x.value for x in walk(e) if x.op == "var"}


def _changes(body: list[Stmt]) -> bool:
    """Whether statements change a variable that they do not declare."""
    own = {s.var for s in statements(body) if isinstance(s, Let)}
    return any(isinstance(s, (Set, Accum)) and s.var not in own for s in statements(body))


def _stored(body: Sequence[Stmt]) -> set[str]:
    return {s.target if isinstance(s.target, str) else STORAGE for s in statements(body) if isinstance(s, Store)}


def _memory(body: Sequence[Stmt]) -> set[str]:
    """The memory that statements read."""
    return {x.value if isinstance(x.value, str) else STORAGE for x in nodes(body) if x.op in ("load", "load4", "word")}


def _stores(body: list[Stmt]) -> bool:
    return any(isinstance(s, Store) for s in statements(body))


def _loads(e: Expr, buffers: set[int]) -> bool:
    return any(x.op == "load" and x.value in buffers for x in walk(e))


def print_procedure(code: LoopCode, f16: bool, arrays: Sequence[Array] = ()) -> Shader:
    memory = "".join([x.declared() for x in arrays])
    return _ProcedurePrinter(prepared(code), False, f16).together("var<workgroup> agreed: i32;\n" + memory)


class _ProcedurePrinter(Printer):
    def __init__(self, code: LoopCode, linear: bool, f16: bool) -> None:
        super().__init__(code, linear, f16)
        self.written = {s.target for s in statements(code.body) if isinstance(s, Store)}
        self.alone = False  # whether in a shared iteration, which is printed as in any other kernel
        self.agrees = False  # whether the statement has stores, so that all invocations must take the same path
        self.loaded = _memory(code.body)
        self.read: set[str] = set()  # memory that was read after the last barrier that orders it

    def statement(self, s: Stmt) -> None:
        agrees = self.agrees = not self.alone and any(_stores(inner) for inner in children(s))
        if isinstance(s, Store) and not self.alone:
            self._barrier(_stored([s]) & self.read)
            self.lines.open("if (lane == 0u)")
            super().statement(s)
            self.lines.close()
            self.read |= _memory([s])
            self._barrier(_stored([s]))
        elif agrees and isinstance(s, For) and (found := shares(s, self.written)):
            for share in found:
                self._barrier(_stored(share.body) & self.read)
                self._share(share)
                self.read |= _memory(share.loops)
                self._barrier(_stored(share.body))
        else:
            super().statement(s)
            if not self.alone:
                self.read |= self.loaded if agrees else _memory([s])

    def inner(self, body: list[Stmt]) -> None:
        if not self.alone:
            self.read |= self.loaded
        super().inner(body)

    def extent(self, e: Expr) -> str:
        text = super().extent(e)
        return self._agreed(text) if self.agrees and any(x.op in ("var", "load") for x in walk(e)) else text

    def condition(self, e: Expr, holds: bool) -> str:
        if not self.agrees:
            return super().condition(e, holds)
        return f"{self._agreed(f'select(0, 1, {self.values.root(e)[0]})')} {'!=' if holds else '=='} 0"

    def _share(self, share: Share) -> None:
        lines = self.lines
        extents = [self.values.named(self.values.root(s.extent)[0]) for s in share.loops[:1]]
        outer = share.loops[0]
        self.alone = True
        if len(share.loops) == 1:
            lines.open(f"for (var v{outer.var} = i32(lane); v{outer.var} < {extents[0]}; v{outer.var} += {GROUP})")
        else:
            inner = share.loops[1]
            extents.append(self.values.named(self.values.root(inner.extent)[0]))
            at = self.values.fresh()
            lines.open(f"for (var {at} = i32(lane); {at} < {extents[0]} * {extents[1]}; {at} += {GROUP})")
            lines.add(f"let v{outer.var} = {at} / {extents[1]};")
            lines.add(f"let v{inner.var} = {at} % {extents[1]};")
        self.block([*share.lets, *share.body])
        lines.close()
        self.alone = False

    def _agreed(self, text: str) -> str:
        """A value that WGSL recognises as uniform."""
        self.lines.add(f"if (lane == 0u) {{ agreed = {text}; }}")
        name = self.values.fresh()
        self.lines.add(f"let {name} = workgroupUniformLoad(&agreed);")
        return name

    def _barrier(self, memory: set[str]) -> None:
        """Order accesses of memory, and those of all memory of the same address space."""
        for name, is_local in (("storageBarrier", False), ("workgroupBarrier", True)):
            if any((m != STORAGE) == is_local for m in memory):
                self.lines.add(f"{name}();")
                self.read = {m for m in self.read if (m != STORAGE) != is_local}
