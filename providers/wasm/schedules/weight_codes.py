"""The layout of quantised weights in memory, and the code that converts a group of them to floats in registers.

Codes are in panels of eight columns, [ceil(N / 8)][ceil(K / 16)] times four groups of four k:
    2 bits: 8 bytes, one for each column, k in the lowest bits
    4 bits: 16 bytes, k and k + 1 in the low halves, k + 2 and k + 3 in the high halves, column by column
    8 bits: 32 bytes, signed: k, k + 1, k + 2, k + 3 of eight columns each; if rows of A are quantised
            (gemv_integers.py) k and k + 1 column by column, then k + 2 and k + 3
    16 bits: 64 bytes, four k of eight columns; float16
Steps: [ceil(N / 8)][blocks][8] floats, the scale of each column, or with zero points [..][2][8], the scale and the
addend: w = (code - middle) * scale + addend. The middle is 2 for 2 bits, 8 for 4 bits, 0 for 8 bits (codes are stored
signed). Half floats have no steps but a byte, 1 if any of them is infinite or NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..printer.assembler import Function
from .register_tile import PANEL

GROUP = 4  # k at a time
ROUND = 16  # k that panels are padded to
Use = Callable[[int, int, int], None]  # (row of a group, half of its columns, local of these four floats)


@dataclass(frozen=True, slots=True)
class WeightCodes:
    """zeros: columns have zero points besides the middle; digits, of 4 and 8 bits: the int16 digits of an element of A
    where one or two rows are quantised (gemv_integers.py), 0 if they stay float32."""

    bits: int
    zeros: bool = False
    digits: int = 0

    @property
    def name(self) -> str:
        return f"nbits{self.bits}{'z' * self.zeros}{'q' * self.digits}"

    @property
    def group_bytes(self) -> int:
        return GROUP * PANEL * self.bits // 8

    @property
    def k_bytes(self) -> int:
        """Bytes of one k of a panel."""
        return self.group_bytes // GROUP

    @property
    def step_bytes(self) -> int:
        """Bytes of the scales and zero points of a block."""
        return 0 if self.bits == 16 else 8 * PANEL if self.zeros else 4 * PANEL

    @property
    def adjacent(self) -> int:
        """Number of k of a column that are adjacent."""
        return 2 if self.uses_tables or self.digits else 1

    @property
    def pairs(self) -> int:
        """Number of pairs of k whose codes share bytes."""
        return GROUP // 2 if self.uses_tables else 1

    @property
    def uses_tables(self) -> bool:
        """Whether codes become floats by a lookup table."""
        return self.bits <= 4

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1) if self.uses_tables else 0


HALF_STEP = 2.0**112  # scale of the half floats that `values` pushes, a power of two: it changes exponents only


def value_constants(f: Function, layout: WeightCodes) -> list[int]:
    """Return locals for `values`, set before the loop because V8 materialises a constant at each use. For half floats
    the last one is an i32 that callers set: whether any is infinite or NaN."""
    if layout.bits == 16:  # masks of sign and digits, exponent of infinities, and the bits that it has only in a float
        words = [struct.pack("<H", 0x8FFF) * 8, *[struct.pack("<I", x) * 4 for x in (0x0F800000, 0x70000000)]]
    elif layout.uses_tables:
        mask = (1 << layout.bits) - 1
        halves = [struct.pack(">f", (code & mask) - layout.middle)[:2] for code in range(16)]  # the lower bytes are 0
        words = [bytes(half[n] for half in halves) for n in (0, 1)]
        words += [bytes([mask]) * 16, b"\0\0\xff\xff" * 4]
    else:
        words = []
    made = f.locals("v128", len(words))
    for to, word in zip(made, words, strict=True):
        f.v128(word).set(to)
    return [*made, f.local("i32")] if layout.bits == 16 else made


def values(
    f: Function, layout: WeightCodes, code: int, constants: list[int], use: Use, relaxed: bool, rows: int = GROUP,
    careful: bool | None = None,
) -> None:  # fmt: skip
    """Emit `use` for the first rows of the group at an address, as floats: codes minus their middle, or half floats /
    HALF_STEP. careful: whether half floats may be infinite or NaN, None if unknown."""
    if layout.bits == 16:
        _half_floats(f, code, constants, use, rows, careful)
    elif layout.uses_tables:
        _by_tables(f, layout.bits, code, constants, use, rows, "i8x16.relaxed_swizzle" if relaxed else "i8x16.swizzle")
    elif layout.adjacent == 2:
        _byte_pairs(f, code, use, rows)
    else:
        _bytes(f, code, use, rows)


def _bytes(f: Function, code: int, use: Use, rows: int) -> None:
    with f.scratch("v128", 2) as (short, value):
        for row in range(rows):
            f.emit(code).mem("v128.load8x8_s", 8 * row).set(short)
            for half, part in enumerate(("low", "high")):
                f.emit(short, f"i32x4.extend_{part}_i16x8_s", "f32x4.convert_i32x4_s").set(value)
                use(row, half, value)


def _byte_pairs(f: Function, code: int, use: Use, rows: int) -> None:
    with f.scratch("v128", 3) as (low, high, value):
        for row in range(0, rows, 2):
            for half, short in enumerate((low, high)):
                f.emit(code).mem("v128.load8x8_s", 8 * row + 8 * half).set(short)
            for second in range(min(rows - row, 2)):
                for half, short in enumerate((low, high)):
                    f.emit(short)
                    if not second:
                        f.i32(16).emit("i32x4.shl")
                    f.i32(16).emit("i32x4.shr_s", "f32x4.convert_i32x4_s").set(value)
                    use(row + second, half, value)


def _by_tables(f: Function, bits: int, code: int, constants: list[int], use: Use, rows: int, swizzle: str) -> None:
    """Two tables have the first and the second byte of each code's float."""
    first, second, mask, later = constants
    with f.scratch("v128", 4) as (both, one, two, value):
        for row in range(0, rows, 2):
            (_two_pairs if bits == 2 else _pairs)(f, code, row, one)
            f.emit(one, mask, "v128.and").set(one)
            f.emit(second, one, swizzle, first, one, swizzle).set(both).set(one)
            f.emit(one, both).shuffle(b for n in range(8, 16) for b in (n, 16 + n)).set(two)
            f.emit(one, both).shuffle(b for n in range(8) for b in (n, 16 + n)).set(one)
            for k in range(min(rows - row, 2)):
                for half, words in enumerate((one, two)):
                    f.emit(words)
                    if k:
                        f.emit(later, "v128.and").set(value)
                    else:
                        f.i32(16).emit("i32x4.shl").set(value)
                    use(row + k, half, value)


