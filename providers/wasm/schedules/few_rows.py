"""Products of 2 to FEW_ROWS rows by a B in panels, of float32 or of codes (weight_codes.py), which become floats in
registers. All rows use a panel before the next one is read.

A is copied to scratch first, once for each block of C: two k of a row, the same two of the next row, and so on for the
HEIGHT rows of a register tile, or HALF rows if no more are left. So a tile reads one stream of A instead of one for
each row, whose addresses may share a cache set. Behind an odd K is a zero. The rows of a tile past the end repeat the
last.

Loops over k add two k and are in functions that call no others: Cranelift moves all loads of a loop to its beginning,
moves each sum that an odd number of products changed, and waits for memory where it spills a sum
(docs/design/cpu-kernels.md#code-for-cranelift).

Panels follow one another in memory and are read in this order. With several rows, the instructions between two cache
lines of B are so many that the processor's window holds few lines. The first tile therefore loads from the lines of B
that come next, AHEAD bytes at a time, which memory delivers together
(docs/design/weight-bandwidth.md#few-rows).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from .arguments import minimum
from .arithmetic import Arithmetic
from .register_tile import (
    AHEAD,
    BLOCK,
    PANEL,
    Epilogue,
    clamped_row,
    finish_tile,
    load_ahead,
    row_pointers,
    store_part,
)
from .weight_codes import HALF_STEP, PairedCodes, WeightCodes

FEW_ROWS = 16
HEIGHT, HALF = 4, 2  # rows of a register tile, and of the last one if so few are left
ROOT = HALF_STEP**0.5  # half floats: A is multiplied by it, and then the sums, lest products overflow
# a, lda: the copy of A and the bytes between its rows; b, ldb: a panel, and the address up to which the tile loads
# ahead; steps, size: of codes, the steps of the panel's first block and the number of k of a block; sums: memory for
# those of a tile
FEW = (*BLOCK, "steps", "size", "sums")
TILE = ("a", "b", "ldb", "k", "steps", "size", "sums")


def few_bytes(m: AnyDim, k: AnyDim) -> AnyDim:
    """Return the bytes of scratch of a thread, for at most FEW_ROWS rows."""
    rows = -(-m // HEIGHT) * HEIGHT if isinstance(m, int) else FEW_ROWS
    return 4 * (rows * 2 * sh.ceildiv(k, 2) + PANEL * HEIGHT)


# ── the copy of A ────────────────────────────────────────────────────────────────────────────────────────────────────


def row_step(f: Function, k: int) -> Function:
    """Push the bytes between rows of the copy, whose K is even; behind an odd one is a zero."""
    return f.emit(k).i32(1).emit("i32.add").i32(-2).emit("i32.and").i32(2).emit("i32.shl")


@once
def copy_rows(module: Module, half: bool) -> Function:
    """(a, lda, rows, k, to): copy A for the tiles; half: multiplied by ROOT."""
    tiles = {height: _copy_tile(module, height, half) for height in (HALF, HEIGHT)}
    f = module.function("copy_rows", ["i32"] * 5, export=False)
    a, lda, rows, k, to = f.params
    with f.loop() as again:
        by_height(f, rows, lambda height: f.emit(a, lda, rows, k, to).call(tiles[height]))
        f.emit(a, lda).i32(HEIGHT).emit("i32.mul", "i32.add").set(a)
        row_step(f.emit(to), k).i32(HEIGHT).emit("i32.mul", "i32.add").set(to)
        f.add(rows, -HEIGHT).emit(rows).i32(0).emit("i32.gt_s").br_if(again)
    return f


def _copy_tile(module: Module, height: int, half: bool) -> Function:
    f = module.function(f"copy_rows{height}", ["i32"] * 5, export=False)
    a, lda, rows, k, to = f.params
    at, root = f.locals("i32", height), f.local("v128")
    f.f32x4(ROOT).set(root)
    with f.scratch("i32", 1) as (row,):
        for r, pointer in enumerate(at):
            clamped_row(f, rows, r).set(row)
            f.emit(a, row, lda, "i32.mul", "i32.add").set(pointer)

    def copy(load: str) -> None:
        for r, pointer in enumerate(at):
            f.emit(to, pointer).mem(load)
            if half:
                f.emit(root, "f32x4.mul")
            f.mem_lane("v128.store64_lane", 0, 8 * r).add(pointer, 8)
        f.add(to, 8 * height)

    with f.countdown(k, 2):
        copy("v128.load64_zero")
    f.emit(k)
    with f.if_():
        copy("v128.load32_zero")
    return f


def by_height(f: Function, rows: int, emit: Callable[[int], object]) -> None:
    """Emit code for a tile of HALF rows if no more are left, and for one of HEIGHT rows otherwise."""
    f.emit(rows).i32(HALF).emit("i32.le_s")
    with f.if_():
        emit(HALF)
        f.otherwise()
        emit(HEIGHT)


# ── tiles ────────────────────────────────────────────────────────────────────────────────────────────────────────────


Load = Callable[[int, list[int]], object]


class _Tile:
    """A function for one tile and one panel (parameters TILE, by name in `p`): sums[row][half]. With few rows each of
    the two k has sums of its own, which hides latency."""

    def __init__(self, module: Module, name: str, height: int, arithmetic: Arithmetic) -> None:
        self.f, self.p = module.internal(f"{name}{height}", TILE)
        self.height, self.arithmetic = height, arithmetic
        self.groups = [[self.f.locals("v128", 2) for _ in range(height)] for _ in range(HEIGHT // height)]
        self.sums = self.groups[0]
        self.x, *self.weights = self.f.locals("v128", 3)
        self.pairs = self.f.locals("v128", height)

    def clear(self) -> None:
        for s in (s for group in self.groups for pair in group for s in pair):
            self.f.f32x4(0).set(s)

    def repeat(self, turns: int, a: int, load: Load, advance: Callable[[], object], distance: int = 1) -> None:
        """Add two k in each of `turns` turns, `distance` pairs apart in A, whose address is in `a`. load(k, to): emits
        code that sets two locals to the weights of one of them; advance: moves it to the next turn's."""
        f = self.f
        f.emit(turns)
        with f.if_(), f.loop() as again:
            self.add(a, load, 2)
            f.add(a, 8 * self.height * distance)
            advance()
            f.emit(turns).i32(1).emit("i32.sub").tee(turns).br_if(again)

    def add(self, a: int, load: Load, some: int) -> None:
        f = self.f
        if f.module.cranelift:
            for r, pair in enumerate(self.pairs):
                f.emit(a).mem("v128.load64_zero", 8 * r).set(pair)
        for k in range(some):
            load(k, self.weights)
            for r, sums in enumerate(self.groups[k % len(self.groups)]):
                if f.module.cranelift:  # a load with splat is three instructions in wasmtime
                    f.emit(self.pairs[r], self.pairs[r]).shuffle32(k, k, k, k).set(self.x)
                else:
                    f.emit(a).mem("v128.load32_splat", 8 * r + 4 * k).set(self.x)
                for s, y in zip(sums, self.weights, strict=True):
                    self.arithmetic.multiply_add(f, s, self.x, y)

    def join(self) -> None:
        """Add the groups."""
        for group in self.groups[1:]:
            for s, t in zip(self.sums, group, strict=True):
                for half in (0, 1):
                    self.f.emit(s[half], t[half], self.arithmetic.add).set(s[half])

    def store(self) -> Function:
        for n, s in enumerate(s for pair in self.sums for s in pair):
            self.f.emit(self.p["sums"], s).mem("v128.store", 16 * n)
        return self.f


