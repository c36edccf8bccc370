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

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once, typed
from ..printer.values import I32, V128, ZERO, Ptr, f32x4, minimum, select, shuffle32
from .arithmetic import Arithmetic
from .panel_order import FEW_ROWS
from .register_tile import (
    AHEAD,
    PANEL,
    Block,
    Epilogue,
    clamped_row,
    finish_tile,
    load_ahead,
    row_pointers,
    store_part,
)
from .weight_codes import HALF_STEP, PairedCodes, WeightCodes

HEIGHT, HALF = 4, 2  # rows of a register tile, and of the last one if so few are left
ROOT = HALF_STEP**0.5  # half floats: A is multiplied by it, and then the sums, lest products overflow


class Few(NamedTuple):
    """Parameters of a panel's function, behind those of `Block`.

    In the block, a and lda are the copy of A and the bytes between its rows; b and ldb a panel, and the address up to
    which the tile loads ahead. steps, size: of codes, the steps of the panel's first block and the number of k of a
    block; sums: memory for those of a tile"""

    steps: Ptr
    size: I32
    sums: Ptr


def _few_function(module: Module, name: str) -> tuple[Function, Block, Few]:
    f, count = module.function(name, ["i32"] * len(Block._fields + Few._fields), export=False), len(Block._fields)
    return f, typed(Block, f.params[:count]), typed(Few, f.params[count:])


class TileWords(NamedTuple):
    """Parameters of a tile's function, as of a panel's. lda, rows: of tiles of quantised rows, which are not copied"""

    a: Ptr
    b: Ptr
    ldb: I32
    k: I32
    steps: Ptr
    size: I32
    sums: Ptr
    lda: I32
    rows: I32


class Copy(NamedTuple):
    a: Ptr
    lda: I32
    rows: I32
    k: I32
    to: Ptr


def copied_row(k: AnyDim) -> AnyDim:
    """Return the bytes of a row of the copy."""
    return 8 * sh.ceildiv(k, 2)