def _pairs(f: Function, code: int, row: int, to: int) -> None:
    """to = rows `row` and `row` + 1 of a group of 4-bit codes, in the low bits of bytes, column by column."""
    f.emit(code).mem("v128.load")
    if row:
        f.i32(4).emit("i16x8.shr_u")
    f.set(to)


def _two_pairs(f: Function, code: int, row: int, to: int) -> None:
    """Like `_pairs`, for 2-bit codes."""
    f.emit(code).mem("v128.load8x8_u").tee(to).i32(2 * row).emit("i16x8.shr_u")
    f.emit(to).i32(6 - 2 * row).emit("i16x8.shl", "v128.or").set(to)


def _half_floats(f: Function, code: int, constants: list[int], use: Use, rows: int, careful: bool | None) -> None:
    if careful is None:
        f.emit(constants[-1])
        with f.if_():
            _half_floats(f, code, constants, use, rows, careful=True)
            f.otherwise()
            _half_floats(f, code, constants, use, rows, careful=False)
        return
    digits, special, more, _ = constants
    with f.scratch("v128", 3) as (low, high, value):
        for row in range(rows):
            f.emit(code).mem("v128.load", 16 * row).tee(low).i32(3).emit("i16x8.shr_s", digits, "v128.and")
            f.set(high).emit(low).i32(13).emit("i16x8.shl").set(low)
            for half in (0, 1):
                lanes = (n + at for n in range(8 * half, 8 * half + 8, 2) for at in (0, 1, 16, 17))
                f.emit(low, high).shuffle(lanes).set(value)
                if careful:
                    f.emit(value, value, special, "v128.and", special, "i32x4.eq", more, "v128.and", "v128.or")
                    f.set(value)
                use(row, half, value)


