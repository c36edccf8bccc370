"""GEMV in integers: rows of A are quantised by blocks and multiplied by weights of 4 and 8 bits (weight_codes.py).

An element becomes an int16 of at most 32767, one digit, if the model allows it by its accuracy level. Otherwise it
becomes two digits, 30 bits, with a power of two as the step: exact, except that elements below 2^-6 of the block's
largest lose a bit for each halving. Blocks with an element below TINY, with infinities or NaN, or of nearly subnormal
numbers stay floats: their step is 0, and the floats replace the codes. If a block of one row stays floats, that block
of all rows does.

A row becomes a record for each block of its k. A record has a header of 16 bytes: the step (float), the step times the
sum of the codes (float) and, for each digit, the sum times -8 (int32, the initial value of sums for weights of 4 bits,
which are stored with their middle). The codes follow: for each ROUND of k all low digits, then all high ones, 0 after
the last. Weights are converted to int16 as they are loaded, for `i32x4.dot_i16x8_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once
from .arguments import minimum
from .arithmetic import Arithmetic
from .dequantise import FloatBlock
from .panel_order import FEW_ROWS, GEMV_ROWS, PanelFormat, StepWords, blocks_of_k, in_panel_order, part_function
from .register_tile import PANEL, Epilogue, add_tile, block_of, finish_tile, row_pointers, store_part
from .weight_codes import GROUP, ROUND, WeightCodes

HEADER = 16
INITIAL_SUMS = 8  # offset in the header of the sums times -8
LARGEST_BLOCK = 256  # 256 * 128 * 32768 fits int32
CODE = 2  # bytes of a digit
LANES = b"".join(n.to_bytes(4, "little") for n in range(4))
LARGEST = 3.4028234663852886e38  # of float32; with infinity, the codes of subnormal rows would wrap
HIGHEST_BIT = 29  # of codes of two digits
TINY = 2.0**10  # the smallest code of two digits, which keeps eleven bits of its element
HIGH = 65536.0  # the weight of the second digit


def row_bytes(f: Function, k: Any, size: Any, digits: int) -> Function:
    """Push the number of bytes of a row's records; size: number of k of a block."""
    f.emit(k, size, "i32.add").i32(1).emit("i32.sub", size, "i32.div_u", size).i32(CODE * digits).emit("i32.mul")
    return f.i32(HEADER).emit("i32.add", "i32.mul")


def largest_row(k: AnyDim, size: AnyDim, digits: int) -> AnyDim:
    """Return the number of bytes of a row's records."""
    return sh.ceildiv(k, size) * (size * CODE * digits + HEADER)


def integer_rows(module: Module, layout: WeightCodes) -> int:
    """Return the largest number of rows that are quantised. With two digits, products of two rows by floats
    (few_rows.py) take 0.8 (8 bits) and 0.9 (4 bits) of the time in wasmtime, but 1.0 and 1.1 in V8."""
    if module.imports or layout.digits == 1:
        return FEW_ROWS
    return 1 if module.cranelift else GEMV_ROWS


def gemv_rows(module: Module, layout: WeightCodes) -> int:
    """Return the largest number of rows of the block function `gemv_integers`: machine code multiplies all that are
    quantised, and few_integers.py others."""
    return integer_rows(module, layout) if module.imports else min(GEMV_ROWS, integer_rows(module, layout))


