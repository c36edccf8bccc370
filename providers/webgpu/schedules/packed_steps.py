"""Sums over packed codes: four neighbouring steps of a sum read the codes of 2, 4 or 8 bits of a weight from one word,
and load its scale and zero point once.

In the loop form `word` (value: buffer, args: element offset) loads the bits of a word of bytes from that element on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I8, U8, U32, DType
from pyruntime.ir.expr import Expr, cast, walk

from .vec4_access import WIDTH, divisible


@dataclass(slots=True)
class Codes:
    """What four steps share of a factor. codes: its packed codes, with the loads of their bytes and their bits;
    same: its expressions that have one value for all four."""

    codes: list[tuple[Expr, Expr, int]]
    same: list[Expr]


def shared_by_steps(factor: Expr, axis: int) -> Codes | None:
    """What the steps along this axis share, from a multiple of four on; None if the factor has no packed codes."""
    found = Codes([], [])
    _find(factor, axis, found)
    return found if found.codes else None


def word_of(load: Expr) -> Expr:
    """A lowered load of a byte, with the bits from that byte on to the end of its word."""
    assert load.op == "load"
    return Expr("word", load.args, U32, load.value)


def code(word: Expr, step: int, bits: int, dtype: DType) -> Expr:
    """The code of a step, 0 to 3."""
    shifted = word >> step * bits
    return cast(shifted if bits == 8 else shifted & ((1 << bits) - 1), dtype)


def _find(e: Expr, axis: int, found: Codes) -> None:
    if (packed := _packed(e, axis)) is not None:
        found.codes.append((e, *packed))
    elif any(x.op == "at" for x in walk(e)) and _is_same(e, axis):
        found.same.append(e)
    elif e.op not in ("at", "guard", "select"):  # what these do not read may be out of range
        for a in e.args:
            _find(a, axis, found)


def _packed(e: Expr, axis: int) -> tuple[Expr, int] | None:
    """The load of the byte of a packed code, and the code's bits: (byte[p · bits / 8] >> p % each · bits) & mask, as
    `packed_codes.unpacked` writes it; or a byte."""
    if e.op == "at" and e.value.dtype in (U8, I8):
        return (e, 8) if _is_row(e, lambda last: _follows(_whole(last), axis), axis, 8) else None
    if e.op != "and" or e.args[0].op != "shr" or e.args[1].op != "const":
        return None
    bits = int(e.args[1].value).bit_length()
    byte, shift = e.args[0].args
    at = byte.args[0] if byte.op == "cast" else byte
    if bits not in (2, 4) or at.op != "at" or at.value.dtype is not U8 or shift.op != "mul":
        return None
    each = 8 // bits
    low = shift.args[0]
    if low.op != "and" or not _is(low.args[1], each - 1) or not _is(shift.args[1], bits):
        return None
    place = low.args[0]
    known = [x.key() for x in ((place * bits) / 8, place / each)]
    fits = _follows(place, axis) and _is_row(at, lambda last: last.key() in known, axis, bits)
    return (at, bits) if fits else None


def _is_row(at: Expr, along: Callable[[Expr], bool], axis: int, bits: int) -> bool:
    """Whether a load of bytes follows its last axis alone, and the codes of four steps lie in one word."""
    if not at.args:
        return False
    *others, last = at.args
    is_divided = all(isinstance(s, int) and s % (WIDTH * bits // 8) == 0 for s in sh.strides(at.value.shape)[:-1])
    return is_divided and along(last) and all(_is_same(x, axis) for x in others)


def _whole(last: Expr) -> Expr:
    """p of p · 8 / 8, as `packed_codes.code_at` writes it."""
    is_byte = last.op == "div" and _is(last.args[1], 8) and last.args[0].op == "mul" and _is(last.args[0].args[1], 8)
    return last.args[0].args[0] if is_byte else last


def _is(e: Expr, value: int) -> bool:
    return e.op == "const" and e.value == value


def _is_same(e: Expr, axis: int) -> bool:
    """Whether an expression has one value for four steps: the axis is only divided by a multiple of four."""
    if e.op == "index":
        return bool(e.value != axis)
    if e.op == "div" and e.args[0].op == "index" and e.args[1].op == "const" and e.args[1].value % WIDTH == 0:
        return True
    return all(_is_same(a, axis) for a in e.args)


def _follows(e: Expr, axis: int) -> bool:
    """Whether four steps from a multiple of four on have four neighbouring values from a multiple of four on."""
    if e.op == "index":
        return bool(e.value == axis)
    if e.op == "add":
        a, b = e.args
        return any(_follows(x, axis) and _is_multiple(y, axis) for x, y in ((a, b), (b, a)))
    mask = e.args[1].value + 1 if e.op == "and" and e.args[1].op == "const" else 0
    return mask >= WIDTH and mask & (mask - 1) == 0 and _follows(e.args[0], axis)


def _is_multiple(e: Expr, axis: int) -> bool:
    """Whether a value is a multiple of four, and the same for four steps."""
    if not _is_same(e, axis):
        return False
    if e.op == "const":
        return bool(e.value % WIDTH == 0)
    if e.op == "dim":
        return divisible(e.value)
    if e.op == "mul":
        return any(_is_multiple(a, axis) for a in e.args)
    return e.op in ("add", "sub") and all(_is_multiple(a, axis) for a in e.args)