# ── two k at a time ──────────────────────────────────────────────────────────────────────────────────────────────────


class PairedCodes:
    """Loads codes in one function, two k at a time, as floats like `values`. Fewer values are alive than with `values`,
    for register tiles of several rows; four k of fewer than 8 bits take two visits.

    code: local with the address of two k, or of a group; careful: whether half floats may be infinite or NaN. Make it
    before loops: V8 materialises a constant at each use."""

    def __init__(self, f: Function, layout: WeightCodes, code: Any, careful: bool = False) -> None:
        self.f, self.layout, self.code, self.careful = f, layout, code, careful
        self.raw = f.locals("v128", 2)
        words = [struct.pack("<I", word) * 4 for word in (0x8FFFFFFF, 0x0F800000, 0x70000000)[: 1 + 2 * careful]]
        if layout.bits < 16:  # the signs of the codes
            words = [sum(layout.middle << at for at in range(0, 8, layout.bits)).to_bytes(1, "little") * 16]
        self.constants = f.locals("v128", len(words))
        for to, word in zip(self.constants, words, strict=True):
            f.v128(word).set(to)

    def load(self, k: int, to: Sequence[Any], pair: int = 0) -> None:
        """Set two locals to the weights of one k, 0 and then 1, of a pair of a group."""
        if self.layout.bits == 16:
            self._half_floats(k, to)
        elif self.layout.uses_tables:
            self._bits(k, to, pair)
        elif self.layout.adjacent == 2:
            self._byte_pairs(k, to)
        else:
            self._floats(self.f.emit(self.code).mem("v128.load8x8_s", PANEL * k), to)

    def _half_floats(self, k: int, to: Sequence[Any]) -> None:
        f, (digits, *exponents) = self.f, self.constants
        for y, part in zip(to, ("low", "high"), strict=True):
            f.emit(self.code).mem("v128.load", 2 * PANEL * k).emit(f"i32x4.extend_{part}_i16x8_s")
            f.i32(13).emit("i32x4.shl", digits, "v128.and").set(y)
            if self.careful:
                special, more = exponents
                f.emit(y, y, special, "v128.and", special, "i32x4.eq", more, "v128.and", "v128.or").set(y)

    def _bits(self, k: int, to: Sequence[Any], pair: int) -> None:
        f, bits, raw = self.f, self.layout.bits, self.raw[0]
        if k == 0:
            f.emit(self.code).mem("v128.load8x8_u" if bits == 2 else "v128.load")
            f.emit(self.constants[0], "v128.xor").set(raw)
        first = 2 * (2 * pair + k) if bits == 2 else 4 * pair + 8 * k  # bit of a column's 16
        f.emit(raw)
        if first + bits < 16:
            f.i32(16 - bits - first).emit("i16x8.shl")
        self._floats(f.i32(16 - bits).emit("i16x8.shr_s"), to)

    def _byte_pairs(self, k: int, to: Sequence[Any]) -> None:
        f = self.f
        for half, (raw, y) in enumerate(zip(self.raw, to, strict=True)):
            if k == 0:
                f.emit(self.code).mem("v128.load8x8_s", 8 * half).tee(raw).i32(16).emit("i32x4.shl")
            else:
                f.emit(raw)
            f.i32(16).emit("i32x4.shr_s", "f32x4.convert_i32x4_s").set(y)

    def _floats(self, f: Function, to: Sequence[Any]) -> None:
        """Convert eight int16."""
        low, high = to
        f.tee(high).emit("i32x4.extend_low_i16x8_s", "f32x4.convert_i32x4_s").set(low)
        f.emit(high, "i32x4.extend_high_i16x8_s", "f32x4.convert_i32x4_s").set(high)
