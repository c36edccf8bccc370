"""Few rows times B as it lies in memory: block functions (register_tile.py) bound by memory bandwidth, without packing.

`rows_block`: B row-major, `ldb` bytes between its rows; C += a[k] * B[k, :] for eight k at a time, so that eight
streams of B are read in order and C is touched once for all of them. Few columns, as a step of attention multiplies
values, have their sums in registers: one row, 36 heads of 1,024 x 48 in cache 34 -> 47 GB/s, of 4,096 from memory
15 -> 27, where a search for a byte has 27 (wasmtime, in turns, by hand).
`cols_block`: B given transposed [N][K], `ldb` bytes between its rows; dot products of four of them at a time.
Both read each part of B from memory once for all rows of A, and into registers once for up to three, as heads are that
share keys and values: groups of 2 to 6 by 1,040 x 64 or 128 take 0.64 to 0.81 of the time (q · keys) and 0.76 to 0.83
(weights · values; wasmtime, in turns, by hand).
"""

from __future__ import annotations

from collections.abc import Callable

from ..printer.assembler import Function, Module
from .arguments import minimum
from .arithmetic import Arithmetic
from .pack_panels import transpose4
from .register_tile import FIRST, LAST, Epilogue, apply_epilogue, block_function, call_block, store_part

_GROUP = 8
HEIGHTS = (3, 2, 1)  # rows at a time
NARROW = {1: (6, 4, 2, 1), 2: (6, 4, 2, 1), 3: (4, 2, 1)}  # vectors of columns that are summed at a time, by height
ROWS, WIDE = 32, 256


def _axpy(module: Module, group: int, arithmetic: Arithmetic) -> Function:
    """(a, b, ldb, c, cols): c[0:cols] += sum over `group` k of a[k] * b[k, 0:cols]."""

    def make() -> Function:
        store = store_part(module)
        f = module.function(f"axpy{group}", ["i32"] * 5, export=False)
        a, b, ldb, c, cols = f.params
        streams, splats, total = f.locals("i32", group), f.locals("v128", group), f.locals("v128", 2)
        for g in range(group):
            f.emit(a).mem("v128.load32_splat", 4 * g).set(splats[g])
            f.emit(b).set(streams[g]).emit(b, ldb, "i32.add").set(b)

        def sums(vectors: int) -> None:
            for j in range(vectors):
                f.emit(c).mem("v128.load", 16 * j).set(total[j])
            for g in range(group):
                for j in range(vectors):
                    with f.scratch("v128", 1) as (x,):
                        f.emit(streams[g]).mem("v128.load", 16 * j).set(x)
                        arithmetic.multiply_add(f, total[j], splats[g], x)

        for vectors in (2, 1):
            with f.block() as out, f.loop() as again:
                f.emit(cols).i32(4 * vectors).emit("i32.lt_s").br_if(out)
                sums(vectors)
                for j in range(vectors):
                    f.emit(c, total[j]).mem("v128.store", 16 * j)
                for pointer in (*streams, c):
                    f.add(pointer, 16 * vectors)
                f.add(cols, -4 * vectors).br(again)
        f.emit(cols)
        with f.if_():
            sums(1)
            f.emit(c, total[0], total[0], cols).call(store)
        return f

    return module.once(("axpy", group, arithmetic), make)


def _zero(f: Function, p: dict[str, int]) -> None:
    """C = 0 where the block starts from zero."""
    f.emit(p["flags"]).i32(FIRST).emit("i32.and")
    with f.if_(), f.scratch("i32", 2) as (m, c):
        f.i32(0).set(m).emit(p["c"]).set(c)
        with f.until(m, p["rows"]):
            with f.scratch("i32", 2) as (at, n):  # memory.fill leaves WebAssembly, where a run cannot be stopped
                f.emit(c).set(at).i32(0).set(n)
                with f.until(n, p["cols"]):
                    f.emit(at).i32(0).mem("i32.store").add(at, 4)
            f.emit(c, p["ldc"], "i32.add").set(c)


def _finish(module: Module, epilogue: Epilogue) -> Function:
    """A block function that only applies the epilogue to C."""

    def make() -> Function:
        store = store_part(module)
        f, p = block_function(module, "finish")
        c, left, col = f.locals("i32", 3)
        v = f.local("v128")
        end = f.local("i32")
        f.emit(p["row"], p["rows"], "i32.add").set(end)
        with f.until(p["row"], end):
            f.emit(p["c"]).set(c).emit(p["cols"]).set(left).emit(p["col"]).set(col)
            with f.loop() as again:
                f.emit(c).mem("v128.load").set(v)
                apply_epilogue(f, epilogue, p, p["row"], col, v)
                f.emit(left).i32(4).emit("i32.ge_s")
                with f.if_():
                    f.emit(c, v).mem("v128.store")
                    f.otherwise().emit(c, v, v, left).call(store)
                f.add(c, 16).add(col, 4).add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
            f.emit(p["c"], p["ldc"], "i32.add").set(p["c"])
        return f

    return module.once(("finish", epilogue.key()), make)


