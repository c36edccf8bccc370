"""Register tiles for contractions: sums of products a(i, r) · b(j, r), in which one factor does not depend on output
axis j, and the other does not depend on i. A work unit computes a block of i × j outputs, and loads each factor once
for the block.

Matrix products and all convolutions are such sums, also grouped and transposed ones, with any casts, guards or gathers
in the factors. The result is an ordinary loop form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.addressing import Lowering
from pyruntime.codegen.loop_ir import Lowered
from pyruntime.codegen.schedule import Group, Nest, accumulator
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, DType
from pyruntime.ir.expr import Expr, binary, cast, const, rewrite, walk
from pyruntime.ir.kernel import For, Reduce, Set, Stmt, Store
from pyruntime.ir.reference import NEUTRAL
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from ..printer.loops import Array
from ..printer.storage import is_packed
from .packed_steps import Codes, code, shared_by_steps, word_of
from .vec4_access import WIDTH, aligned, divisible, lane, load4_of

LONG_EPILOGUE = 24  # nodes of an epilogue
TILES = {f"register_{size}": size for size in (4, 8, 16)}  # values of a factor, by the name of the schedule

# The words of the codes of one value, and variables by the id of the expressions that four steps share.
_Shared = tuple[list[Expr], dict[int, Expr]]


@dataclass(slots=True)
class Side:
    """factor: one factor of the product
    group: the output axes on which only this factor depends, if any
    size: number of its values in a work unit
    vec4: a vec4 contains values of neighbouring indices ("lanes") or of neighbouring steps of the sum ("steps"); "":
        values are loaded one by one
    codes: packed codes, which four steps read from one word
    """

    factor: Expr
    group: Group | None
    size: int
    vec4: str = ""
    codes: Codes | None = None


def tiled(kernel: Reduce, adapter: Adapter) -> tuple[Lowered, list[Array]] | None:
    """The loop form of a contraction by register tiles, and its arrays; None if it does not apply."""
    found = contraction(kernel, pick_tile(kernel, adapter))
    if found is None or all(s.size == 1 for s in found[1]):
        return None
    nest, sides = found
    for side in sides:
        side.vec4 = _vec4_of(nest, side, adapter.f16)
        if divisible(nest.inner[-1].extent):
            side.codes = shared_by_steps(side.factor, nest.inner[-1].axis)
    return Tile(nest, kernel, sides, adapter.software).lowered()


def contraction(kernel: Reduce, most: int) -> tuple[Nest, list[Side]] | None:
    """The nest of a sum of products, and its two factors."""
    if kernel.op != "sum" or kernel.expr.op != "mul" or kernel.expr.dtype.kind not in "fiu":
        return None
    nest = Nest(Lowering(kernel), kernel, "gpu")
    if nest.expr.op != "mul" or not nest.inner:
        return None
    sides = [Side(f, None, 1) for f in nest.expr.args]
    axes = [{x.value for x in walk(s.factor) if x.op == "index"} for s in sides]
    for n, side in enumerate(sides):
        own = [g for g in nest.outer if _members(nest, g) & axes[n] and not _members(nest, g) & axes[1 - n]]
        if own:
            side.group = max(own, key=lambda g: (_large(g.extent), g.axis))
            extent = side.group.extent
            side.size = min(most, extent) if isinstance(extent, int) else most
    return nest, sides


def _vec4_of(nest: Nest, side: Side, f16: bool) -> str:
    at = side.factor.args[0] if side.factor.op == "cast" else side.factor
    if at.op != "at" or (at is not side.factor and not (at.dtype.is_float and side.factor.dtype.is_float)):
        return ""
    groups = [*nest.outer, *nest.inner]
    if side.group is not None and side.size % WIDTH == 0 and aligned(at, groups, side.group.axis, f16):
        return "lanes"
    return "steps" if aligned(at, groups, nest.inner[-1].axis, f16) else ""


def pick_tile(kernel: Reduce, adapter: Adapter) -> int:
    """Number of values of each factor in a work unit.

    llvmpipe, GFLOP per second of processor time, 4x4 / 8x4 / 4x8 / 8x8 / 16x4: matmul 512 1.1 1.7 2.4 3.4 2.9, matmul
    197x768x768 1.8 2.4 1.9 4.2 2.1, conv 3x3 64 of 56x56 1.8 2.1 2.1 3.6 2.3, conv 3x3 512 of 7x7 2.8 3.0 2.4 3.5 3.0.
    SwiftShader, GFLOP/s, 2x2 / 4x4 / 8x8: matmul 256 1.1 1.0 2.3, conv 1x1 256 of 14x14 0.6 1.5 2.3. On GPUs a tile of
    64 sums needs enough outputs to fill the machine; not measured yet. The epilogue is printed once for each sum, so a
    long epilogue uses the small tile. So does an output whose elements share words, because each element has its own
    atomic store: the half-float llama_mini opens in 7.4 s instead of 54 on SwiftShader, at the same speed."""
    epilogue = len(walk(kernel.epilogue)) if kernel.epilogue is not None else 0
    long = epilogue > LONG_EPILOGUE or is_packed(kernel.out.dtype, adapter.f16)
    if not long and adapter.contraction in TILES:
        return TILES[adapter.contraction]
    many = adapter.software or sh.estimate(sh.size(kernel.out.shape)) >= 1 << 20
    return 8 if many and not long else 4


def _members(nest: Nest, group: Group) -> set[int]:
    """The output axes of a group."""
    before = [g.axis for g in nest.outer if g.axis < group.axis]
    first = max(before) + 1 if before else 0
    return set(range(first, group.axis + 1))


def _large(extent: AnyDim) -> int:
    return min(extent, 16) if isinstance(extent, int) else 16


class Tile:
    """Builds the loop form. short: a loop stores the sums."""

    def __init__(self, nest: Nest, kernel: Reduce, sides: list[Side], short: bool) -> None:
        self.short = short
        self.nest = nest
        self.work = nest.work
        self.kernel = kernel
        self.sides = sides
        self.dtype = accumulator(kernel.expr.dtype, kernel.op)

    def lowered(self) -> tuple[Lowered, list[Array]]:
        nest, work = self.nest, self.work
        unit = work.new()
        tiles = {s.group.axis: s for s in self.sides if s.group is not None}
        blocks = [
            Group(sh.ceildiv(g.extent, tiles[g.axis].size) if g.axis in tiles else g.extent, g.axis) for g in nest.outer
        ]
        body = nest.decode(blocks, unit)
        lanes = [self._lanes(s, blocks, body) for s in self.sides]
        sums = {}
        for i in range(self.sides[0].size):
            for j in range(self.sides[1].size):
                sums[i, j] = work.let(const(NEUTRAL["sum"](self.dtype), self.dtype), body, mutable=True)
        body += self._loops(lanes, sums)
        arrays = self._stored_by_a_loop(lanes, sums, body) if self.short else []
        if not arrays:
            body += [self.finish([lanes[0][i], lanes[1][j]], v) for (i, j), v in sums.items()]
        return nest.parallel(unit, blocks, body), arrays

    def _stored_by_a_loop(
        self, lanes: list[list[Expr | None]], sums: dict[tuple[int, int], Expr], body: list[Stmt]
    ) -> list[Array]:
        """Store the sums by a loop over private arrays, so that the epilogue is printed once and not 64 times. On
        SwiftShader, creating mobilenet_v2 and its first run take 4.0 s of processor time with the loop and 8.5 s
        without it, a later run 1.07 and 0.95 s; bert_tiny takes 1.2 and 2.1 s, and later runs are equal. On GPUs an
        indexed array would leave the registers."""
        work, kept = self.work, {"sums": [*sums.values()]}
        for n, places in enumerate(lanes):
            kept |= {f"places{n}": found} if (found := [p for p in places if p is not None]) else {}
        for name, values in kept.items():
            body += [Store(name, (const(n, I32),), v) for n, v in enumerate(values)]
        at = [work.new() for _ in lanes]
        inner: list[Stmt] = []
        where = [self._kept(f"places{n}", v, I32, inner) if f"places{n}" in kept else None for n, v in enumerate(at)]
        number = binary("add", binary("mul", at[0], const(len(lanes[1]), I32)), at[1])
        inner.append(self.finish(where, self._kept("sums", number, self.dtype, inner)))
        for v, side in zip(reversed(at), reversed(lanes), strict=True):
            inner = [For(v.value, const(len(side), I32), inner)]
        body += inner
        return [Array(name, values[0].dtype, len(values), "private") for name, values in kept.items()]

    def _kept(self, name: str, at: Expr, dtype: DType, body: list[Stmt]) -> Expr:
        return self.work.let(Expr("load", (at,), dtype, name), body)

    def _lanes(self, side: Side, blocks: list[Group], body: list[Stmt]) -> list[Expr | None]:
        """The index of each value along the side's axis. Neighbouring units take neighbouring values or vec4s. Past the
        end, units repeat the last index: its sum is computed and stored several times, with the same value."""
        if side.group is None or side.size == 1:
            return [None]
        work, axis = self.work, side.group.axis
        first = self.nest.index_of[axis][0]
        width = WIDTH if side.vec4 == "lanes" else 1
        extent = work.number(sh.ceildiv(side.group.extent, width))
        step = next(work.number(g.extent) for g in blocks if g.axis == axis)
        last = binary("sub", extent, const(1, I32))
        out: list[Expr | None] = []
        for n in range(side.size // width):
            place = binary("add", first, binary("mul", step, const(n, I32)))
            place = binary("min", place, last) if n else place
            at = work.let(binary("mul", place, const(width, I32)), body)
            out += [at, *[work.let(binary("add", at, const(m, I32)), body) for m in range(1, width)]]
        return out

    def _loops(self, lanes: list[list[Any]], sums: dict[tuple[int, int], Expr]) -> list[Stmt]:
        nest, work = self.nest, self.work
        loops = nest.loops()
        inner: list[Stmt] = []
        width = WIDTH if any(s.vec4 == "steps" or s.codes is not None for s in self.sides) else 1
        axis, begin = nest.inner[-1].axis, loops[-1]
        if width > 1:
            begin = work.let(binary("mul", loops[-1], const(width, I32)), inner)
        ahead = [self._ahead(s, places, begin, inner) for s, places in zip(self.sides, lanes, strict=True)]
        for step in range(width):
            nest.index_of[axis] = [begin, const(step, I32)] if step else [begin]
            values = [
                self._values(side, places, known, step, inner)
                for side, places, known in zip(self.sides, lanes, ahead, strict=True)
            ]
            for (i, j), total in sums.items():
                inner.append(Set(total.value, binary("add", total, binary("mul", values[0][i], values[1][j]))))
        return nest.nested(loops, inner, width=width)

    def _ahead(self, side: Side, places: list[Any], begin: Expr, body: list[Stmt]) -> list[Any]:
        """What the next four steps share, for each value: a vec4 or `_Shared`."""
        self.nest.index_of[self.nest.inner[-1].axis] = [begin]
        if side.vec4 == "steps":
            return [self._load4(side, at, body) for at in places]
        return [] if side.codes is None else [self._shared(side, at, body) for at in places]

    def _shared(self, side: Side, at: Expr | None, body: list[Stmt]) -> _Shared:
        assert side.codes is not None
        self._move([at], [side])
        load, let = self.nest.load, self.work.let
        words = [let(word_of(load(byte)), body) for _, byte, _ in side.codes.codes]
        return words, {id(e): let(load(e), body) for e in side.codes.same}

    def _values(self, side: Side, places: list[Any], known: list[Any], step: int, body: list[Stmt]) -> list[Expr]:
        """The side's values at one step. known: see `_ahead`"""
        if side.vec4 == "steps":
            return [lane(v, step) for v in known]
        if side.codes is not None:
            decoded = [self._decoded(side, at, shared, step) for at, shared in zip(places, known, strict=True)]
            return [self.work.let(x, body) for x in decoded]
        if side.vec4 == "lanes":
            vectors = [self._load4(side, at, body) for at in places[::WIDTH]]
            return [lane(v, n) for v in vectors for n in range(WIDTH)]
        return [self.work.let(self._factor(side, at), body) for at in places]

    def _decoded(self, side: Side, at: Expr | None, shared: _Shared, step: int) -> Expr:
        """The side's factor at one of four steps."""
        assert side.codes is not None
        words, same = shared
        self._move([at], [side])
        codes = {id(e): code(w, step, bits, e.dtype) for (e, _, bits), w in zip(side.codes.codes, words, strict=True)}
        return cast(self.nest.load(rewrite(side.factor, lambda _: None, same | codes)), self.dtype)

    def _load4(self, side: Side, at: Expr | None, body: list[Stmt]) -> Expr:
        return self.work.let(load4_of(self._factor(side, at)), body)

    def _factor(self, side: Side, at: Expr | None) -> Expr:
        """The side's factor at this index of its axis."""
        self._move([at], [side])
        return cast(self.nest.load(side.factor), self.dtype)

    def _move(self, places: list[Expr | None], sides: list[Side]) -> None:
        for at, side in zip(places, sides, strict=True):
            if at is not None:
                assert side.group is not None
                self.nest.index_of[side.group.axis] = [at]

    def finish(self, lanes: list[Expr | None], total: Expr) -> Stmt:
        self._move(lanes, self.sides)
        return self.nest.finish(self.kernel, total)