@once
def quantise_rows(module: Module, digits: int) -> Function:
    """(a, lda, rows, k, size, to): write the records of each row; lda in bytes, size: the k of a block."""
    block = _quantise_block(module, digits)
    f = module.function("quantise_rows", ["i32"] * 6, export=False)
    a, lda, rows, k, size, to = f.params
    row, record, n, are_codes, record_row = f.locals("i32", 5)
    row_bytes(f, k, size, digits).set(record_row)
    f.i32(1).set(are_codes)
    alone = digits == 2 and bool(module.imports)  # machine code has blocks of codes beside blocks of floats

    def quantise() -> None:
        f.emit(row, taken, record).call(block)
        if alone:
            f.emit("i32.eqz")
            with f.if_():
                f.emit(row, taken, record).call(_copy_block)
        else:
            f.emit(are_codes, "i32.and").set(are_codes)

    def each_row(emit: Callable[[], object]) -> None:
        """Emit code for each row; `row` and `record` are the addresses of the block's floats and record."""
        f.emit(a).set(row).emit(to).set(record).i32(0).set(n)
        with f.until(n, rows):
            emit()
            f.emit(row, lda, "i32.add").set(row).emit(record, record_row, "i32.add").set(record)

    with f.block() as done, f.loop() as blocks:
        f.emit(k).i32(0).emit("i32.le_s").br_if(done)
        taken = f.local("i32")
        minimum(f, taken, k, size)
        each_row(quantise)
        if digits == 2 and not alone:
            f.emit(are_codes, "i32.eqz")
            with f.if_():
                each_row(lambda: f.emit(row, taken, record).call(_copy_block))
                f.i32(1).set(are_codes)
        f.emit(to, size).i32(CODE * digits).emit("i32.mul", "i32.add").i32(HEADER).emit("i32.add").set(to)
        f.emit(a, size).i32(2).emit("i32.shl", "i32.add").set(a)
        f.emit(k, size, "i32.sub").set(k).br(blocks)
    return f


@helper("copy_block")
def _copy_block(f: Function, a: int, k: int, to: int) -> None:
    """Write a record that contains the floats, and zeros up to the end of a round."""
    x, lanes = f.locals("v128", 2)
    (end,) = f.locals("i32", 1)
    f.v128(LANES).set(lanes).emit(to).f32(0).mem("f32.store").add(to, HEADER)
    f.emit(k).i32(ROUND - 1).emit("i32.add").i32(-ROUND).emit("i32.and").i32(2).emit("i32.shl", to, "i32.add").set(end)
    with f.loop() as again:
        _fours(f, a, k, lanes)
        f.set(x).emit(to, x).mem("v128.store").add(to, 16).add(a, 16).add(k, -4)
        f.emit(k).i32(0).emit("i32.gt_s").br_if(again)
    with f.block() as done, f.loop() as again:
        f.emit(to, end, "i32.eq").br_if(done)
        f.emit(to).v128(bytes(16)).mem("v128.store").add(to, 16).br(again)


def _fours(f: Function, at: int, left: int, lanes: int) -> Function:
    """Push four floats, 0 after the last."""
    return f.emit(at).mem("v128.load").emit(left, "i32x4.splat", lanes, "i32x4.gt_s", "v128.and")


@once
def _quantise_block(module: Module, digits: int) -> Function:
    """(a, k, to) -> 1 if all elements became codes. With one digit they always do; the step is NaN or infinite if an
    element is."""
    f = module.function("quantise_block", ["i32"] * 3, ["i32"], export=False)
    a, k, to = f.params
    x, given, most, inverse, lanes, bad = f.locals("v128", 6)
    totals = f.locals("v128", digits)
    at, left = f.locals("i32", 2)
    f.v128(LANES).set(lanes)
    f.emit(a).set(at).emit(k).set(left)
    with f.loop() as again:
        _fours(f, at, left, lanes)
        f.emit("f32x4.abs", most, "f32x4.max").set(most)
        f.add(at, 16).add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
    _fold(f, most, "f32x4.max")
    (_inverse if digits == 1 else _power_of_two)(f, most, inverse, bad)
    f.emit(a).set(at).emit(k).set(left).emit(to).i32(HEADER).emit("i32.add").set(a)
    with f.loop() as again:
        _fours(f, at, left, lanes).tee(given).emit(inverse, "f32x4.mul").set(x)
        if digits == 2:
            f.emit(x, "f32x4.abs").f32x4(TINY).emit("f32x4.lt", given).f32x4(0).emit("f32x4.ne", "v128.and")
            f.emit(bad, "v128.or").set(bad)
        f.emit(x, "f32x4.nearest", "i32x4.trunc_sat_f32x4_s").set(x)
        _store_digits(f, x, a, totals)
        _next_code(f, a, to, 4 * CODE, digits)
        f.add(at, 16).add(left, -4).emit(left).i32(0).emit("i32.gt_s").br_if(again)
    with f.block() as done, f.loop() as again:
        f.emit(a, to, "i32.sub").i32(HEADER).emit("i32.sub").i32(ROUND * CODE - 1).emit("i32.and", "i32.eqz")
        f.br_if(done)
        for digit in range(digits):
            f.emit(a).i32(0).mem("i32.store", ROUND * CODE * digit)
        _next_code(f, a, to, 4, digits)
        f.br(again)
    _header(f, to, inverse, totals)
    return f.emit(bad, "v128.any_true", "i32.eqz")


