"""Expressions on packed codes of 2 to 8 bits, which follow each other without gaps, lowest bits first."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

from pyruntime.ir.dtype import I32, U8
from pyruntime.ir.expr import Expr, cast, dim, minimum
from pyruntime.ir.kernel import Tensor

LARGE = 1 << 16  # elements; in smaller tensors codes take a byte each, and are dequantised once


def unpacked(byte: Expr, place: Expr, bits: int) -> Expr:
    """Element `place` of packed elements, as int32. byte: the byte at index place · bits / 8."""
    byte = cast(byte, I32)
    if bits == 8:
        return byte
    each = 8 // bits
    return (byte >> ((place & (each - 1)) * bits)) & ((1 << bits) - 1)


def code_at(codes: Tensor, row: Sequence[Expr], place: Expr, bits: int) -> Expr:
    """Element `place` of a row of packed elements, as int32. An element of 3, 5, 6 or 7 bits may span two bytes."""
    first = place * bits / 8
    if 8 % bits == 0:
        return unpacked(codes.at(*row, first), place, bits)
    last = minimum(first + 1, dim(codes.shape[-1] - 1))
    both = cast(codes.at(*row, first), I32) | (cast(codes.at(*row, last), I32) << 8)
    return (both >> ((place * bits) & 7)) & ((1 << bits) - 1)


def packed_byte(code: Callable[[Expr], Expr], i: Expr, bits: int) -> Expr:
    """Byte i of packed codes. `code` returns a code as int32; it is also called for neighbours that share no bit with
    the byte, even past the last code."""
    first = i * 8 / bits
    shift = first * bits - i * 8  # left shift of the first code's bits: 0 or negative
    count = 8 // bits if 8 % bits == 0 else 7 // bits + 2  # codes that may share a byte
    parts = [(code(first + n) << (shift + (n * bits + 8))) >> 8 for n in range(count)]
    return cast(reduce(operator.or_, parts) & 255, U8)
