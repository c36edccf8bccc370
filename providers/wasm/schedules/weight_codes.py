"""Weights of few bits as they lie in memory, and how a group of them becomes floats in registers.

Codes lie in panels of eight columns, [ceil(N / 8)][ceil(K / 16)] times four groups of four k:
    2 bits: 8 bytes, of a column each, k in the lowest bits
    4 bits: 16 bytes, of which the low halves are k and k + 1, the high halves k + 2 and k + 3, column by column
    8 bits: 32 bytes, signed: k, k + 1, k + 2, k + 3 of eight columns each; where rows become integers
            (gemv_integers.py) k and k + 1 column by column, then k + 2 and k + 3
    16 bits: 64 bytes, four k of eight columns; float16
Steps: [ceil(N / 8)][blocks][8] floats, the scale of each column, or with zero points [..][2][8], also what is added:
w = (code - middle) * scale + added. The middle is 2 of 2 bits, 8 of 4; codes of 8 bits lie without it. Half floats have
no steps, but a byte that tells whether any of them is infinite or NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from ..printer.assembler import Function
from .register_tile import PANEL

GROUP = 4  # k at a time
ROUND = 16  # k that panels are padded to
Use = Callable[[int, int, int], None]  # of a row of a group, a half of its columns, and the local of these four


@dataclass(frozen=True, slots=True)
class FewBits:
    """zeros: codes have other zero points than the middle; digits, of 4 and 8 bits: few rows of A become integers of so
    many int16 (gemv_integers.py)."""

    bits: int
    zeros: bool = False
    digits: int = 0

    @property
    def kind(self) -> str:
        return f"nbits{self.bits}{'z' * self.zeros}{'q' * self.digits}"

    @property
    def group(self) -> int:
        """Bytes of a group."""
        return GROUP * PANEL * self.bits // 8

    @property
    def steps(self) -> int:
        """Bytes of the steps of a block."""
        return 0 if self.bits == 16 else 8 * PANEL if self.zeros else 4 * PANEL

    @property
    def together(self) -> int:
        """How many k of a column follow each other."""
        return 2 if self.looked_up or self.digits else 1

    @property
    def looked_up(self) -> bool:
        """Whether codes are found in tables."""
        return self.bits <= 4

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1) if self.looked_up else 0


WIDTHS = ((2, 0), *[(bits, digits) for bits in (4, 8) for digits in (0, 1, 2)])
KINDS = {
    made.kind: made
    for made in (
        FewBits(16),
        *[FewBits(bits, zeros, digits) for bits, digits in WIDTHS for zeros in (False, True)],
    )
}


HALF_STEP = 2.0**112  # what half floats are to be multiplied by: 1 / 2^112 rebiases exponents, and keeps digits


def constants(f: Function, few: FewBits) -> list[int]:
    """Locals of what `values` needs, set before the loop: V8 writes a constant anew at each use. Of half floats the
    last is an i32 for callers to set, whether any is infinite or NaN."""
    if few.bits == 16:  # sign and digits once they are shifted, an exponent that is special, what it lacks of a float's
        words = [struct.pack("<H", 0x8FFF) * 8, *[struct.pack("<I", x) * 4 for x in (0x0F800000, 0x70000000)]]
    elif few.looked_up:
        mask = (1 << few.bits) - 1
        halves = [struct.pack(">f", (code & mask) - few.middle)[:2] for code in range(16)]  # a float of so few digits
        words = [bytes(half[n] for half in halves) for n in (0, 1)]  # is 0 below
        words += [bytes([mask]) * 16, b"\0\0\xff\xff" * 4]
    else:
        words = []
    made = f.locals("v128", len(words))
    for to, word in zip(made, words, strict=True):
        f.v128(word).set(to)
    return [*made, f.local("i32")] if few.bits == 16 else made


def values(
    f: Function, few: FewBits, code: int, kept: list[int], use: Use, relaxed: bool, rows: int = GROUP,
    careful: bool | None = None,
) -> None:  # fmt: skip
    """The first rows of the group at an address, as floats: codes less their middle, or half floats / HALF_STEP.
    careful: whether some of these may be infinite or NaN, if callers know."""
    if few.bits == 16:
        _half_floats(f, code, kept, use, rows, careful)
    elif few.looked_up:
        _looked_up(f, few.bits, code, kept, use, rows, "i8x16.relaxed_swizzle" if relaxed else "i8x16.swizzle")
    elif few.together == 2:
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


def _looked_up(f: Function, bits: int, code: int, kept: list[int], use: Use, rows: int, swizzle: str) -> None:
    """By two tables: the first byte and the second of the float that each code is."""
    first, second, mask, later = kept
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
    """Rows row and row + 1 of a group of 4 bits in the lowest bits of bytes, column by column; others above."""
    f.emit(code).mem("v128.load")
    if row:
        f.i32(4).emit("i16x8.shr_u")
    f.set(to)


def _two_pairs(f: Function, code: int, row: int, to: int) -> None:
    """The same of 2 bits."""
    f.emit(code).mem("v128.load8x8_u").tee(to).i32(2 * row).emit("i16x8.shr_u")
    f.emit(to).i32(6 - 2 * row).emit("i16x8.shl", "v128.or").set(to)


def _half_floats(f: Function, code: int, kept: list[int], use: Use, rows: int, careful: bool | None) -> None:
    if careful is None:
        f.emit(kept[-1])
        with f.if_():
            _half_floats(f, code, kept, use, rows, careful=True)
            f.otherwise()
            _half_floats(f, code, kept, use, rows, careful=False)
        return
    digits, special, more, _ = kept
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


__all__ = ["GROUP", "HALF_STEP", "KINDS", "ROUND", "FewBits", "Use", "constants", "values"]