def _fold(f: Function, x: int, op: str) -> None:
    """Combine the four lanes; all lanes get the result."""
    for lanes in ((2, 3, 0, 1), (1, 0, 3, 2)):
        f.emit(x, x, x).shuffle32(*lanes).emit(op).set(x)


def _inverse(f: Function, most: int, inverse: int, _: int) -> None:
    f.f32x4(32767).emit(most, "f32x4.div").f32x4(LARGEST).emit("f32x4.min").set(inverse)


def _power_of_two(f: Function, most: int, inverse: int, bad: int) -> None:
    """inverse = the power of two that scales `most` to HIGHEST_BIT + 1 bits; bad = whether `most` is not finite, or is
    too small."""
    least = HIGHEST_BIT + 1  # of exponents, so that the step is not subnormal
    with f.scratch("v128", 1) as (exponent,):
        f.emit(most).i32(23).emit("i32x4.shr_u").tee(exponent).i32x4(254).emit("i32x4.gt_s")
        f.emit(exponent).i32x4(least).emit("i32x4.lt_s", most).f32x4(0).emit("f32x4.ne", "v128.and", "v128.or").set(bad)
        f.i32x4(2 * 127 + HIGHEST_BIT).emit(exponent).i32x4(least).emit("i32x4.max_s").i32x4(254).emit("i32x4.min_s")
        f.emit("i32x4.sub").i32(23).emit("i32x4.shl").set(inverse)


def _store_digits(f: Function, x: int, to: int, totals: list[Any]) -> None:
    """Store the digits of four codes and add them to their sums; high digits are ROUND codes behind low ones."""
    with f.scratch("v128", 1) as (low,):
        f.emit(x)
        if len(totals) == 2:
            f.i32(16).emit("i32x4.shl").i32(16).emit("i32x4.shr_s")
        f.set(low)
        for digit, total in enumerate(totals):
            if digit:
                f.emit(x, low, "i32x4.sub").i32(16).emit("i32x4.shr_s").set(low)
            f.emit(total, low, "i32x4.add").set(total)
            f.emit(to, low, low, "i16x8.narrow_i32x4_s").mem_lane("v128.store64_lane", 0, ROUND * CODE * digit)


def _next_code(f: Function, at: int, record: int, bytes_: int, digits: int) -> None:
    """Advance the address of low digits; at the end of a round, skip the high digits."""
    f.add(at, bytes_)
    if digits == 2:
        f.emit(at, at, record, "i32.sub").i32(HEADER).emit("i32.sub").i32(ROUND * CODE - 1).emit("i32.and", "i32.eqz")
        f.i32(5).emit("i32.shl", "i32.add").set(at)


def _header(f: Function, to: int, inverse: int, totals: list[Any]) -> None:
    with f.scratch("v128", 2) as (step, total):
        f.f32x4(1).emit(inverse, "f32x4.div").set(step)
        f.emit(to, step).mem_lane("v128.store32_lane", 0)
        for digit, t in enumerate(totals):
            _fold(f, t, "i32x4.add")
            f.emit(to, t).i32(3).emit("i32x4.shl", "i32x4.neg")
            f.mem_lane("v128.store32_lane", 0, INITIAL_SUMS + 4 * digit)
        _whole(f, totals, total)
        f.emit(to, step, total, "f32x4.mul").mem_lane("v128.store32_lane", 0, 4)