@once
def _float_tile(module: Module, height: int, arithmetic: Arithmetic) -> Function:
    tile = _Tile(module, "few_floats", height, arithmetic)
    f, b = tile.f, tile.p["b"]

    def load(k: int, to: list[int]) -> None:
        for half, y in enumerate(to):
            f.emit(b).mem("v128.load", 4 * PANEL * k + 16 * half).set(y)

    _whole_column(tile, 4 * PANEL, load)
    f.emit(tile.p["k"]).i32(1).emit("i32.and")
    with f.if_():
        tile.add(tile.p["a"], load, 1)
    tile.join()
    return tile.store()


@once
def _half_floats_tile(module: Module, height: int, arithmetic: Arithmetic, careful: bool) -> Function:
    """careful: some of B are infinite or NaN"""
    tile, layout = _Tile(module, "few_halves", height, arithmetic), WeightCodes(16)
    f, p, root = tile.f, tile.p, tile.f.local("v128")
    codes = PairedCodes(f, layout, p["b"], careful)
    f.add(p["k"], 1)  # behind an odd K are a zero of A and one of B
    _whole_column(tile, layout.k_bytes, codes.load)
    tile.join()
    f.f32x4(ROOT).set(root)
    for s in (s for pair in tile.sums for s in pair):
        f.emit(s, root, "f32x4.mul").set(s)
    return tile.store()


