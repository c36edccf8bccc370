"""Few rows of A made codes by blocks, and their products with weights of few bits in integers (few_bits.py).

A row becomes a record for each block of its k: 16 bytes, of which the first words are minus the middle of the weights'
codes times the sum of the row's (an int32), the step (a float) and the step times that sum (a float); then the codes,
0 after the last: int8 of at most 127 beside weights of 4 bits, int16 of at most 32767 beside those of 8.

Weights of 4 bits need no sign, so `i16x8.relaxed_dot_i8x16_i7x16_s` is the same everywhere, and eight of its sums of
two products fit int16: a third of the instructions that float32 takes. Those of 8 bits become int16 as they are loaded,
for `i32x4.dot_i16x8_s`.
"""

from __future__ import annotations

from ..printer.assembler import Function, Module
from .arguments import minimum
from .arithmetic import Arithmetic
from .dequantize import FEW, first_steps, next_panel
from .few_bits import ROUND, FewBits
from .register_tile import PANEL, Epilogue, block_function, call_block, finish_tile, row_pointers, store_part

HEADER = 16
LARGEST_BLOCK = 256  # 256 * 128 * 32767 is an int32
LARGEST_K = 1 << 15  # records of FEW rows lie where a block's panels would
MIDDLE = 8
LARGEST = 3.4028234663852886e38  # a float32: rows of subnormal numbers times infinity would be codes that wrap


def code_bytes(few: FewBits) -> int:
    return 1 if few.bits == 4 else 2


def row_bytes(f: Function, few: FewBits, k: int, size: int) -> Function:
    """Push the bytes of a row's records."""
    f.emit(k, size, "i32.add").i32(1).emit("i32.sub", size, "i32.div_u", size).i32(code_bytes(few)).emit("i32.mul")
    return f.i32(HEADER).emit("i32.add", "i32.mul")


def quantise_rows(module: Module, few: FewBits) -> Function:
    """(a, lda, rows, k, size, to): the records of each row; lda in bytes, size: k of a block."""

    def make() -> Function:
        block = _quantise_block(module, few)
        f = module.function("quantise_rows", ["i32"] * 6, export=False)
        a, lda, rows, k, size, to = f.params
        left, taken, row = f.locals("i32", 3)
        with f.loop() as again:
            f.emit(a).set(row).emit(k).set(left)
            with f.block() as done, f.loop() as blocks:
                f.emit(left).i32(0).emit("i32.le_s").br_if(done)
                minimum(f, taken, left, size)
                f.emit(row, taken, to).call(block)
                f.emit(to, size).i32(code_bytes(few)).emit("i32.mul", "i32.add").i32(HEADER).emit("i32.add").set(to)
                f.emit(row, size).i32(2).emit("i32.shl", "i32.add").set(row)
                f.emit(left, size, "i32.sub").set(left).br(blocks)
            f.emit(a, lda, "i32.add").set(a)
            f.add(rows, -1).emit(rows).br_if(again)
        return f

    return module.once(("quantise_rows", few.bits), make)


def _quantise_block(module: Module, few: FewBits) -> Function:
    """(a, k, to). NaN and infinities make the step one, so that they are not lost."""

    def make() -> Function:
        f = module.function("quantise_block", ["i32"] * 3, export=False)
        a, k, to = f.params
        top, wide = (127.0, 0) if few.bits == 4 else (32767.0, 1)
        x, most, total, inverse, lanes = f.locals("v128", 5)
        at, left = f.locals("i32", 2)
        f.v128(b"".join(n.to_bytes(4, "little") for n in range(4))).set(lanes)

        def fours() -> None:
            """Load four, 0 after the last."""
            f.emit(at).mem("v128.load", 0).emit(left, "i32x4.splat", lanes, "i32x4.gt_s", "v128.and")

        f.emit(a).set(at).emit(k).set(left)
        with f.loop() as again:
            fours()
            f.emit("f32x4.abs", most, "f32x4.max").set(most)
            f.add(at, 16).add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
        _fold(f, most, "f32x4.max")
        f.f32x4(top).emit(most, "f32x4.div").f32x4(LARGEST).emit("f32x4.min").set(inverse)
        f.emit(a).set(at).emit(k).set(left).emit(to).i32(HEADER).emit("i32.add").set(a)
        with f.loop() as again:
            fours()
            f.emit(inverse, "f32x4.mul", "f32x4.nearest", "i32x4.trunc_sat_f32x4_s").tee(x)
            f.emit(total, "i32x4.add").set(total).emit(a, x, x, "i16x8.narrow_i32x4_s")
            if wide:
                f.mem_lane("v128.store64_lane", 0)
            else:
                f.tee(x).emit(x, "i8x16.narrow_i16x8_s").mem_lane("v128.store32_lane", 0)
            f.add(a, 4 << wide).add(at, 16).add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
        with f.block() as done, f.loop() as again:
            f.emit(a, to, "i32.sub").i32(HEADER).emit("i32.sub").i32((ROUND << wide) - 1).emit("i32.and", "i32.eqz")
            f.br_if(done)
            f.emit(a).i32(0).mem("i32.store").add(a, 4).br(again)
        _fold(f, total, "i32x4.add")
        _header(f, to, inverse, total)
        return f

    return module.once(("quantise_block", few.bits), make)


