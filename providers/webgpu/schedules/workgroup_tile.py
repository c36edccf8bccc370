"""Contractions through workgroup memory: a workgroup computes 32 x 32 sums, and loads each factor once for all.

In each turn, for DEPTH steps of the sum, the 64 invocations load a panel of each factor into workgroup memory; then
each invocation adds its 4 x 4 products. In the loop form, buffers that are named by text lie in workgroup memory,
`invocation` is the number of the invocation in its workgroup, and `barrier` waits for all of them."""

from __future__ import annotations

from dataclasses import replace

from pyruntime.codegen.addressing import split
from pyruntime.codegen.loop_ir import Lowered
from pyruntime.codegen.schedule import Group, Nest
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32
from pyruntime.ir.expr import Expr, binary, cast, const, guard
from pyruntime.ir.kernel import For, Let, Reduce, Set, Stmt, Store
from pyruntime.ir.reference import NEUTRAL
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from ..printer.loops import GROUP, Array
from .register_tile import Side, Tile, contraction

NAME = "workgroup_32"  # of this schedule in codegen/choices.py
BLOCK = 32  # sums along each side of the block
EDGE = 8  # invocations along each side of the block
EACH = BLOCK // EDGE  # values of each factor per invocation
DEPTH = 16
BYTES = 2 * BLOCK * DEPTH * 4


def pays(extents: list[float], steps: float, adapter: Adapter) -> bool:
    """Whether both sides fill a block and the sum fills a few turns, on a GPU. On software adapters workgroup memory is
    memory like any other (register tiles -> this, ms): llvmpipe
    matmul 512 20 -> 151, conv 3x3 64 of 28x28 10 -> 17;
    SwiftShader 77 -> 230, 47 -> 53. On GPUs workgroup memory hides the latency of memory; not measured on a GPU yet.
    A schedule that was chosen (`Adapter.contraction`) decides."""
    wanted = adapter.contraction == NAME if adapter.contraction else not adapter.software
    return wanted and adapter.shared_bytes >= BYTES and min(extents) >= BLOCK and steps >= DEPTH


def workgroup_tiled(kernel: Reduce, adapter: Adapter) -> tuple[Lowered, list[Array]] | None:
    """The loop form through workgroup memory, if each factor has an axis of its own and this pays."""
    found = contraction(kernel, 1)
    if found is None:
        return None
    nest, sides = found
    groups = [s.group for s in sides if s.group is not None]
    steps = sh.estimate(sh.size([g.extent for g in nest.inner]))
    if len(groups) < 2 or not pays([sh.estimate(g.extent) for g in groups], steps, adapter):
        return None
    return WorkgroupTile(nest, kernel, sides, groups).lowered()


class WorkgroupTile(Tile):
    """groups: of each side, the output axes on which only its factor depends"""

    def __init__(self, nest: Nest, kernel: Reduce, sides: list[Side], groups: list[Group]) -> None:
        super().__init__(nest, kernel, sides, short=False)
        self.groups = groups

    def lowered(self) -> tuple[Lowered, list[Array]]:
        nest, work = self.nest, self.work
        unit, lane = work.new(), work.new()
        own = {g.axis for g in self.groups}
        blocks = [replace(g, extent=sh.ceildiv(g.extent, BLOCK)) if g.axis in own else g for g in nest.outer]
        body: list[Stmt] = [Let(lane.value, Expr("invocation", (), I32)), *nest.decode(blocks, unit)]
        begins = [work.let(binary("mul", nest.index_of[g.axis][0], const(BLOCK, I32)), body) for g in self.groups]
        parts = [work.let(binary(op, lane, const(EDGE, I32)), body) for op in ("div", "rem")]
        zero = const(NEUTRAL["sum"](self.dtype), self.dtype)
        sums = {(i, j): work.let(zero, body, mutable=True) for i in range(EACH) for j in range(EACH)}
        steps, turn = sh.size([g.extent for g in nest.inner]), work.new()
        inner: list[Stmt] = []
        for n in range(2):
            inner += self._load_panel(n, begins[n], lane, turn, steps)
        inner.append(self._barrier())
        inner.append(self._multiply(parts, sums))
        inner.append(self._barrier())
        body.append(For(turn.value, work.number(sh.ceildiv(steps, DEPTH)), inner))
        places = [
            [self._inside(n, binary("add", begins[n], self._along(parts[n], i)), body) for i in range(EACH)]
            for n in range(2)
        ]
        body += [self.finish([places[0][i], places[1][j]], v) for (i, j), v in sums.items()]
        return nest.parallel(unit, blocks, body), [Array(f"panel{n}", self.dtype, BLOCK * DEPTH) for n in range(2)]

    def _barrier(self) -> Stmt:
        return Let(self.work.new().value, Expr("barrier", (), I32))

    def _along(self, part: Expr, n: int) -> Expr:
        return binary("add", part, const(EDGE * n, I32))

    def _inside(self, side: int, place: Expr, body: list[Stmt]) -> Expr:
        """Past the end, invocations repeat the last index: its sum is stored several times, with the same value."""
        last = binary("sub", self.work.number(self.groups[side].extent), const(1, I32))
        return self.work.let(binary("min", place, last), body)

    def _load_panel(self, side: int, begin: Expr, lane: Expr, turn: Expr, steps: AnyDim) -> list[Stmt]:
        """Load the panel of a factor; neighbouring invocations load neighbouring elements of its tensor."""
        nest, work = self.nest, self.work
        factor, group = self.sides[side].factor, self.groups[side]
        across = self._contiguous(factor, group)
        out: list[Stmt] = []
        for n in range(BLOCK * DEPTH // GROUP):
            at = self.work.let(binary("add", lane, const(GROUP * n, I32)), out)
            width = const(BLOCK if across else DEPTH, I32)
            low, high = (self.work.let(binary(op, at, width), out) for op in ("rem", "div"))
            place, step = (low, high) if across else (high, low)
            nest.index_of[group.axis] = [self._inside(side, binary("add", begin, place), out)]
            r = self.work.let(binary("add", binary("mul", turn, const(DEPTH, I32)), step), out)
            out += nest.decode(nest.inner, r)
            held = guard(
                Expr("lt", (r, work.number(steps)), BOOL), cast(nest.load(factor), self.dtype), const(0, self.dtype)
            )
            where = binary("add", binary("mul", step, const(BLOCK, I32)), place)
            out.append(Store(f"panel{side}", (where,), held))
        return out

    def _contiguous(self, factor: Expr, group: Group) -> bool:
        at = factor.args[0] if factor.op == "cast" else factor
        return at.op == "at" and split(at.value, at.args)[1].get(("index", group.axis)) == 1

    def _multiply(self, parts: list[Expr], sums: dict[tuple[int, int], Expr]) -> Stmt:
        step = self.work.new()
        body: list[Stmt] = []
        first = self.work.let(binary("mul", step, const(BLOCK, I32)), body)
        values = [
            [
                self.work.let(
                    Expr("load", (binary("add", first, self._along(parts[n], i)),), self.dtype, f"panel{n}"), body
                )
                for i in range(EACH)
            ]
            for n in range(2)
        ]
        for (i, j), total in sums.items():
            body.append(Set(total.value, binary("add", total, binary("mul", values[0][i], values[1][j]))))
        return For(step.value, const(DEPTH, I32), body)
