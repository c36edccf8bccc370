"""GEMV and products of few rows with B in place, without packing: block functions (register_tile.py) bound by memory
bandwidth.

`rows_block`: B is row-major, `ldb` bytes between its rows. C += a[k] * B[k, :] for eight k at a time, so that eight
streams of B are read in order and C is touched once for all of them. If B has few columns, as values in attention, and
one or two rows of A share it, sums stay in registers: with one row and 36 heads, 34 -> 47 GB/s for 1,024 x 48 in cache,
and 15 -> 27 for 4,096 x 48 from memory, the rate of a search for a byte (wasmtime, both variants in turns, timed by
hand). Sums of three rows do not fit beside the factors: three rows of B are then read in order (110 -> 88 us,
conditions below).
`cols_block`: B is transposed [N][K], `ldb` bytes between its rows. Computes dot products of four of its rows at a time,
of two with three rows of A, so that V8 spills no sum (122 -> 100 us; wasmtime 114 -> 120).
Both read each part of B from memory once for all rows of A, and into registers once for up to three, such as heads that
share keys and values: groups of 2 to 6 by 1,040 x 64 or 128 take 0.64 to 0.81 of the time (q · keys) and 0.76 to 0.83
(weights · values; wasmtime, in alternation, by hand). Times in us are for three rows by 1,040 x 64 in each of three
heads, from memory, in V8 14.6 on an EPYC of 2017 (timed by hand). B may be half floats, which halves the bytes and adds
computation: these products take 114 and 116 us, those of float32 117 and 103.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..printer.assembler import Function, Module, once
from ..printer.values import POINTERS
from .arguments import minimum
from .arithmetic import Arithmetic
from .float_loads import FloatLoads
from .pack_panels import transpose4
from .register_tile import FIRST, LAST, Block, Epilogue, apply_epilogue, call_block, store_four, store_part

HEIGHTS = (3, 2, 1)  # rows at a time
STREAMS = {1: 8, 3: 3}  # rows of B that are read together, by number of rows of A
NARROW = {1: (6, 4, 2, 1), 2: (6, 4, 2, 1)}  # vectors of columns that are summed in registers, by number of rows of A
NARROW_ROWS, NARROW_COLUMNS = 36, 256  # of B: rows of a block, which stays in a cache, and the most columns
FIRST_LEVEL = 1 << 14  # bytes of B, less than a first-level cache


@once
def _axpy(module: Module, height: int, streams: int, arithmetic: Arithmetic, half: bool) -> Function:
    """(a, lda, b, ldb, c, ldc, cols): c[m, 0:cols] += sum over `streams` k of a[m, k] * b[k, 0:cols] for `height` rows
    m; of several rows cols is a multiple of four."""
    store_part(module)
    f = module.function(f"axpy{height}_{streams}", ["i32"] * 7, export=False)
    a, lda, b, ldb, c, ldc, cols = f.params
    elements = FloatLoads(f, half)
    of, to = _rows_from(f, b, ldb, streams), _rows_from(f, c, ldc, height)
    splats = [f.locals("v128", streams) for _ in to]
    for pointer, row in zip(_rows_from(f, a, lda, height), splats, strict=True):
        for k, splat in enumerate(row):
            f.emit(pointer).mem("v128.load32_splat", 4 * k).set(splat)
    total, xs = f.local("v128"), f.locals("v128", streams if height > 1 else 1)

    def load(j: int, first: int, count: int) -> None:
        for pointer, x in zip(of[first : first + count], xs, strict=False):
            elements.four(pointer, 4 * j).set(x)

    def sums(pointer: int, row: list[Any], j: int) -> None:
        f.emit(pointer).mem("v128.load", 16 * j).set(total)
        for k, splat in enumerate(row):
            if height == 1:  # beside eight splats there are no registers for eight of B
                load(j, k, 1)
            arithmetic.multiply_add(f, total, splat, xs[0 if height == 1 else k])

    for vectors in (4, 1):
        with f.countdown(cols, 4 * vectors):
            for j in range(vectors):
                if height > 1:
                    load(j, 0, streams)
                for pointer, row in zip(to, splats, strict=True):
                    sums(pointer, row, j)
                    f.emit(pointer, total).mem("v128.store", 16 * j)
            for pointers, size in ((of, elements.size), (to, 4)):
                for pointer in pointers:
                    f.add(pointer, 4 * size * vectors)
    if height == 1:
        f.emit(cols)
        with f.if_():
            sums(c, splats[0], 0)
            f.emit(c, total, total, cols).call(store_part)
    return f


def _zero(f: Function, p: Block) -> None:
    """C = 0 if the block starts from zero."""
    f.emit(p.flags).i32(FIRST).emit("i32.and")
    with f.if_(), f.scratch("i32", 2) as (m, c):
        f.i32(0).set(m).emit(p.c).set(c)
        with f.until(m, p.rows):
            with f.scratch("i32", 2) as (at, n):  # not memory.fill: a run cannot be stopped inside of it
                f.emit(c).set(at).i32(0).set(n)
                with f.until(n, p.cols):
                    f.emit(at).i32(0).mem("i32.store").add(at, 4)
            f.emit(c, p.ldc, "i32.add").set(c)


@once
def _finish(module: Module, epilogue: Epilogue) -> Function:
    """A block function that only applies the epilogue to C."""
    store_part(module)
    f, p = module.inner("finish", Block)
    c, left, col = f.locals("i32", 3)
    v = f.local("v128")
    end = f.local("i32")
    f.emit(p.row, p.rows, "i32.add").set(end)
    with f.until(p.row, end):
        f.emit(p.c).set(c).emit(p.cols).set(left).emit(p.col).set(col)
        with f.loop() as again:
            f.emit(c).mem("v128.load").set(v)
            apply_epilogue(f, epilogue, p.bias, p.row, col, v)
            store_four(f, POINTERS[c], v, left)
            f.add(c, 16).add(col, 4).add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
        f.emit(p.c, p.ldc, "i32.add").set(p.c)
    return f


def finish_call(f: Function, p: Block, epilogue: Epilogue) -> None:
    """Apply the epilogue to C in the last block of k."""
    if epilogue:
        finish = _finish(f.module, epilogue)
        f.emit(p.flags).i32(LAST).emit("i32.and")
        with f.if_():
            call_block(f, finish, p)


@once
def _narrow(module: Module, height: int, vectors: int, arithmetic: Arithmetic, half: bool) -> Function:
    """(a, lda, b, ldb, c, ldc, k): c[m, 0:4 vectors] += sum over k of a[m, k] * b[k, 0:4 vectors] for `height` rows m,
    in registers."""
    f = module.function(f"narrow{height}_{vectors}", ["i32"] * 7, export=False)
    a, lda, b, ldb, c, ldc, k = f.params
    pairs = half and vectors > 1
    elements = FloatLoads(f, half, pairs)
    at, to = _rows_from(f, a, lda, height), _rows_from(f, c, ldc, height)
    totals, xs, ys = [f.locals("v128", vectors) for _ in at], f.locals("v128", height), f.locals("v128", 1 + pairs)
    for pointer, total in zip(to, totals, strict=True):
        for j, t in enumerate(total):
            f.emit(pointer).mem("v128.load", 16 * j).set(t)
    with f.block() as out, f.loop() as again:
        f.emit(k, "i32.eqz").br_if(out)
        for pointer, x in zip(at, xs, strict=True):
            f.emit(pointer).mem("v128.load32_splat").set(x).add(pointer, 4)
        for j in range(0, vectors, len(ys)):
            if pairs:
                elements.eight(b, 4 * j, ys)
            else:
                elements.four(b, 4 * j).set(ys[0])
            for x, total in zip(xs, totals, strict=True):
                for n, y in enumerate(ys):
                    arithmetic.multiply_add(f, total[j + n], x, y)
        f.emit(b, ldb, "i32.add").set(b).add(k, -1).br(again)
    for pointer, total in zip(to, totals, strict=True):
        for j, t in enumerate(total):
            f.emit(pointer, t).mem("v128.store", 16 * j)
    return f


def _rows_from(f: Function, first: int, step: int, count: int) -> list[Any]:
    """Return locals with `count` addresses, `step` bytes apart."""
    rows = [first, *f.locals("i32", count - 1)]
    _steps(f, first, step, rows)
    return rows


def _by_heights(f: Function, rows: Any, each: Callable[[int], None]) -> None:
    """Split rows into threes and twos; four become two and two, so that only one row is computed alone."""
    with f.scratch("i32", 1) as (left,):
        f.emit(rows).set(left)
        for height in HEIGHTS:
            with f.block() as out, f.loop() as again:
                f.emit(left).i32(height).emit("i32.lt_s")
                if height == 3:
                    f.emit(left).i32(4).emit("i32.eq", "i32.or")
                f.br_if(out)
                each(height)
                f.add(left, -height).br(again)


def _narrow_block(f: Function, p: Block, arithmetic: Arithmetic, half: bool) -> None:
    """Write the loops for a B of few columns, by blocks of its rows that stay in a cache for all rows of A. Sums of one
    or two rows of A are in
    registers; those of three do not fit beside the factors, so rows of B are read in order."""
    a, row, pa, pc, b, c, cols, k, left = f.locals("i32", 9)

    def in_registers(height: int) -> None:
        f.emit(row).set(b).emit(pc).set(c).emit(p.cols).set(cols)
        for vectors in NARROW[height]:
            with f.countdown(cols, 4 * vectors):
                narrow = _narrow(f.module, height, vectors, arithmetic, half)
                f.emit(pa, p.lda, b, p.ldb, c, p.ldc, k).call(narrow)
                f.add(b, (8 if half else 16) * vectors).add(c, 16 * vectors)

    def rows(height: int) -> None:
        if height in NARROW:
            in_registers(height)
        else:
            _streamed(f, p, height, (pa, row, pc, k), arithmetic, half)
        _next_rows(f, p, height, pa, pc)

    f.emit(p.a).set(a).emit(p.b).set(row).emit(p.k).set(left)
    with f.block() as done, f.loop() as blocks:
        f.emit(left, "i32.eqz").br_if(done)
        f.i32(NARROW_ROWS).set(k)
        minimum(f, k, k, left)
        f.emit(a).set(pa).emit(p.c).set(pc)
        _by_heights(f, p.rows, rows)
        f.emit(a, k).i32(2).emit("i32.shl", "i32.add").set(a)
        f.emit(row, k, p.ldb, "i32.mul", "i32.add").set(row).emit(left, k, "i32.sub").set(left).br(blocks)
    f.release(a, row, pa, pc, b, c, cols, k, left)


def _streamed(
    f: Function, p: Block, height: int, at: tuple[int, int, int, int], arithmetic: Arithmetic, half: bool
) -> None:
    """c[m] += a[m] * b for `height` rows m of A; at: the locals a, b, c, and the number of k."""
    a, b, k = f.locals("i32", 3)
    c = at[2]
    for to, value in zip((a, b, k), (at[0], at[1], at[3]), strict=True):
        f.emit(value).set(to)
    for streams in (STREAMS[height], 1):
        with f.countdown(k, streams):
            axpy = _axpy(f.module, height, streams, arithmetic, half)
            f.emit(a, p.lda, b, p.ldb, c, p.ldc, p.cols).call(axpy)
            f.add(a, 4 * streams).emit(b, p.ldb).i32(streams).emit("i32.mul", "i32.add").set(b)
    f.release(a, b, k)


def _next_rows(f: Function, p: Block, height: int, a: int, c: int) -> None:
    for pointer, step in ((a, p.lda), (c, p.ldc)):
        f.emit(pointer, step).i32(height).emit("i32.mul", "i32.add").set(pointer)


@once
def rows_block(module: Module, arithmetic: Arithmetic, epilogue: Epilogue, half: bool) -> Function:
    """A block function over row-major B, of float32 or half floats."""
    kernels = {n: _axpy(module, 1, n, arithmetic, half) for n in (STREAMS[1], 1)}
    for height in HEIGHTS:
        for vectors in NARROW.get(height, ()):
            _narrow(module, height, vectors, arithmetic, half)
    for streams in (STREAMS[3], 1):
        _axpy(module, 3, streams, arithmetic, half)
    f, p = module.inner("rows_block", Block)
    a, b, left, m, pa, pc = f.locals("i32", 6)
    _zero(f, p)
    f.emit(p.a).set(a).emit(p.b).set(b).emit(p.k).set(left)
    f.emit(p.cols).i32(3).emit("i32.and", "i32.eqz", p.cols).i32(NARROW_COLUMNS).emit("i32.le_s", "i32.and")
    with f.if_():
        _narrow_block(f, p, arithmetic, half)
        f.i32(0).set(left)
    for streams, kernel in kernels.items():
        with f.countdown(left, streams):
            f.emit(a).set(pa).emit(p.c).set(pc).i32(0).set(m)
            with f.until(m, p.rows):
                f.emit(pa, p.lda, b, p.ldb, pc, p.ldc, p.cols).call(kernel)
                f.emit(pa, p.lda, "i32.add").set(pa).emit(pc, p.ldc, "i32.add").set(pc)
            f.add(a, 4 * streams).emit(b, p.ldb).i32(streams).emit("i32.mul", "i32.add").set(b)
    finish_call(f, p, epilogue)
    return f


class _Dots:
    """(a, lda, b, ldb, c, ldc, cols, k): c[m, n] += dot product of a[m] and b[n] for `height` rows m, four n at a
    time."""

    def __init__(self, module: Module, height: int, arithmetic: Arithmetic, half: bool) -> None:
        store_part(module)
        self.f = f = module.function(f"dots{height}", ["i32"] * 8, export=False)
        self.arithmetic, self.elements, self.half = arithmetic, FloatLoads(f, half, half), half
        self.a, self.lda, b, ldb, c, ldc, cols, self.k = f.params
        self.at, of, self.left = f.locals("i32", height), f.locals("i32", 4), f.local("i32")
        few = 2 if height == 3 else 4  # n at a time: V8 has no registers for four
        turns = 1 if height == 2 or half and height == 3 else 2  # alternating sums hide latency but take registers
        self.turns = [[f.locals("v128", few) for _ in self.at] for _ in range(turns)]
        self.xs, self.ys = f.locals("v128", height), f.locals("v128", 1 + half)
        parts = [f.locals("v128", 4) for _ in self.at]
        with f.loop() as again:
            _four_of(f, b, ldb, cols, of)
            for n in range(0, 4, few):
                self.products(of[n : n + few], [part[n : n + few] for part in parts])
            with f.scratch("i32", 1) as (to,):
                f.emit(c).set(to)
                for part in parts:
                    _add_dots(f, part, to, cols)
                    f.emit(to, ldc, "i32.add").set(to)
            f.emit(b, ldb).i32(4).emit("i32.mul", "i32.add").set(b).add(c, 16)
            f.add(cols, -4).emit(cols).i32(0).emit("i32.gt_s").br_if(again)

    def products(self, of: list[Any], to: list[list[Any]]) -> None:
        """to[m][n] = the products of all rows of A with these rows of B, summed by lanes; advances their addresses."""
        f = self.f
        _steps(f, self.a, self.lda, self.at)
        f.emit(self.k).set(self.left)
        for total in (s for turn in self.turns for row in turn for s in row):
            f.f32x4(0).set(total)
        for count in (16, 4, 1):
            with f.countdown(self.left, count):
                if count == 16 and self.half:
                    self.eight(of, 0)
                    self.eight(of, 2)
                else:
                    for u in range(max(count // 4, 1)):
                        self.step(of, u, count == 1)
                for pointers, size in ((self.at, 4), (of, self.elements.size)):
                    for pointer in pointers:
                        f.add(pointer, size * count)
        for row, sums in enumerate(to):
            for n, s in enumerate(sums):
                f.emit(self.turns[0][row][n])
                if len(self.turns) > 1:
                    f.emit(self.turns[1][row][n], "f32x4.add")
                f.set(s)

    def step(self, of: list[Any], u: int, alone: bool) -> None:
        """Multiply the u-th four k, or a single k."""
        f, y = self.f, self.ys[0]
        for pointer, x in zip(self.at, self.xs, strict=True):
            f.emit(pointer).mem("v128.load32_zero" if alone else "v128.load", 16 * u).set(x)
        for n, pointer in enumerate(of):
            (self.elements.one(pointer) if alone else self.elements.four(pointer, 4 * u)).set(y)
            for x, total in zip(self.xs, self.turns[u % len(self.turns)], strict=True):
                self.arithmetic.multiply_add(f, total[n], x, y)

    def eight(self, of: list[Any], u: int) -> None:
        """Multiply the u-th four k and the next four, of half floats. A, in a cache, is loaded again for each row."""
        f = self.f
        for n, pointer in enumerate(of):
            self.elements.eight(pointer, 4 * u, self.ys)
            for turn, y in enumerate(self.ys):
                for row, x, total in zip(self.at, self.xs, self.turns[turn % len(self.turns)], strict=True):
                    f.emit(row).mem("v128.load", 16 * (u + turn)).set(x)
                    self.arithmetic.multiply_add(f, total[n], x, y)


@once
def _dots(module: Module, height: int, arithmetic: Arithmetic, half: bool) -> Function:
    return _Dots(module, height, arithmetic, half).f


def _four_of(f: Function, b: int, ldb: int, left: int, to: list[Any]) -> None:
    """Set the addresses of four rows of B; past the end, the last row repeats."""
    with f.scratch("i32", 1) as (step,):
        f.emit(b).set(to[0])
        for n in range(1, 4):
            f.emit(ldb).i32(0).emit(left).i32(n).emit("i32.gt_s", "select").set(step)
            f.emit(to[n - 1], step, "i32.add").set(to[n])


def _steps(f: Function, first: int, step: int, to: list[Any]) -> None:
    """Addresses from `first` on, `step` bytes apart."""
    if to[0] != first:
        f.emit(first).set(to[0])
    for before, after in zip(to, to[1:], strict=False):
        f.emit(before, step, "i32.add").set(after)


def _add_dots(f: Function, parts: list[Any], c: Any, left: Any) -> None:
    """c[0:left] += the lane sums of four vectors."""
    transpose4(f, parts)
    s0, s1, s2, s3 = parts
    f.emit(c).mem("v128.load").emit(s0, s1, "f32x4.add", s2, s3, "f32x4.add", "f32x4.add", "f32x4.add").set(s0)
    store_four(f, POINTERS[c], s0, left)


@once
def cols_block(module: Module, arithmetic: Arithmetic, epilogue: Epilogue, half: bool) -> Function:
    """A block function over transposed B, by blocks of its rows that stay in the first-level cache."""
    dots = {height: _dots(module, height, arithmetic, half) for height in HEIGHTS}
    f, p = module.inner("cols_block", Block)
    a, b, c, left, some, pc = f.locals("i32", 6)

    def rows(height: int) -> None:
        f.emit(a, p.lda, b, p.ldb, pc, p.ldc, some, p.k).call(dots[height])
        _next_rows(f, p, height, a, pc)

    _zero(f, p)
    f.emit(p.b).set(b).emit(p.c).set(c).emit(p.cols).set(left)
    with f.loop() as again:
        f.i32(FIRST_LEVEL // 4).emit(p.k).i32(1).emit("i32.or", "i32.div_u")  # k may be 0
        f.i32(-4).emit("i32.and").i32(4).emit("i32.add").set(some)
        minimum(f, some, some, left)
        f.emit(p.a).set(a).emit(c).set(pc)
        _by_heights(f, p.rows, rows)
        f.emit(b, p.ldb, some, "i32.mul", "i32.add").set(b)
        f.emit(c, some).i32(2).emit("i32.shl", "i32.add").set(c)
        f.emit(left, some, "i32.sub").tee(left).i32(0).emit("i32.gt_s").br_if(again)
    finish_call(f, p, epilogue)
    return f