def _whole_column(tile: _Tile, k_bytes: int, load: Load) -> None:
    """Set the sums to those of all pairs of k. k_bytes: of a panel"""
    f, p, turns, most = tile.f, tile.p, tile.f.local("i32"), AHEAD // k_bytes

    def add() -> None:
        tile.repeat(turns, p["a"], load, lambda: f.add(p["b"], 2 * k_bytes))

    tile.clear()
    with f.countdown(p["k"], most):
        load_ahead(f, p["b"], p["ldb"], AHEAD)
        f.i32(most // 2).set(turns)
        add()
    f.emit(p["k"]).i32(1).emit("i32.shr_u").set(turns)
    add()


def _codes_tile(module: Module, height: int, layout: WeightCodes, arithmetic: Arithmetic) -> Function:
    if layout.bits == 16:
        return _any_half_floats_tile(module, height, arithmetic)
    tile, pairs = _Tile(module, f"few_{layout.bits}bits", height, arithmetic), layout.pairs
    f, p = tile.f, tile.p
    left, turns, a, b = f.locals("i32", 4)
    codes = PairedCodes(f, layout, b)
    for n in range(2 * height):
        f.emit(p["sums"]).v128(bytes(16)).mem("v128.store", 16 * n)
    f.emit(p["k"])
    with f.if_(), f.loop() as again:
        minimum(f, left, p["k"], p["size"])
        f.emit(p["k"], left, "i32.sub").set(p["k"])
        f.emit(p["b"]).i32(AHEAD - 1).emit("i32.and", p["size"]).i32(layout.k_bytes).emit("i32.mul", "i32.lt_u")
        with f.if_():
            load_ahead(f, p["b"], p["ldb"], AHEAD)
        tile.clear()
        for pair in range(pairs):
            f.emit(left).i32(2 * (pairs - pair) - 1).emit("i32.add").i32(pairs).emit("i32.shr_u").set(turns)
            f.emit(p["a"]).i32(8 * height * pair).emit("i32.add").set(a).emit(p["b"]).set(b)
            tile.repeat(
                turns, a, partial(codes.load, pair=pair), lambda: f.add(b, 2 * pairs * layout.k_bytes), pairs
            )  # fmt: skip
        f.emit(p["a"]).set(a).emit(p["a"], left).i32(4 * height).emit("i32.mul", "i32.add").set(p["a"])
        f.emit(p["b"], left).i32(layout.k_bytes).emit("i32.mul", "i32.add").set(p["b"])
        tile.join()
        _add_block(tile, layout, a)
        f.add(p["steps"], layout.step_bytes).emit(p["k"]).br_if(again)
    return f


def _any_half_floats_tile(module: Module, height: int, arithmetic: Arithmetic) -> Function:
    f, p = module.internal(f"few_16bits{height}", TILE)
    f.emit(p["steps"]).mem("i32.load8_u")
    with f.if_():
        f.emit(*f.params).call(_half_floats_tile(module, height, arithmetic, True))
        f.otherwise().emit(*f.params).call(_half_floats_tile(module, height, arithmetic, False))
    return f


def _add_block(tile: _Tile, layout: WeightCodes, a: int) -> None:
    """Add a block's sums, scaled, and the sums of its A, which begins at `a`, times the addends."""
    f, p = tile.f, tile.p
    step, total = f.locals("v128", 2)
    of_a = f.locals("v128", tile.height // 2 if layout.zeros else 0)
    if layout.zeros:
        for s in of_a:
            f.v128(bytes(16)).set(s)
        with f.until(a, p["a"], 8 * tile.height):
            for n, s in enumerate(of_a):
                f.emit(a).mem("v128.load", 16 * n).emit(s, "f32x4.add").set(s)
        for s in of_a:
            f.emit(s, s, s).shuffle32(1, 0, 3, 2).emit("f32x4.add").set(s)
    for r, pair in enumerate(tile.sums):
        for half, s in enumerate(pair):
            f.emit(p["sums"]).mem("v128.load", 32 * r + 16 * half).set(total)
            f.emit(p["steps"]).mem("v128.load", 16 * half).set(step)
            tile.arithmetic.multiply_add(f, total, s, step)
            if layout.zeros:
                lane = 2 * (r % 2)
                f.emit(of_a[r // 2], of_a[r // 2]).shuffle32(lane, lane, lane, lane).set(s)
                f.emit(p["steps"]).mem("v128.load", 4 * PANEL + 16 * half).set(step)
                tile.arithmetic.multiply_add(f, total, s, step)
            f.emit(p["sums"], total).mem("v128.store", 32 * r + 16 * half)
    f.release(step, total, *of_a)


# ── panels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@once
def _finish(module: Module, height: int, epilogue: Epilogue) -> Function:
    """Apply the epilogue to a tile's sums, and store them in C."""
    store_part(module)
    f, p = module.internal(f"few_finish{height}", FEW)
    sums = [f.locals("v128", 2) for _ in range(height)]
    _, c, rows = row_pointers(f, p, height)
    for n, s in enumerate(s for pair in sums for s in pair):
        f.emit(p["sums"]).mem("v128.load", 16 * n).set(s)
    finish_tile(f, p, c, rows, sums, epilogue)
    return f


@once
def few_panel(module: Module, arithmetic: Arithmetic, epilogue: Epilogue, layout: WeightCodes | None) -> Function:
    """A function for all rows and one panel, of float32 or of codes."""
    make = partial(_codes_tile, layout=layout) if layout else _float_tile
    tiles = {height: make(module, height, arithmetic=arithmetic) for height in (HALF, HEIGHT)}
    finish = {height: _finish(module, height, epilogue) for height in tiles}
    f, p = module.internal("few_panel", FEW)
    if layout is None:  # two rows read about as many lines of B at a time as one
        f.i32(0).emit(p["ldb"], p["rows"]).i32(HALF).emit("i32.le_s", "select").set(p["ldb"])

    def tile(height: int) -> None:
        f.emit(*[p[name] for name in TILE]).call(tiles[height])
        f.emit(*[p[name] for name in FEW]).call(finish[height])

    with f.loop() as again:
        by_height(f, p["rows"], tile)
        f.i32(0).set(p["ldb"])
        for pointer, step in (("a", "lda"), ("c", "ldc")):
            f.emit(p[pointer], p[step]).i32(HEIGHT).emit("i32.mul", "i32.add").set(p[pointer])
        f.add(p["row"], HEIGHT).add(p["rows"], -HEIGHT).emit(p["rows"]).i32(0).emit("i32.gt_s").br_if(again)
    return f


def multiply_few_rows(f: Function, p: dict[str, int], panel: Function, step: int, steps: int) -> None:
    """Multiply a block of C. p: locals by the names FEW, changed; panel: `few_panel`; step, steps: locals with the
    bytes between panels and between their steps."""
    with f.loop() as again:
        f.emit(*[p[name] for name in FEW]).call(panel)
        f.emit(p["b"], step, "i32.add").set(p["b"]).emit(p["steps"], steps, "i32.add").set(p["steps"])
        f.add(p["c"], 4 * PANEL).add(p["col"], PANEL).add(p["cols"], -PANEL)
        f.emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(again)
