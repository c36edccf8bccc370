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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..printer.assembler import Function, Module, helper, once
from .arguments import ceil_div, minimum
from .arithmetic import Arithmetic

PANEL = 8
LINE, AHEAD = 64, 512  # bytes of a cache line, and of those that are loaded ahead together
FIRST, LAST = 1, 2
BLOCK = ("a", "lda", "b", "ldb", "k", "c", "ldc", "cols", "rows", "flags", "bias", "args", "batch", "row", "col")
FINISH = ("args", "batch", "row", "rows", "col", "cols")


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

    def finish(self, f: Function, p: dict[str, int]) -> None:
        """Call `block`, if any, with locals by name."""
        if self.block:
            f.emit(*[p[name] for name in FINISH]).call(self.block)


NO_EPILOGUE = Epilogue()


def call_block(f: Function, target: Function, p: dict[str, int]) -> None:
    """Call a block function with locals by name."""
    f.emit(*[p[name] for name in BLOCK]).call(target)


@contextmanager
def block_of_unit(
    f: Function, p: dict[str, int], unit: int, rows: tuple[int, int], cols: tuple[int, int]
) -> Iterator[int]:
    """Set row, rows, col and cols of p to the block of a work unit; row blocks vary fastest. rows, cols: pairs of
    locals, an extent and the size of its blocks. Yields a local with the quotient: the unit's number divided by the
    number of blocks."""
    with f.scratch("i32", 2) as (count, rest):
        for at, size, (extent, step), source in (("row", "rows", rows, unit), ("col", "cols", cols, rest)):
            ceil_div(f, extent, step).set(count)
            f.emit(source, count, "i32.rem_u", step, "i32.mul").set(p[at])
            f.emit(extent, p[at], "i32.sub").set(p[size])
            minimum(f, p[size], p[size], step)
            f.emit(source, count, "i32.div_u").set(rest)
        yield rest


def set_flags(f: Function, to: int, k0: int, taken: int, k: int) -> None:
    """to = FIRST on the first block of k, LAST on the last."""
    f.emit(k0, "i32.eqz").i32(FIRST).emit("i32.mul")
    f.emit(k0, taken, "i32.add", k, "i32.ge_u").i32(LAST).emit("i32.mul", "i32.or").set(to)