def few_bytes(m: AnyDim, row: AnyDim) -> AnyDim:
    """Return the bytes of scratch of a thread, for at most FEW_ROWS rows of so many bytes."""
    rows = -(-m // HEIGHT) * HEIGHT if isinstance(m, int) else FEW_ROWS
    return rows * row + 4 * PANEL * HEIGHT


# ── the copy of A ────────────────────────────────────────────────────────────────────────────────────────────────────


def row_step(k: I32) -> I32:
    """The bytes between rows of the copy, whose K is even; behind an odd one is a zero."""
    return (k + 1 & -2) << 2


@once
def copy_rows(module: Module, half: bool) -> Function:
    """Copy A for the tiles; half: multiplied by ROOT."""
    tiles = {height: _copy_tile(module, height, half) for height in (HALF, HEIGHT)}
    f, p = module.inner("copy_rows", Copy)
    with f.loop() as again:
        by_height(f, p.rows, lambda height: f.call(tiles[height], *p))
        f.add(p.a, p.lda * HEIGHT).add(p.to, row_step(p.k) * HEIGHT).add(p.rows, -HEIGHT)
        f.br_if(again, p.rows.gt_s(0))
    return f


def _copy_tile(module: Module, height: int, half: bool) -> Function:
    f, (a, lda, rows, k, to) = module.inner(f"copy_rows{height}", Copy)
    at, (root,) = f.pointers(height), f.vectors(1)
    f.set(root, f32x4.of(ROOT))
    with f.scratch("i32", 1) as (row,):
        for r, address in enumerate(at):
            f.set(row, clamped_row(f, rows, r)).set(address, a + row * lda)

    def copy(load: str) -> None:
        for r, address in enumerate(at):
            two = address.load(0, load)
            f.store_lane("v128.store64_lane", to, f32x4.mul(two, root) if half else two, 0, 8 * r).add(address, 8)
        f.add(to, 8 * height)

    with f.countdown(k, 2):
        copy("v128.load64_zero")
    with f.if_(k):
        copy("v128.load32_zero")
    return f


def by_height(f: Function, rows: I32, emit: Callable[[int], object]) -> None:
    """Emit code for a tile of HALF rows if no more are left, and for one of HEIGHT rows otherwise."""
    with f.if_(rows.le_s(HALF)):
        emit(HALF)
        f.otherwise()
        emit(HEIGHT)


# ── tiles ────────────────────────────────────────────────────────────────────────────────────────────────────────────


Load = Callable[[int, Sequence[V128]], object]


class _Tile:
    """A function for one tile and one panel: sums[row][half]. With few rows each of the two k has sums of its own,
    which hides latency."""

    def __init__(self, module: Module, name: str, height: int, arithmetic: Arithmetic) -> None:
        self.f, self.p = module.inner(f"{name}{height}", TileWords)
        self.height, self.arithmetic = height, arithmetic
        self.groups = [[self.f.vectors(2) for _ in range(height)] for _ in range(HEIGHT // height)]
        self.sums = self.groups[0]
        self.x, *self.weights = self.f.vectors(3)
        self.pairs = self.f.vectors(height)

    def clear(self) -> None:
        for s in (s for group in self.groups for pair in group for s in pair):
            self.f.set(s, ZERO)

    def repeat(
        self, turns: I32, a: Ptr, load: Load, advance: Callable[[], object], distance: int = 1
    ) -> None:  # fmt: skip
        """Add two k in each of `turns` turns, `distance` pairs apart in A, whose address is in `a`. load(k, to): emits
        code that sets two locals to the weights of one of them; advance: moves it to the next turn's."""
        f = self.f
        with f.if_(turns), f.loop() as again:
            self.add(a, load, 2)
            f.add(a, 8 * self.height * distance)
            advance()
            f.br_if(again, turns.tee(turns - 1))

    def add(self, a: Ptr, load: Load, some: int) -> None:
        f = self.f
        if f.module.cranelift:
            for r, pair in enumerate(self.pairs):
                f.set(pair, a.load(8 * r, "v128.load64_zero"))
        for k in range(some):
            load(k, self.weights)
            for r, sums in enumerate(self.groups[k % len(self.groups)]):
                if f.module.cranelift:  # a load with splat is three instructions in wasmtime
                    f.set(self.x, shuffle32(self.pairs[r], self.pairs[r], k, k, k, k))
                else:
                    f.set(self.x, a.splat(8 * r + 4 * k))
                for s, y in zip(sums, self.weights, strict=True):
                    self.arithmetic.multiply_add(f, s, self.x, y)

    def join(self) -> None:
        """Add the groups."""
        for group in self.groups[1:]:
            for s, t in zip(self.sums, group, strict=True):
                for half in (0, 1):
                    self.f.set(s[half], self.arithmetic.add(s[half], t[half]))

    def store(self) -> Function:
        for n, s in enumerate(s for pair in self.sums for s in pair):
            self.f.store(self.p.sums, s, 16 * n)
        return self.f


@once
def _float_tile(module: Module, height: int, arithmetic: Arithmetic) -> Function:
    tile = _Tile(module, "few_floats", height, arithmetic)
    f, p = tile.f, tile.p

    def load(k: int, to: Sequence[V128]) -> None:
        for half, y in enumerate(to):
            f.set(y, p.b.load(4 * PANEL * k + 16 * half))

    _whole_column(tile, 4 * PANEL, load)
    with f.if_(p.k & 1):
        tile.add(p.a, load, 1)
    tile.join()
    return tile.store()


@once
def _half_floats_tile(module: Module, height: int, arithmetic: Arithmetic, careful: bool) -> Function:
    """careful: some of B are infinite or NaN"""
    tile, layout = _Tile(module, "few_halves", height, arithmetic), WeightCodes(16)
    f, p, (root,) = tile.f, tile.p, tile.f.vectors(1)
    codes = PairedCodes(f, layout, p.b, careful)
    f.add(p.k, 1)  # behind an odd K are a zero of A and one of B
    _whole_column(tile, layout.k_bytes, codes.load)
    tile.join()
    f.set(root, f32x4.of(ROOT))
    for s in (s for pair in tile.sums for s in pair):
        f.set(s, f32x4.mul(s, root))
    return tile.store()


def _whole_column(tile: _Tile, k_bytes: int, load: Load) -> None:
    """Set the sums to those of all pairs of k. k_bytes: of a panel"""
    f, p, (turns,), most = tile.f, tile.p, tile.f.integers(1), AHEAD // k_bytes

    def add() -> None:
        tile.repeat(turns, p.a, load, lambda: f.add(p.b, 2 * k_bytes))

    tile.clear()
    with f.countdown(p.k, most):
        load_ahead(f, p.b, p.ldb, AHEAD)
        f.set(turns, most // 2)
        add()
    f.set(turns, p.k >> 1)
    add()


def _codes_tile(module: Module, height: int, layout: WeightCodes, arithmetic: Arithmetic) -> Function:
    if layout.bits == 16:
        return _any_half_floats_tile(module, height, arithmetic)
    tile, pairs = _Tile(module, f"few_{layout.bits}bits", height, arithmetic), layout.pairs
    f, p = tile.f, tile.p
    (left, turns), (a, b) = f.integers(2), f.pointers(2)
    codes = PairedCodes(f, layout, b)
    for n in range(2 * height):
        f.store(p.sums, ZERO, 16 * n)
    with f.if_(p.k), f.loop() as again:
        f.set(left, minimum(p.k, p.size)).set(p.k, p.k - left)
        with f.if_((p.b & AHEAD - 1).lt_u(p.size * layout.k_bytes)):
            load_ahead(f, p.b, p.ldb, AHEAD)
        tile.clear()
        for pair in range(pairs):
            f.set(turns, left + (2 * (pairs - pair) - 1) >> pairs)
            f.set(a, p.a + 8 * height * pair).set(b, p.b)
            tile.repeat(
                turns, a, partial(codes.load, pair=pair), lambda: f.add(b, 2 * pairs * layout.k_bytes), pairs
            )  # fmt: skip
        f.set(a, p.a).add(p.a, left * (4 * height)).add(p.b, left * layout.k_bytes)
        tile.join()
        _add_block(tile, layout, a)
        f.add(p.steps, layout.step_bytes).br_if(again, p.k)
    return f


def _any_half_floats_tile(module: Module, height: int, arithmetic: Arithmetic) -> Function:
    f, p = module.inner(f"few_16bits{height}", TileWords)
    with f.if_(p.steps.i32(0, "i32.load8_u")):
        f.call(_half_floats_tile(module, height, arithmetic, True), *p)
        f.otherwise().call(_half_floats_tile(module, height, arithmetic, False), *p)
    return f


def _add_block(tile: _Tile, layout: WeightCodes, a: Ptr) -> None:
    """Add a block's sums, scaled, and the sums of its A, which begins at `a`, times the addends."""
    f, p = tile.f, tile.p
    step, total = f.vectors(2)
    of_a = f.vectors(tile.height // 2 if layout.zeros else 0)
    if layout.zeros:
        for s in of_a:
            f.set(s, ZERO)
        with f.until(a, p.a, 8 * tile.height):
            for n, s in enumerate(of_a):
                f.set(s, f32x4.add(a.load(16 * n), s))
        for s in of_a:
            f.set(s, f32x4.add(s, shuffle32(s, s, 1, 0, 3, 2)))
    for r, pair in enumerate(tile.sums):
        for half, s in enumerate(pair):
            f.set(total, p.sums.load(32 * r + 16 * half)).set(step, p.steps.load(16 * half))
            tile.arithmetic.multiply_add(f, total, s, step)
            if layout.zeros:
                lane = 2 * (r % 2)
                f.set(s, shuffle32(of_a[r // 2], of_a[r // 2], lane, lane, lane, lane))
                f.set(step, p.steps.load(4 * PANEL + 16 * half))
                tile.arithmetic.multiply_add(f, total, s, step)
            f.store(p.sums, total, 32 * r + 16 * half)
    f.release(step, total, *of_a)


# ── panels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


MakeTile = Callable[..., Function]  # (module, height, arithmetic=)


@once
def _finish(module: Module, height: int, epilogue: Epilogue) -> Function:
    """Apply the epilogue to a tile's sums, and store them in C."""
    store_part(module)
    f, p, own = _few_function(module, f"few_finish{height}")
    sums = [f.vectors(2) for _ in range(height)]
    _, c, rows = row_pointers(f, p, height)
    for n, s in enumerate(s for pair in sums for s in pair):
        f.set(s, own.sums.load(16 * n))
    finish_tile(f, p, c, rows, sums, epilogue)
    return f


@once
def few_panel(
    module: Module, arithmetic: Arithmetic, epilogue: Epilogue, layout: WeightCodes | None, make: MakeTile | None = None
) -> Function:  # fmt: skip
    """A function of Block and Few for all rows and one panel, of float32 or of codes. make: of other tiles"""
    make = make or (partial(_codes_tile, layout=layout) if layout else _float_tile)
    tiles = {height: make(module, height, arithmetic=arithmetic) for height in (HALF, HEIGHT)}
    finish = {height: _finish(module, height, epilogue) for height in tiles}
    f, p, own = _few_function(module, "few_panel")
    if layout is None:  # two rows read about as many lines of B at a time as one
        f.set(p.ldb, select(0, p.ldb, p.rows.le_s(HALF)))

    def tile(height: int) -> None:
        f.call(tiles[height], *TileWords(p.a, p.b, p.ldb, p.k, *own, p.lda, p.rows))
        f.call(finish[height], *p, *own)

    with f.loop() as again:
        by_height(f, p.rows, tile)
        f.set(p.ldb, 0).add(p.a, p.lda * HEIGHT).add(p.c, p.ldc * HEIGHT)
        f.add(p.row, HEIGHT).add(p.rows, -HEIGHT).br_if(again, p.rows.gt_s(0))
    return f


def multiply_few_rows(f: Function, p: Block, own: Few, panel: Function, step: I32, steps: I32) -> None:
    """Multiply a block of C. p: changed; panel: `few_panel`; step, steps: the bytes between panels and between their
    steps."""
    with f.loop() as again:
        f.call(panel, *p, *own).add(p.b, step).add(own.steps, steps)
        f.add(p.c, 4 * PANEL).add(p.col, PANEL).add(p.cols, -PANEL).br_if(again, p.cols.gt_s(0))
