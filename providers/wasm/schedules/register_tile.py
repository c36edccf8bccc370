"""Register tiles: rows of A times packed panels of B, the inner kernels of matmul and conv.

A *panel* is [K][8] floats: eight columns of B, zero padded. A *block function* has the signature BLOCK and computes
C[rows, cols] (+)= A[rows, k] * B[k, cols] for one block, which the caller chooses to fit the caches:

    a, lda      address of the first row, bytes between rows (k is contiguous)
    b, ldb      address of the first panel, bytes between panels
    k           length of the product; 0 gives zeros
    c, ldc      address of the block, bytes between rows
    cols, rows  size of the block, both at least 1
    flags       FIRST: start from zero instead of from C;  LAST: apply the epilogue
    bias, args, batch, row, col   for the epilogue; row and col are those of the block's corner

Rows past the end repeat the last row: they load, compute and store the same values and need no other code. Columns past
the end are computed from the padding and not stored.

V8 allocates 16 vector registers. A 6x8 tile with a fused multiply-add or a dot product that adds needs 12 for sums, 2
for the panel and 1 for a splat; without it the product needs another one, so the tile is 4x8. Larger tiles spill and
run at half the speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..printer.assembler import Function, Module, helper, once, typed
from ..printer.values import I32, V128, Ptr, ceil_div, constant, f32x4, minimum, select, shuffle32
from .arithmetic import Arithmetic

PANEL = 8
LINE, AHEAD = 64, 512  # bytes of a cache line, and of those that are loaded ahead together
FIRST, LAST = 1, 2
FINISH = ("args", "batch", "row", "rows", "col", "cols")
Sums = Sequence[Sequence[V128]]  # of a tile: [row][half]


class Block(NamedTuple):
    """Parameters of a block function, and the block of a work unit."""

    a: Ptr
    lda: I32
    b: Ptr
    ldb: I32
    k: I32
    c: Ptr
    ldc: I32
    cols: I32
    rows: I32
    flags: I32
    bias: Ptr
    args: Ptr
    batch: I32
    row: I32
    col: I32


class Unit(NamedTuple):
    """Parameters of a function that computes a work unit of a kernel.

    reuse: whether scratch, which is the thread's, still has what the previous unit wrote"""

    args: Ptr
    unit: I32
    scratch: Ptr
    reuse: I32


BLOCK = Block._fields


def block_of(p: Mapping[str, Any]) -> Block:
    """A block whose locals are known by name."""
    return typed(Block, [p[name] for name in BLOCK])


def pick_rows(arithmetic: Arithmetic, cranelift: bool = False) -> int:
    """Rows of the register tile.

    Chromium 156, Zen 5, one thread, GFLOP/s (a loop of nothing but fused multiply-adds reaches 59): 512x512x512 57
    relaxed, 52 plain; 1024x1024x1024 55 and 50; 128x384x384 57 and 54.
    """
    return 4 if cranelift or arithmetic in (Arithmetic.FLOAT, Arithmetic.INT16) else 6


@dataclass(frozen=True)
class Epilogue:
    """Operations on finished sums before they are stored: + bias, then clip.

    bias:      "" none, "row" bias[row] (conv), "col" bias[col] (matmul), read up to 12 bytes past the row's end
    low, high: clip bounds or None; NaN passes through. (0, None) is relu
    block:     a function of the same module that a routine calls for each finished block while it is in cache:
               (args, batch, row, rows, col, cols); it changes C in place. Tiles do not call it
    """

    bias: str = ""
    low: float | None = None
    high: float | None = None
    block: Function | None = None
    extra: int = 0

    def __bool__(self) -> bool:
        return self.tile() != NO_EPILOGUE

    def tile(self) -> Epilogue:
        """Return the part that register tiles apply."""
        return replace(self, block=None, extra=0) if self.block else self

    def finish(self, f: Function, p: object) -> None:
        """Call `block`, if any. p: has its locals as attributes or by name"""
        if self.block:
            words: list[Any] = [p[name] if isinstance(p, Mapping) else getattr(p, name) for name in FINISH]
            f.call(self.block, *words)


