"""Codes of 2 to 8 bits one after the other in bytes, the lowest bits first, as elements of expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

from pyruntime.ir.dtype import I32, U8
from pyruntime.ir.expr import Expr, cast, dim, minimum
from pyruntime.ir.kernel import Tensor

LARGE = 1 << 16  # elements; smaller tables of codes take a byte each, and are made floats once


def unpacked(byte: Expr, place: Expr, bits: int) -> Expr:
    """Element `place` of a run of packed elements, whose byte (number place · bits / 8) is given, as int32."""
    byte = cast(byte, I32)
    if bits == 8:
        return byte
    each = 8 // bits
    return (byte >> ((place & (each - 1)) * bits)) & ((1 << bits) - 1)


def code_at(codes: Tensor, row: Sequence[Expr], place: Expr, bits: int) -> Expr:
    """Element `place` of a row of packed elements, as int32; one of 3, 5, 6 or 7 bits may lie in two bytes."""
    first = place * bits / 8
    if 8 % bits == 0:
        return unpacked(codes.at(*row, first), place, bits)
    last = minimum(first + 1, dim(codes.shape[-1] - 1))
    both = cast(codes.at(*row, first), I32) | (cast(codes.at(*row, last), I32) << 8)
    return (both >> ((place * bits) & 7)) & ((1 << bits) - 1)


def packed_byte(code: Callable[[Expr], Expr], i: Expr, bits: int) -> Expr:
    """Byte i of a run of codes; `code` gives one as int32, and is asked for some of which no bit is in the byte, behind
    the last one, too."""
    first = i * 8 / bits
    shift = first * bits - i * 8  # of the first code's bits, to the left: none or less
    count = 8 // bits if 8 % bits == 0 else 7 // bits + 2  # that may lie in a byte
    parts = [(code(first + n) << (shift + (n * bits + 8))) >> 8 for n in range(count)]
    return cast(reduce(operator.or_, parts) & 255, U8)


__all__ = ["LARGE", "code_at", "packed_byte", "unpacked"]
