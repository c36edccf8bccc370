"""Register tiles for contractions: a sum of products a(i, r) · b(j, r), where one factor does not depend on output axis
j and the other not on i, computes a block of i × j outputs per work unit, and loads each factor once for the block.

Matrix products and convolutions of all kinds are such sums; so are grouped and transposed ones, with whatever casts,
guards or gathers the factors hold. What comes out is an ordinary loop form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime import shape as sh
from pyruntime.dtype import I32
from pyruntime.expr import Expr, binary, cast, const, index, rewrite, walk
from pyruntime.kernel import For, Let, Reduce, Set, Stmt, Store, When
from pyruntime.loopcode import Lowered
from pyruntime.lower import _Group, _Nest, _wide
from pyruntime.reference import NEUTRAL
from pyruntime.shape import AnyDim
from pyruntime.walk import Lowering

TILE = 4


@dataclass(slots=True)
class _Side:
    """One factor, the group of output axes that it alone walks (if any), and how many of its values a unit takes."""

    factor: Expr
    group: _Group | None
    size: int


def tiled(kernel: Reduce) -> Lowered | None:
    """The tiled loop form of a contraction, or None."""
    if kernel.op != "sum" or kernel.expr.op != "mul" or kernel.expr.dtype.kind not in "fiu":
        return None
    nest = _Nest(Lowering(kernel), kernel, "gpu")
    if nest.expr.op != "mul" or not nest.inner:
        return None
    sides = [_Side(f, None, 1) for f in nest.expr.args]
    axes = [{x.value for x in walk(s.factor) if x.op == "index"} for s in sides]
    for n, side in enumerate(sides):
        own = [g for g in nest.outer if _members(nest, g) & axes[n] and not _members(nest, g) & axes[1 - n]]
        if own:
            side.group = max(own, key=lambda g: (_large(g.extent), g.axis))
            side.size = pick_tile(side.group.extent)
    if all(s.size == 1 for s in sides):
        return None
    return _Tile(nest, kernel, sides).lowered()


def pick_tile(extent: AnyDim) -> int:
    """Values of one axis per work unit: 4, fewer where the axis is shorter."""
    return min(TILE, extent) if isinstance(extent, int) else TILE


def _members(nest: _Nest, group: _Group) -> set[int]:
    """The output axes merged into a group."""
    before = [g.axis for g in nest.outer if g.axis < group.axis]
    first = max(before) + 1 if before else 0
    return set(range(first, group.axis + 1))


def _large(extent: AnyDim) -> int:
    return min(extent, 16) if isinstance(extent, int) else 16


class _Tile:
    def __init__(self, nest: _Nest, kernel: Reduce, sides: list[_Side]) -> None:
        self.nest = nest
        self.work = nest.work
        self.kernel = kernel
        self.sides = sides
        self.dtype = _wide(kernel.expr.dtype, kernel.op)

    def lowered(self) -> Lowered:
        nest, work = self.nest, self.work
        unit = work.new()
        tiles = {s.group.axis: s for s in self.sides if s.group is not None}
        blocks = [
            _Group(sh.ceildiv(g.extent, tiles[g.axis].size) if g.axis in tiles else g.extent, g.axis)
            for g in nest.outer
        ]
        body = nest._decode(blocks, unit)
        lanes = [self._lanes(s, blocks, body) for s in self.sides]
        sums = {}
        for i in range(self.sides[0].size):
            for j in range(self.sides[1].size):
                sums[i, j] = v = work.new(self.dtype)
                body.append(Let(v.value, const(NEUTRAL["sum"](self.dtype), self.dtype), mutable=True))
        body += self._loops(lanes, sums)
        for (i, j), v in sums.items():
            body += self._finish([lanes[0][i], lanes[1][j]], v)
        count = sh.size([g.extent for g in blocks])
        return work.finish([For(unit.value, work.number(count), body, "parallel")], count)

    def _lanes(self, side: _Side, blocks: list[_Group], body: list[Stmt]) -> list[tuple[Expr | None, Expr | None]]:
        """(index of the side's axis, whether it is inside) of each value; neighbouring units take
        neighbouring values."""
        if side.group is None or side.size == 1:
            return [(None, None)]
        work, axis = self.work, side.group.axis
        first = self.nest.place[axis][0]
        extent = work.number(side.group.extent)
        step = next(work.number(g.extent) for g in blocks if g.axis == axis)
        out: list[tuple[Expr | None, Expr | None]] = []
        for n in range(side.size):
            place, at = work.new(), work.new()
            body.append(Let(place.value, binary("add", first, binary("mul", step, const(n, I32)))))
            inside = binary("lt", place, extent) if n else None
            body.append(Let(at.value, binary("min", place, binary("sub", extent, const(1, I32))) if n else place))
            out.append((at, inside))
        return out

    def _loops(self, lanes: list[list[Any]], sums: dict[tuple[int, int], Expr]) -> list[Stmt]:
        nest, work = self.nest, self.work
        loops = [work.new() for _ in nest.inner]
        for v, g in zip(loops, nest.inner, strict=True):
            nest.place[g.axis] = [v]
        inner: list[Stmt] = []
        values: list[list[Expr]] = []
        for side, places in zip(self.sides, lanes, strict=True):
            row = []
            for at, _ in places:
                v = work.new(self.dtype)
                inner.append(Let(v.value, cast(self._at([at], [side], side.factor), self.dtype)))
                row.append(v)
            values.append(row)
        for (i, j), total in sums.items():
            inner.append(Set(total.value, binary("add", total, binary("mul", values[0][i], values[1][j]))))
        for v, g in zip(reversed(loops), reversed(nest.inner), strict=True):
            inner = [For(v.value, work.number(g.extent), inner)]
        return inner

    def _at(self, places: list[Expr | None], sides: list[_Side], e: Expr) -> Expr:
        """An expression with the sides' axes at these indices."""
        self._move(places, sides)
        return self.nest.load(e)

    def _move(self, places: list[Expr | None], sides: list[_Side]) -> None:
        for at, side in zip(places, sides, strict=True):
            if at is not None:
                assert side.group is not None
                self.nest.place[side.group.axis] = [at]

    def _finish(self, lanes: list[tuple[Expr | None, Expr | None]], total: Expr) -> list[Stmt]:
        kernel, nest = self.kernel, self.nest
        self._move([at for at, _ in lanes], self.sides)
        value = cast(total, kernel.expr.dtype)
        if kernel.epilogue is not None:
            value = rewrite(kernel.epilogue, lambda e: value if e.op == "arg" else None)
            value = nest.load(value)
        own = nest.address(kernel.out, [index(n) for n in range(nest.rank)])
        body: list[Stmt] = [Store(0, (own,), cast(value, kernel.out.dtype))]
        for _, inside in lanes:
            if inside is not None:
                body = [When(inside, body, [])]
        return body


__all__ = ["pick_tile", "tiled"]