def _fold(f: Function, x: int, op: str) -> None:
    """All lanes become that of the four."""
    for lanes in ((2, 3, 0, 1), (1, 0, 3, 2)):
        f.emit(x, x, x).shuffle32(*lanes).emit(op).set(x)


def _header(f: Function, to: int, inverse: int, total: int) -> None:
    f.emit(to, total).lane("i32x4.extract_lane", 0).i32(-MIDDLE).emit("i32.mul").mem("i32.store")
    with f.scratch("v128", 1) as (step,):
        f.f32x4(1).emit(inverse, "f32x4.div").set(step)
        f.emit(to, step).mem_lane("v128.store32_lane", 0, 4)
        f.emit(to, step, total, "f32x4.convert_i32x4_s", "f32x4.mul").mem_lane("v128.store32_lane", 0, 8)


# ── products ──────────────────────────────────────────────────────────────────────────────────────────────────────


def quantised_rows(
    module: Module, few: FewBits, arithmetic: Arithmetic, epilogue: Epilogue, words: tuple[int, int]
) -> Function:
    """A block function over codes for up to FEW rows; a, lda: their records, bytes between those of two rows; b, ldb:
    codes of weights, bytes between panels.

    words: of the argument block, the steps and how many k one has
    """

    def make() -> Function:
        f, p = block_function(module, "quantised_rows")
        f.emit(p["rows"]).i32(1).emit("i32.eq")
        with f.if_():
            call_block(f, _strip(module, 1, few, arithmetic, epilogue, words), p)
            f.otherwise()
            call_block(f, _strip(module, FEW, few, arithmetic, epilogue, words), p)
        return f

    return module.once(("quantised_rows", few, arithmetic, epilogue.key(), words), make)


def _strip(
    module: Module, height: int, few: FewBits, arithmetic: Arithmetic, epilogue: Epilogue, words: tuple[int, int]
) -> Function:
    store_part(module)
    f, p = block_function(module, f"quantised{height}_{few.bits}bits")
    a, c, rows = row_pointers(f, p, height)
    sums, totals = ([f.locals("v128", 2) for _ in a] for _ in range(2))
    code, steps, size, k, left, record = f.locals("i32", 6)
    kept = f.locals("v128", 2)  # V8 writes a constant anew at each use
    f.v128(b"\x0f" * 16).set(kept[0]).i32x4(0x10001).set(kept[1])
    first_steps(f, p, few, words, steps, size)
    f.emit(size).i32(code_bytes(few)).emit("i32.mul").i32(HEADER).emit("i32.add").set(record)
    with f.loop() as panels:
        for total in (total for pair in totals for total in pair):
            f.f32x4(0).set(total)
        f.emit(p["k"]).set(k).emit(p["b"]).set(code)
        with f.block() as done, f.loop() as again:
            f.emit(k).i32(0).emit("i32.le_s").br_if(done)
            minimum(f, left, k, size)
            f.emit(k, size, "i32.sub").set(k)
            _block(f, few, a, code, left, sums, kept)
            _add_scaled(f, few, a, steps, sums, totals, arithmetic)
            for pointer in a:
                f.emit(pointer, record, "i32.add").set(pointer)
            f.add(steps, few.steps).br(again)
        for pointer in a:
            row_bytes(f.emit(pointer), few, p["k"], size).emit("i32.sub").set(pointer)
        finish_tile(f, p, c, rows, totals, epilogue, "f32x4.add")
        next_panel(f, p, c, panels)
    return f