def call_units(
    f: Function, unit: Function, scratch: int, rows: tuple[int, int], more: tuple[int | str, ...] = (),
    start: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Call `unit` (args, unit, scratch, reuse) for each work unit of a kernel. reuse: whether the previous unit had the
    same columns, so that scratch still has the panels; `more` may add a condition. rows: locals of the number of rows
    and the size of their blocks; start: emits code to run before the first unit."""
    args, begin, end, _ = f.params
    block, previous = f.locals("i32", 2)
    f.i32(-1).set(previous)
    start()
    with f.until(begin, end):
        f.emit(begin)
        ceil_div(f, *rows).emit("i32.div_u").set(block)
        f.emit(args, begin, scratch, block, previous, "i32.eq", *more).call(unit)
        f.emit(block).set(previous)


def store_four(f: Function, address: int, value: int, left: int) -> None:
    """Store four floats, or the first `left` of them."""
    f.emit(left).i32(4).emit("i32.ge_s")
    with f.if_():
        f.emit(address, value).mem("v128.store")
        f.otherwise().emit(address, value, value, left).call(store_part)


@helper("store_part", "i32", "v128", "v128", "i32")
def store_part(f: Function, address: int, low: int, high: int, count: int) -> None:
    """Store exactly `count` floats, 1 to 7."""
    with f.block():
        f.emit(count).i32(4).emit("i32.and")
        with f.if_():
            f.emit(address, low).mem("v128.store").add(address, 16).emit(high).set(low)
        f.emit(count).i32(2).emit("i32.and")
        with f.if_():
            f.emit(address, low).mem_lane("v128.store64_lane", 0).add(address, 8)
            f.emit(low, low).shuffle32(2, 3, 2, 3).set(low)
        f.emit(count).i32(1).emit("i32.and")
        with f.if_():
            f.emit(address, low).mem_lane("v128.store32_lane", 0)


def apply_epilogue(f: Function, epilogue: Epilogue, p: dict[str, int], row: int, col: int, value: int) -> None:
    """value = epilogue(value) for columns col..col+3 of `row` (locals)."""
    if epilogue.bias:
        index = row if epilogue.bias == "row" else col
        f.emit(value, p["bias"], index).i32(2).emit("i32.shl", "i32.add")
        f.mem("v128.load32_splat" if epilogue.bias == "row" else "v128.load").emit("f32x4.add").set(value)
    # x.pmax(low) is x < low ? low : x, so NaN stays
    if epilogue.low is not None:
        f.emit(value).f32x4(epilogue.low).emit("f32x4.pmax").set(value)
    if epilogue.high is not None:
        f.emit(value).f32x4(epilogue.high).emit("f32x4.pmin").set(value)


def _step(f: Function, rows: list[int], panel: int, sums: list[list[int]], u: int, arithmetic: Arithmetic) -> None:
    """sums += A[rows, k] * panel[k] for the u-th k after the pointers."""
    with f.scratch("v128", 3) as (x, low, high):
        f.emit(panel).mem("v128.load", 32 * u).set(low)
        f.emit(panel).mem("v128.load", 32 * u + 16).set(high)
        for pointer, (s0, s1) in zip(rows, sums, strict=True):
            f.emit(pointer).mem("v128.load32_splat", 4 * u).set(x)
            arithmetic.multiply_add(f, s0, x, low)
            arithmetic.multiply_add(f, s1, x, high)


def _two_steps(f: Function, rows: list[int], panel: int, groups: list[list[list[int]]], arithmetic: Arithmetic) -> None:
    """Like `_step`, for two k, with one load for their elements of A. Cranelift moves all loads to the beginning, and
    has registers for two (docs/design/cpu-kernels.md#code-for-cranelift)."""
    with f.scratch("v128", len(rows)) as pairs, f.scratch("v128", 3) as (x, low, high):
        for pointer, pair in zip(rows, pairs, strict=True):
            f.emit(pointer).mem("v128.load64_zero").set(pair)
        for u in (0, 1):
            f.emit(panel).mem("v128.load", 32 * u).set(low).emit(panel).mem("v128.load", 32 * u + 16).set(high)
            for pair, (s0, s1) in zip(pairs, groups[u % len(groups)], strict=True):
                f.emit(pair, pair).shuffle32(u, u, u, u).set(x)
                arithmetic.multiply_add(f, s0, x, low)
                arithmetic.multiply_add(f, s1, x, high)


def _k_loop(
    f: Function, p: dict[str, int], a: list[int], groups: list[list[list[int]]], arithmetic: Arithmetic
) -> None:
    """Sum all k for one panel: sums[row][half] in each of the alternating groups, which hide latency in tiles of few
    rows."""
    pointers, panel = f.locals("i32", len(a)), f.local("i32")
    for pointer, base in zip(pointers, a, strict=True):
        f.emit(base).set(pointer)
    f.emit(p["b"]).set(panel)
    _some_k(f, p["k"], pointers, panel, groups, arithmetic)
    f.release(*pointers, panel)


def load_ahead(f: Function, at: int, end: int, count: int) -> None:
    """Load from each line of the `count` bytes that follow as many at an address, unless they reach past `end`."""
    f.emit(at).i32(2 * count).emit("i32.add", end, "i32.le_u")
    with f.if_():
        for line in range(count, 2 * count, LINE):
            f.emit(at).mem("i32.load8_u", line).emit("drop")


def _some_k(
    f: Function, k: int, pointers: list[int], panel: int, groups: list[list[list[int]]], arithmetic: Arithmetic
) -> None:
    """Add `k` products and advance the pointers."""
    n = f.local("i32")
    shift = 1 if f.module.cranelift else 2
    for unroll in (1 << shift, 1):
        f.emit(k).i32(shift if unroll > 1 else (1 << shift) - 1).emit("i32.shr_u" if unroll > 1 else "i32.and")
        f.tee(n)
        with f.if_(), f.loop() as again:
            if unroll == 2:
                _two_steps(f, pointers, panel, groups, arithmetic)
            else:
                for u in range(unroll):
                    _step(f, pointers, panel, groups[u % len(groups)], u, arithmetic)
            for pointer in pointers:
                f.add(pointer, 4 * unroll)
            f.add(panel, 32 * unroll)
            f.emit(n).i32(1).emit("i32.sub").tee(n).br_if(again)
    f.release(n)


def row_pointers(f: Function, p: dict[str, int], height: int) -> tuple[list[int], list[int], list[int]]:
    """Set the addresses and numbers of a block's first rows in A and in C; past the end, the last row repeats."""
    a, c, rows = f.locals("i32", height), f.locals("i32", height), f.locals("i32", height)
    with f.scratch("i32", 1) as (i,):
        for r in range(height):
            clamped_row(f, p["rows"], r).set(i)
            f.emit(p["row"], i, "i32.add").set(rows[r])
            f.emit(p["a"], i, p["lda"], "i32.mul", "i32.add").set(a[r])
            f.emit(p["c"], i, p["ldc"], "i32.mul", "i32.add").set(c[r])
    return a, c, rows


def clamped_row(f: Function, rows: int, row: int) -> Function:
    """Push a constant row of a block, or the last one if the block ends before it."""
    with f.scratch("i32", 1) as (last,):
        f.i32(row).emit(rows).i32(1).emit("i32.sub").tee(last).i32(row).emit(last, "i32.lt_s", "select")
    return f


def _each_half(f: Function, p: dict[str, int], action: Callable[[int], None]) -> None:
    """Emit `action` for the halves of a panel that have columns."""
    action(0)
    f.emit(p["cols"]).i32(4).emit("i32.gt_s")
    with f.if_():
        action(1)


def add_tile(f: Function, p: dict[str, int], c: list[int], sums: list[list[int]], add: str) -> None:
    """Add C to the sums, unless the block starts from zero. Without `add`, set the sums to C."""

    def load(j: int) -> None:
        for address, s in zip(c, sums, strict=True):
            if add:
                f.emit(s[j], address).mem("v128.load", 16 * j).emit(add).set(s[j])
            else:
                f.emit(address).mem("v128.load", 16 * j).set(s[j])

    f.emit(p["flags"]).i32(FIRST).emit("i32.and", "i32.eqz")
    with f.if_():
        _each_half(f, p, load)


def finish_tile(
    f: Function, p: dict[str, int], c: list[int], rows: list[int], sums: list[list[int]], epilogue: Epilogue
) -> None:
    """Apply the epilogue and store; the second half of a panel only if it has columns."""

    def apply(j: int) -> None:
        with f.scratch("i32", 1) as (col,):
            f.emit(p["col"]).i32(4 * j).emit("i32.add").set(col)
            for row, s in zip(rows, sums, strict=True):
                apply_epilogue(f, epilogue, p, row, col, s[j])

    if epilogue:
        f.emit(p["flags"]).i32(LAST).emit("i32.and")
        with f.if_():
            _each_half(f, p, apply)
    f.emit(p["cols"]).i32(PANEL).emit("i32.ge_s")
    with f.if_():
        for address, s in zip(c, sums, strict=True):
            f.emit(address, s[0]).mem("v128.store").emit(address, s[1]).mem("v128.store", 16)
        f.otherwise()
        for address, s in zip(c, sums, strict=True):
            f.emit(address, s[0], s[1], p["cols"]).call(store_part)


def _strip(module: Module, height: int, arithmetic: Arithmetic, epilogue: Epilogue, alone: bool = False) -> Function:
    """Return a block function for 1..height rows: one register tile for each panel of the block; alone: for the first
    panel only."""
    store_part(module)
    f, p = module.internal(f"strip{height}", BLOCK)
    a, c, rows = row_pointers(f, p, height)
    chains = {1: 2 if module.cranelift else 4, 2: 2, 3: 2}.get(height, 1)
    groups = [[f.locals("v128", 2) for _ in range(height)] for _ in range(chains)]

    def tile() -> None:
        for group in groups:
            for total in (total for pair in group for total in pair):
                f.f32x4(0).set(total)
        _k_loop(f, p, a, groups, arithmetic)
        for group in groups[1:]:
            for s, t in zip(groups[0], group, strict=True):
                for j in (0, 1):
                    f.emit(s[j], t[j], arithmetic.add).set(s[j])
        add_tile(f, p, c, groups[0], arithmetic.add)
        finish_tile(f, p, c, rows, groups[0], epilogue)

    if alone:
        tile()
        return f
    with f.loop() as again:
        tile()
        f.emit(p["b"], p["ldb"], "i32.add").set(p["b"]).add(p["col"], PANEL)
        for address in c:
            f.add(address, 4 * PANEL)
        f.emit(p["cols"]).i32(PANEL).emit("i32.sub").tee(p["cols"]).i32(0).emit("i32.gt_s").br_if(again)
    return f


@once
def panel_strip(module: Module, height: int, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Return a block function for 1..height rows and the first panel."""
    return _strip(module, height, arithmetic, epilogue, True)


@once
def panels_block(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Return the block function over packed panels: full tiles, then a half, single or overlapping tile for the last
    rows."""
    full = pick_rows(arithmetic, module.cranelift)
    strips = {h: _strip(module, h, arithmetic, epilogue) for h in (full, full // 2, 1)}
    f, p = module.internal("panels_block", BLOCK)
    with f.loop() as again:
        with f.block() as done:
            for limit, height in ((1, 1), (full // 2, full // 2)):
                f.emit(p["rows"]).i32(limit).emit("i32.le_s")
                with f.if_():
                    call_block(f, strips[height], p)
                    f.br(done)
            call_block(f, strips[full], p)
        f.emit(p["a"], p["lda"]).i32(full).emit("i32.mul", "i32.add").set(p["a"])
        f.emit(p["c"], p["ldc"]).i32(full).emit("i32.mul", "i32.add").set(p["c"])
        f.add(p["row"], full).emit(p["rows"]).i32(full).emit("i32.sub").tee(p["rows"])
        f.i32(0).emit("i32.gt_s").br_if(again)
    return f