NO_EPILOGUE = Epilogue()


def call_block(f: Function, target: Function, p: Block | Mapping[str, int]) -> None:
    """Call a block function."""
    f.call(target, *p if isinstance(p, Block) else block_of(p))


@contextmanager
def block_of_unit(f: Function, p: Any, unit: I32, rows: tuple[I32, I32], cols: tuple[I32, I32]) -> Iterator[I32]:
    """Set row, rows, col and cols of p to the block of a work unit; row blocks vary fastest. rows, cols: an extent and
    the size of its blocks. Yields the quotient: the unit's number divided by the number of blocks."""
    with f.scratch("i32", 2) as (count, rest):
        for at, size, (extent, step), source in ((p.row, p.rows, rows, unit), (p.col, p.cols, cols, rest)):
            f.set(count, ceil_div(extent, step))
            f.set(at, source % count * step)
            f.set(size, extent - at).set(size, minimum(size, step))
            f.set(rest, source // count)
        yield rest


def flags_of(k0: I32, taken: I32, k: I32) -> I32:
    """FIRST on the first block of k, LAST on the last."""
    return k0.eqz() * FIRST | (k0 + taken).ge_u(k) * LAST


def call_units(
    f: Function, unit: Function, scratch: Ptr, rows: tuple[I32, I32], more: I32 | None = None,
    start: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Call `unit`, a function of Unit, for each work unit of a kernel, with reuse if the previous one had the same
    columns; `more` may add a condition. rows: the number of rows and the size of their blocks; start: emits code to run
    before the first unit."""
    args, begin, end, _ = f.params
    block, previous = f.integers(2)
    f.set(previous, -1)
    start()
    with f.until(begin, end):
        f.set(block, begin // ceil_div(*rows))
        same = block.eq(previous)
        f.call(unit, args, begin, scratch, same if more is None else same & more)
        f.set(previous, block)


def store_four(f: Function, address: Ptr, value: V128, left: I32) -> None:
    """Store four floats, or the first `left` of them."""
    with f.if_(left.ge_s(4)):
        f.store(address, value)
        f.otherwise().call(store_part, address, value, value, left)


@helper("store_part")
def store_part(f: Function, address: Ptr, low: V128, high: V128, count: I32) -> None:
    """Store exactly `count` floats, 1 to 7."""
    with f.block():
        with f.if_(count & 4):
            f.store(address, low).add(address, 16).set(low, high)
        with f.if_(count & 2):
            f.store_lane("v128.store64_lane", address, low, 0).add(address, 8)
            f.set(low, shuffle32(low, low, 2, 3, 2, 3))
        with f.if_(count & 1):
            f.store_lane("v128.store32_lane", address, low, 0)


def apply_epilogue(f: Function, epilogue: Epilogue, bias: Ptr, row: I32, col: I32, value: V128) -> None:
    """value = epilogue(value) for columns col..col+3 of `row` (locals)."""
    if epilogue.bias == "row":
        f.set(value, f32x4.add(value, (bias + (row << 2)).splat()))
    elif epilogue.bias:
        f.set(value, f32x4.add(value, (bias + (col << 2)).load()))
    # x.pmax(low) is x < low ? low : x, so NaN stays
    if epilogue.low is not None:
        f.set(value, f32x4.pmax(value, f32x4.of(epilogue.low)))
    if epilogue.high is not None:
        f.set(value, f32x4.pmin(value, f32x4.of(epilogue.high)))


def _step(f: Function, rows: Sequence[Ptr], panel: Ptr, sums: Sums, u: int, arithmetic: Arithmetic) -> None:
    """sums += A[rows, k] * panel[k] for the u-th k after the pointers."""
    with f.scratch("v128", 3) as (x, low, high):
        f.set(low, panel.load(32 * u)).set(high, panel.load(32 * u + 16))
        for pointer, (s0, s1) in zip(rows, sums, strict=True):
            f.set(x, pointer.splat(4 * u))
            arithmetic.multiply_add(f, s0, x, low)
            arithmetic.multiply_add(f, s1, x, high)


def _two_steps(f: Function, rows: Sequence[Ptr], panel: Ptr, groups: Sequence[Sums], arithmetic: Arithmetic) -> None:
    """Like `_step`, for two k, with one load for their elements of A. Cranelift moves all loads to the beginning, and
    has registers for two (docs/design/cpu-kernels.md#code-for-cranelift)."""
    with f.scratch("v128", len(rows)) as pairs, f.scratch("v128", 3) as (x, low, high):
        for pointer, pair in zip(rows, pairs, strict=True):
            f.set(pair, pointer.load(0, "v128.load64_zero"))
        for u in (0, 1):
            f.set(low, panel.load(32 * u)).set(high, panel.load(32 * u + 16))
            for pair, (s0, s1) in zip(pairs, groups[u % len(groups)], strict=True):
                f.set(x, shuffle32(pair, pair, u, u, u, u))
                arithmetic.multiply_add(f, s0, x, low)
                arithmetic.multiply_add(f, s1, x, high)


def _all_k(f: Function, p: Block, a: Sequence[Ptr], groups: Sequence[Sums], arithmetic: Arithmetic) -> None:
    """Sum all k for one panel: sums[row][half] in each of the alternating groups, which hide latency in tiles of few
    rows."""
    *pointers, panel = f.pointers(len(a) + 1)
    for pointer, base in zip(pointers, a, strict=True):
        f.set(pointer, base)
    f.set(panel, p.b)
    (n,) = f.integers(1)
    shift = 1 if f.module.cranelift else 2
    for unroll, count in ((1 << shift, p.k >> shift), (1, p.k & (1 << shift) - 1)):
        with f.if_(n.tee(count)), f.loop() as again:
            if unroll == 2:
                _two_steps(f, pointers, panel, groups, arithmetic)
            else:
                for u in range(unroll):
                    _step(f, pointers, panel, groups[u % len(groups)], u, arithmetic)
            for pointer in pointers:
                f.add(pointer, 4 * unroll)
            f.add(panel, 32 * unroll)
            f.br_if(again, n.tee(n - 1))
    f.release(n, *pointers, panel)


def load_ahead(f: Function, at: Ptr, end: I32, count: int) -> None:
    """Load from each line of the `count` bytes that follow as many at an address, unless they reach past `end`."""
    with f.if_((at + 2 * count).le_u(end)):
        for line in range(count, 2 * count, LINE):
            f.drop(at.i32(line, "i32.load8_u"))


def row_pointers(f: Function, p: Block, height: int) -> tuple[list[Ptr], list[Ptr], list[I32]]:
    """Set the addresses and numbers of a block's first rows in A and in C; past the end, the last row repeats."""
    a, c, rows = f.pointers(height), f.pointers(height), f.integers(height)
    with f.scratch("i32", 1) as (i,):
        for r in range(height):
            f.set(i, clamped_row(f, p.rows, r))
            f.set(rows[r], p.row + i)
            f.set(a[r], p.a + i * p.lda)
            f.set(c[r], p.c + i * p.ldc)
    return a, c, rows


def clamped_row(f: Function, rows: I32, row: int) -> I32:
    """A constant row of a block, or the last one if the block ends before it."""
    with f.scratch("i32", 1) as (last,):
        return select(row, last.tee(rows - 1), constant(row).lt_s(last))


def _each_half(f: Function, p: Block, action: Callable[[int], None]) -> None:
    """Emit `action` for the halves of a panel that have columns."""
    action(0)
    with f.if_(p.cols.gt_s(4)):
        action(1)


def add_tile(f: Function, p: Block, c: Sequence[Ptr], sums: Sums, add: Callable[..., V128] | None) -> None:
    """Add C to the sums, unless the block starts from zero. Without `add`, set the sums to C."""

    def load(j: int) -> None:
        for address, s in zip(c, sums, strict=True):
            before = address.load(16 * j)
            f.set(s[j], add(s[j], before) if add else before)

    with f.if_((p.flags & FIRST).eqz()):
        _each_half(f, p, load)


def finish_tile(f: Function, p: Block, c: Sequence[Ptr], rows: Sequence[I32], sums: Sums, epilogue: Epilogue) -> None:
    """Apply the epilogue and store; the second half of a panel only if it has columns."""

    def apply(j: int) -> None:
        with f.scratch("i32", 1) as (col,):
            f.set(col, p.col + 4 * j)
            for row, s in zip(rows, sums, strict=True):
                apply_epilogue(f, epilogue, p.bias, row, col, s[j])

    if epilogue:
        with f.if_(p.flags & LAST):
            _each_half(f, p, apply)
    with f.if_(p.cols.ge_s(PANEL)):
        for address, s in zip(c, sums, strict=True):
            f.store(address, s[0]).store(address, s[1], 16)
        f.otherwise()
        for address, s in zip(c, sums, strict=True):
            f.call(store_part, address, s[0], s[1], p.cols)


def _strip(module: Module, height: int, arithmetic: Arithmetic, epilogue: Epilogue, alone: bool = False) -> Function:
    """Return a block function for 1..height rows: one register tile for each panel of the block; alone: for the first
    panel only."""
    store_part(module)
    f, p = module.inner(f"strip{height}", Block)
    a, c, rows = row_pointers(f, p, height)
    chains = {1: 2 if module.cranelift else 4, 2: 2, 3: 2}.get(height, 1)
    groups = [[f.vectors(2) for _ in range(height)] for _ in range(chains)]

    def tile() -> None:
        for group in groups:
            for total in (total for pair in group for total in pair):
                f.set(total, f32x4.of(0))
        _all_k(f, p, a, groups, arithmetic)
        for group in groups[1:]:
            for s, t in zip(groups[0], group, strict=True):
                for j in (0, 1):
                    f.set(s[j], arithmetic.add(s[j], t[j]))
        add_tile(f, p, c, groups[0], arithmetic.add)
        finish_tile(f, p, c, rows, groups[0], epilogue)

    if alone:
        tile()
        return f
    with f.loop() as again:
        tile()
        f.add(p.b, p.ldb).add(p.col, PANEL)
        for address in c:
            f.add(address, 4 * PANEL)
        f.br_if(again, p.cols.tee(p.cols - PANEL).gt_s(0))
    return f


@once
def panel_strip(module: Module, height: int, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Return a block function for 1..height rows and the first panel."""
    return _strip(module, height, arithmetic, epilogue, True)


def has_native_block(module: Module, arithmetic: Arithmetic) -> bool:
    """Whether the host provides the block function over panels in machine code."""
    if not module.imports:
        return False
    from ..printer.native_imports import BLOCKS  # pages do not load this module

    return BLOCKS.get(arithmetic.name) in module.imports


@once
def panels_block(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Return the block function over packed panels: full tiles, then a half, single or overlapping tile for the last
    rows. Where the host has machine code, it comes first."""
    full = pick_rows(arithmetic, module.cranelift)
    strips = {h: _strip(module, h, arithmetic, epilogue) for h in (full, full // 2, 1)}
    f, p = module.inner("panels_block", Block)
    with f.block() as out:
        if has_native_block(module, arithmetic):
            from ..printer.native_imports import BLOCKS
            from ..printer.native_imports import call_block as call_native

            call_native(f, BLOCKS[arithmetic.name], p._asdict(), epilogue.bias, epilogue.low, epilogue.high)
            f.br_if(out)
        with f.loop() as again:
            with f.block() as done:
                for limit, height in ((1, 1), (full // 2, full // 2)):
                    with f.if_(p.rows.le_s(limit)):
                        call_block(f, strips[height], p)
                        f.br(done)
                call_block(f, strips[full], p)
            f.add(p.a, p.lda * full).add(p.c, p.ldc * full).add(p.row, full)
            f.br_if(again, p.rows.tee(p.rows - full).gt_s(0))
    return f