def _block(
    f: Function, few: FewBits, a: list[int], code: int, left: int, sums: list[list[int]], kept: list[int]
) -> None:
    """The integer sums of a block of k."""
    at = f.locals("i32", len(a))
    for pointer, x, pair in zip(a, at, sums, strict=True):
        f.emit(pointer).set(x)
        for s in pair:
            if few.bits == 4:
                f.emit(pointer).mem("v128.load32_splat").set(s)
            else:
                f.i32x4(0).set(s)
    with f.loop() as again:
        if few.bits == 4:
            _half_bytes(f, at, code, sums, kept)
        else:
            _bytes(f, at, code, sums)
        f.add(code, ROUND // 4 * few.group).add(left, -ROUND)
        for x in at:
            f.add(x, ROUND * code_bytes(few))
        f.emit(left).i32(0).emit("i32.gt_s").br_if(again)
    f.release(*at)


def _half_bytes(f: Function, at: list[int], code: int, sums: list[list[int]], kept: list[int]) -> None:
    """16 k: products of four, two sums of them each an int16."""
    low_half, ones = kept
    xs, shorts = f.locals("v128", len(at)), [f.locals("v128", 2) for _ in at]
    with f.scratch("v128", 1) as (codes,):
        for row, all_x in zip(at, xs, strict=True):
            f.emit(row).mem("v128.load", HEADER).set(all_x)
        for n in range(ROUND // 4):
            for half in (0, 1):
                f.emit(code).mem("v128.load", 16 * n)
                if half:
                    f.i32(4).emit("i16x8.shr_u")
                f.emit(low_half, "v128.and").set(codes)
                for all_x, short in zip(xs, shorts, strict=True):
                    f.emit(all_x, all_x).shuffle32(n, n, n, n).emit(codes, "i16x8.relaxed_dot_i8x16_i7x16_s")
                    if n:
                        f.emit(short[half], "i16x8.add")
                    f.set(short[half])
        for s, short in zip(sums, shorts, strict=True):
            for half in (0, 1):
                Arithmetic.INT16.multiply_add(f, s[half], short[half], ones)
    f.release(*xs, *[x for pair in shorts for x in pair])


def _bytes(f: Function, at: list[int], code: int, sums: list[list[int]]) -> None:
    """16 k, two at a time."""
    xs = f.locals("v128", len(at))
    with f.scratch("v128", 3) as (low, high, x):
        for n in range(ROUND // 2):
            for half, short in enumerate((low, high)):
                f.emit(code).mem("v128.load8x8_s", 16 * n + 8 * half).set(short)
            for row, all_x, s in zip(at, xs, sums, strict=True):
                if n % 4 == 0:
                    f.emit(row).mem("v128.load", HEADER + 4 * n).set(all_x)
                f.emit(all_x, all_x).shuffle32(*[n % 4] * 4).set(x)
                Arithmetic.INT16.multiply_add(f, s[0], x, low)
                Arithmetic.INT16.multiply_add(f, s[1], x, high)
    f.release(*xs)


def _add_scaled(
    f: Function, few: FewBits, a: list[int], steps: int, sums: list[list[int]], totals: list[list[int]],
    arithmetic: Arithmetic,
) -> None:  # fmt: skip
    """totals += sums * step of the row * scales, and what zero points add."""
    with f.scratch("v128", 2) as (x, y):
        for half in (0, 1):
            for pointer, s, total in zip(a, sums, totals, strict=True):
                f.emit(s[half], "f32x4.convert_i32x4_s", steps).mem("v128.load", 16 * half).emit("f32x4.mul").set(x)
                f.emit(pointer).mem("v128.load32_splat", 4).set(y)
                arithmetic.multiply_add(f, total[half], x, y)
                if few.zeros:
                    f.emit(pointer).mem("v128.load32_splat", 8).set(x)
                    f.emit(steps).mem("v128.load", 4 * PANEL + 16 * half).set(y)
                    arithmetic.multiply_add(f, total[half], x, y)


__all__ = ["LARGEST_BLOCK", "LARGEST_K", "quantise_rows", "quantised_rows", "row_bytes"]