def _whole(f: Function, digits: list[Any], to: int) -> None:
    """to = the float32 sum of the digits' sums."""
    f.emit(digits[0], "f32x4.convert_i32x4_s")
    for high in digits[1:]:
        f.emit(high, "f32x4.convert_i32x4_s").f32x4(HIGH).emit("f32x4.mul", "f32x4.add")
    f.set(to)


# ── products ──────────────────────────────────────────────────────────────────────────────────────────────────────


@once
def gemv_integers(
    module: Module, layout: WeightCodes, arithmetic: Arithmetic, epilogue: Epilogue, words: StepWords
) -> Function:
    """A block function for up to `gemv_rows`; a, lda: address of records, bytes between those of two rows; b, ldb:
    address of codes, bytes between panels."""

    def bytes_of(f: Function, k: int, size: int) -> Function:
        return row_bytes(f, k, size, layout.digits)

    def part(height: int) -> Function:
        return _part(module, height, layout, arithmetic, epilogue)

    rows = 1 if module.imports else gemv_rows(module, layout)
    block = in_panel_order(module, "gemv_integers", PanelFormat.of(layout), words, bytes_of, part, rows)
    if not module.imports:
        return block
    from .native_codes import with_code  # pages do not have it

    return with_code(module, layout, epilogue, words, block)