def _finish_call(f: Function, p: dict[str, int], epilogue: Epilogue) -> None:
    if epilogue:
        finish = _finish(f.module, epilogue)
        f.emit(p["flags"]).i32(LAST).emit("i32.and")
        with f.if_():
            call_block(f, finish, p)


def _narrow(module: Module, height: int, vectors: int, arithmetic: Arithmetic) -> Function:
    """(a, lda, b, ldb, c, ldc, k): c[m, 0:4 vectors] += sum over k of a[m, k] * b[k, 0:4 vectors] for so many rows m,
    all in registers."""

    def make() -> Function:
        f = module.function(f"narrow{height}_{vectors}", ["i32"] * 7, export=False)
        a, lda, b, ldb, c, ldc, k = f.params
        at, to = _rows_from(f, a, lda, height), _rows_from(f, c, ldc, height)
        totals, xs, y = [f.locals("v128", vectors) for _ in at], f.locals("v128", height), f.local("v128")
        for pointer, total in zip(to, totals, strict=True):
            for j, t in enumerate(total):
                f.emit(pointer).mem("v128.load", 16 * j).set(t)
        with f.block() as out, f.loop() as again:
            f.emit(k, "i32.eqz").br_if(out)
            for pointer, x in zip(at, xs, strict=True):
                f.emit(pointer).mem("v128.load32_splat").set(x).add(pointer, 4)
            for j in range(vectors):
                f.emit(b).mem("v128.load", 16 * j).set(y)
                for x, total in zip(xs, totals, strict=True):
                    arithmetic.multiply_add(f, total[j], x, y)
            f.emit(b, ldb, "i32.add").set(b).add(k, -1).br(again)
        for pointer, total in zip(to, totals, strict=True):
            for j, t in enumerate(total):
                f.emit(pointer, t).mem("v128.store", 16 * j)
        return f

    return module.once(("narrow", height, vectors, arithmetic), make)


def _rows_from(f: Function, first: int, step: int, count: int) -> list[int]:
    """Locals of so many addresses."""
    rows = [first, *f.locals("i32", count - 1)]
    for before, row in zip(rows, rows[1:], strict=False):
        f.emit(before, step, "i32.add").set(row)
    return rows


def _by_heights(f: Function, rows: int, each: Callable[[int], None]) -> None:
    """Take so many rows by threes and twos, never one alone beside three."""
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


def _in_registers(f: Function, p: dict[str, int], arithmetic: Arithmetic) -> None:
    """Few columns: so many rows of B that they stay in the first-level cache, by columns that stay in registers."""
    a, row, pa, pc, b, c, cols, k, left = f.locals("i32", 9)

    def rows(height: int) -> None:
        f.emit(row).set(b).emit(pc).set(c).emit(p["cols"]).set(cols)
        for vectors in NARROW[height]:
            with f.block() as out, f.loop() as again:
                f.emit(cols).i32(4 * vectors).emit("i32.lt_s").br_if(out)
                f.emit(pa, p["lda"], b, p["ldb"], c, p["ldc"], k).call(_narrow(f.module, height, vectors, arithmetic))
                f.add(b, 16 * vectors).add(c, 16 * vectors).add(cols, -4 * vectors).br(again)
        _next_rows(f, p, height, pa, pc)

    f.emit(p["a"]).set(a).emit(p["b"]).set(row).emit(p["k"]).set(left)
    with f.block() as done, f.loop() as blocks:
        f.emit(left, "i32.eqz").br_if(done)
        f.i32(ROWS).set(k)
        minimum(f, k, k, left)
        f.emit(a).set(pa).emit(p["c"]).set(pc)
        _by_heights(f, p["rows"], rows)
        f.emit(a, k).i32(2).emit("i32.shl", "i32.add").set(a)
        f.emit(row, k, p["ldb"], "i32.mul", "i32.add").set(row).emit(left, k, "i32.sub").set(left).br(blocks)
    f.release(a, row, pa, pc, b, c, cols, k, left)


def _next_rows(f: Function, p: dict[str, int], height: int, a: int, c: int) -> None:
    for pointer, step in ((a, p["lda"]), (c, p["ldc"])):
        f.emit(pointer, step).i32(height).emit("i32.mul", "i32.add").set(pointer)