def _part(module: Module, height: int, layout: WeightCodes, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    store_part(module)
    f, p = part_function(module, f"quantised{height}_{layout.bits}bits")
    a, c, rows = row_pointers(f, block_of(p), height)
    block = IntegerBlock(f, layout, arithmetic, a)
    totals = [f.locals("v128", 2) for _ in a]
    code, k, left, record, step = f.locals("i32", 5)
    f.emit(p["b"]).set(code).emit(p["k"]).set(k)
    f.emit(p["size"]).i32(layout.bits).emit("i32.mul").set(step)
    f.emit(p["size"]).i32(CODE * layout.digits).emit("i32.mul").i32(HEADER).emit("i32.add").set(record)
    add_tile(f, block_of(p), c, totals, None)
    with blocks_of_k(f, p, layout, code, k, left, step):
        with f.block() as added:
            if layout.digits == 2:
                f.emit(a[0]).mem("f32.load").f32(0).emit("f32.eq")
                with f.if_():
                    block.add_floats(code, left, totals, p["steps"])
                    f.br(added)
            block.multiply(code, left)
            block.add_to(totals, p["steps"])
        for pointer in a:
            f.emit(pointer, record, "i32.add").set(pointer)
    finish_tile(f, block_of(p), c, rows, totals, epilogue)
    return f


class IntegerBlock:
    """Emits the products of one block of k. a: locals with the addresses of the rows' records; sums[row][digit][half]:
    their integer sums; lowest: a mask of the low halves of bytes."""

    def __init__(self, f: Function, layout: WeightCodes, arithmetic: Arithmetic, a: list[Any]) -> None:
        self.f, self.layout, self.arithmetic, self.a = f, layout, arithmetic, a
        self.sums = [[f.locals("v128", 2) for _ in range(layout.digits)] for _ in a]
        self.lowest = f.local("v128")
        f.v128(b"\x0f" * 16).set(self.lowest)

    def add_floats(self, code: int, left: int, totals: list[list[Any]], steps: int) -> None:
        """Add a block of rows that stayed floats, zero padded to a multiple of GROUP."""
        f = self.f
        at = f.locals("i32", len(self.a))
        for pointer, x in zip(self.a, at, strict=True):
            f.emit(pointer).i32(HEADER).emit("i32.add").set(x)
        block = FloatBlock(f, self.layout, self.arithmetic, at)
        block.clear()
        f.emit(left).i32(GROUP - 1).emit("i32.add").i32(-GROUP).emit("i32.and").set(left)
        block.groups(code, left, GROUP, {})
        block.add_to(totals, steps)

    def multiply(self, code: Any, left: Any) -> None:
        """Set the sums."""
        f = self.f
        at = f.locals("i32", len(self.a))
        for pointer, x, row in zip(self.a, at, self.sums, strict=True):
            f.emit(pointer).set(x)
            for digit, s in ((digit, s) for digit, pair in enumerate(row) for s in pair):
                if self.layout.middle:
                    f.emit(pointer).mem("v128.load32_splat", INITIAL_SUMS + 4 * digit).set(s)
                else:
                    f.i32x4(0).set(s)
        with f.loop() as again:
            self.round(at, code)
            f.add(code, ROUND // 4 * self.layout.group_bytes).add(left, -ROUND)
            for x in at:
                f.add(x, ROUND * CODE * self.layout.digits)
            f.emit(left).i32(0).emit("i32.gt_s").br_if(again)
        f.release(*at)

    def round(self, at: list[Any], code: int) -> None:
        """Add ROUND k, two at a time."""
        f = self.f
        rows = [(row, digit, s) for row, digits in zip(at, self.sums, strict=True) for digit, s in enumerate(digits)]
        fours = f.locals("v128", len(rows) if f.module.cranelift else 0)
        with f.scratch("v128", 4) as (low, high, x, both):
            for n in range(ROUND // 2):
                if self.layout.bits == 8:
                    _load_two_bytes(f, code, n, (low, high))
                else:
                    _load_two_nibbles(f, code, n, (low, high), both, self.lowest)
                for at_row, (row, digit, s) in enumerate(rows):
                    pair = HEADER + ROUND * CODE * digit + 4 * n
                    if f.module.cranelift:  # a load with splat is three instructions in wasmtime
                        four = fours[at_row]
                        if n % 4 == 0:
                            f.emit(row).mem("v128.load", pair).set(four)
                        f.emit(four, four).shuffle32(*[n % 4] * 4).set(x)
                    else:
                        f.emit(row).mem("v128.load32_splat", pair).set(x)
                    Arithmetic.INT16.multiply_add(f, s[0], x, low)
                    Arithmetic.INT16.multiply_add(f, s[1], x, high)
        f.release(*fours)

    def add_to(self, totals: Sequence[Sequence[Any]], steps: Any) -> None:
        """totals += sums * step of the row * scales, plus the part of the zero points."""
        f = self.f
        with f.scratch("v128", 2) as (x, y):
            for half in (0, 1):
                for pointer, row, total in zip(self.a, self.sums, totals, strict=True):
                    _whole(f, [digit[half] for digit in row], x)
                    f.emit(x, steps).mem("v128.load", 16 * half).emit("f32x4.mul").set(x)
                    f.emit(pointer).mem("v128.load32_splat").set(y)
                    self.arithmetic.multiply_add(f, total[half], x, y)
                    if self.layout.zeros:
                        f.emit(pointer).mem("v128.load32_splat", 4).set(x)
                        f.emit(steps).mem("v128.load", 4 * PANEL + 16 * half).set(y)
                        self.arithmetic.multiply_add(f, total[half], x, y)


def _load_two_bytes(f: Function, code: int, n: int, to: tuple[int, int]) -> None:
    """Load the n-th two k of eight columns of 8 bits as int16."""
    for half, short in enumerate(to):
        f.emit(code).mem("v128.load8x8_s", 16 * n + 8 * half).set(short)


def _load_two_nibbles(f: Function, code: int, n: int, to: tuple[int, int], both: int, lowest: int) -> None:
    """Like `_load_two_bytes`, for codes of 4 bits, 0 to 15; both: a local that keeps the bytes for the next call."""
    if n % 2 == 0:
        f.emit(code).mem("v128.load", 8 * n).tee(both).emit(lowest, "v128.and").set(to[0])
    else:
        f.emit(both).i32(4).emit("i16x8.shr_u", lowest, "v128.and").set(to[0])
    f.emit(to[0], "i16x8.extend_high_i8x16_u").set(to[1]).emit(to[0], "i16x8.extend_low_i8x16_u").set(to[0])