def rows_block(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Block function over row-major B."""

    def make() -> Function:
        kernels = {group: _axpy(module, group, arithmetic) for group in (_GROUP, 1)}
        for height in HEIGHTS:
            for vectors in NARROW[height]:
                _narrow(module, height, vectors, arithmetic)
        f, p = block_function(module, "rows_block")
        a, b, left, m, pa, pc = f.locals("i32", 6)
        _zero(f, p)
        f.emit(p["a"]).set(a).emit(p["b"]).set(b).emit(p["k"]).set(left)
        f.emit(p["cols"]).i32(3).emit("i32.and", "i32.eqz", p["cols"]).i32(WIDE).emit("i32.le_s", "i32.and")
        with f.if_():
            _in_registers(f, p, arithmetic)
            f.i32(0).set(left)
        for group, kernel in kernels.items():
            with f.block() as out, f.loop() as again:
                f.emit(left).i32(group).emit("i32.lt_s").br_if(out)
                f.emit(a).set(pa).emit(p["c"]).set(pc).i32(0).set(m)
                with f.until(m, p["rows"]):
                    f.emit(pa, b, p["ldb"], pc, p["cols"]).call(kernel)
                    f.emit(pa, p["lda"], "i32.add").set(pa).emit(pc, p["ldc"], "i32.add").set(pc)
                f.add(a, 4 * group).emit(b, p["ldb"]).i32(group).emit("i32.mul", "i32.add").set(b)
                f.add(left, -group).br(again)
        _finish_call(f, p, epilogue)
        return f

    return module.once(("rows_block", arithmetic, epilogue.key()), make)


def _dots(module: Module, height: int, arithmetic: Arithmetic) -> Function:
    """(a, lda, b0, b1, b2, b3, c, ldc, left, k): c[m, n] += dot product of a[m] and bn for so many rows m, and for the
    first `left` n."""
    store = store_part(module)

    def make() -> Function:
        f = module.function(f"dots{height}", ["i32"] * 10, export=False)
        a, lda, *b, c, ldc, left, k = f.params
        at = _rows_from(f, a, lda, height)
        turns = [[f.locals("v128", 4) for _ in at] for _ in range(2 if height == 1 else 1)]  # to hide latency
        xs, y = f.locals("v128", height), f.local("v128")

        def step(load: str, u: int) -> None:
            for pointer, x in zip(at, xs, strict=True):
                f.emit(pointer).mem(load, 16 * u).set(x)
            for n, pointer in enumerate(b):
                f.emit(pointer).mem(load, 16 * u).set(y)
                for x, total in zip(xs, turns[u % len(turns)], strict=True):
                    arithmetic.multiply_add(f, total[n], x, y)

        for count, loads in ((16, 4), (4, 1), (1, 1)):
            with f.block() as out, f.loop() as again:
                f.emit(k).i32(count).emit("i32.lt_s").br_if(out)
                for u in range(loads):
                    step("v128.load" if count > 1 else "v128.load32_zero", u)
                for pointer in (*at, *b):
                    f.add(pointer, 4 * count)
                f.add(k, -count).br(again)
        for row, total in enumerate(turns[0]):
            for s, t in zip(total, turns[1][row], strict=True) if len(turns) > 1 else ():
                f.emit(s, t, "f32x4.add").set(s)
            _add_dots(f, total, c, left, store)
            f.emit(c, ldc, "i32.add").set(c)
        return f

    return module.once(("dots", height, arithmetic), make)


def _add_dots(f: Function, parts: list[int], c: int, left: int, store: Function) -> None:
    """c[0:left] += the sums of these four vectors."""
    transpose4(f, parts)
    s0, s1, s2, s3 = parts
    f.emit(c).mem("v128.load").emit(s0, s1, "f32x4.add", s2, s3, "f32x4.add", "f32x4.add", "f32x4.add").set(s0)
    f.emit(left).i32(4).emit("i32.ge_s")
    with f.if_():
        f.emit(c, s0).mem("v128.store")
        f.otherwise().emit(c, s0, s0, left).call(store)


def cols_block(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Block function over B transposed."""

    def make() -> Function:
        dots = {height: _dots(module, height, arithmetic) for height in HEIGHTS}
        f, p = block_function(module, "cols_block")
        b, a, c, left, i, pc = f.locals("i32", 6)
        pointers = f.locals("i32", 4)

        def rows(height: int) -> None:
            f.emit(a, p["lda"], *pointers, pc, p["ldc"], left, p["k"]).call(dots[height])
            _next_rows(f, p, height, a, pc)

        _zero(f, p)
        f.emit(p["b"]).set(b).emit(p["c"]).set(c).emit(p["cols"]).set(left)
        with f.loop() as again:
            for r, pointer in enumerate(pointers):  # columns past the end are the last one again
                f.emit(left).i32(1).emit("i32.sub").tee(i).i32(r).emit(i).i32(r).emit("i32.lt_s", "select", p["ldb"])
                f.emit("i32.mul", b, "i32.add").set(pointer)
            f.emit(p["a"]).set(a).emit(c).set(pc)
            _by_heights(f, p["rows"], rows)
            f.emit(b, p["ldb"]).i32(4).emit("i32.mul", "i32.add").set(b).add(c, 16)
            f.add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
        _finish_call(f, p, epilogue)
        return f

    return module.once(("cols_block", arithmetic, epilogue.key()), make)
