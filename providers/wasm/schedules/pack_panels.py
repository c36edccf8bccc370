"""Packs a block of B into panels [ceil(cols/8)][k][8], zero padded: from rows [K][N] or from columns [N][K].

A *pack function* has the signature (source, ld, k, cols, to, step): ld bytes between rows of the source, `step` bytes
between panels of the target. It reads at most 12 bytes past the source's last row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from ..printer.assembler import Function, Module, helper, once
from ..printer.values import I32, Ptr
from .float_loads import FloatLoads
from .register_tile import PANEL


def _lane_mask(f: Function, cols: int, half: int, to: int) -> None:
    """to = all ones in the lanes of this half of a panel that have columns; cols: the number of columns left."""
    f.v128(struct.pack("<4i", *range(4 * half, 4 * half + 4))).emit(cols, "i32x4.splat", "i32x4.lt_s").set(to)


def _copy_rows(elements: FloatLoads, source: int, ld: int, to: int, count: int, mask: list[int]) -> None:
    """Copy `count` rows of one panel; mask: empty, or masks of the lanes of its halves to copy."""
    f = elements.f
    with f.scratch("i32", 1) as (p,):
        f.emit(source).set(p)
        for u in range(count):
            for half in range(2 if len(mask) != 1 else 1):
                f.emit(to)
                elements.four(p, 4 * half)
                if mask:
                    f.emit(mask[half], "v128.and")
                f.mem("v128.store", 32 * u + 16 * half)
            if len(mask) == 1:
                f.emit(to).f32x4(0).mem("v128.store", 32 * u + 16)
            f.emit(p, ld, "i32.add").set(p)


@once
def pack_rows(module: Module, half: bool) -> Function:
    """From row-major B: four rows at a time, so that reads are sequential and writes fill whole cache lines."""
    f = module.function("pack_rows", ["i32"] * 6, export=False)
    source, ld, k, cols, to, step = f.params
    elements = FloatLoads(f, half)
    s, t, left = f.locals("i32", 3)
    low, high = f.locals("v128", 2)

    def group(count: int) -> None:
        f.emit(source).set(s).emit(to).set(t).emit(cols).set(left)
        with f.block() as out:
            with f.loop() as again:
                f.emit(left).i32(PANEL).emit("i32.lt_s").br_if(out)
                _copy_rows(elements, s, ld, t, count, [])
                f.add(s, PANEL * elements.size).emit(t, step, "i32.add").set(t)
                f.emit(left).i32(PANEL).emit("i32.sub").set(left)
                f.br(again)
        f.emit(left)
        with f.if_():
            _lane_mask(f, left, 0, low)
            _lane_mask(f, left, 1, high)
            f.emit(left).i32(4).emit("i32.gt_s")
            with f.if_():
                _copy_rows(elements, s, ld, t, count, [low, high])
                f.otherwise()
                _copy_rows(elements, s, ld, t, count, [low])
        f.emit(source, ld).i32(count).emit("i32.mul", "i32.add").set(source).add(to, 32 * count)
        f.emit(k).i32(count).emit("i32.sub").set(k)

    for count in (4, 1):
        with f.block() as out, f.loop() as again:
            f.emit(k).i32(count).emit("i32.lt_s").br_if(out)
            group(count)
            f.br(again)
    return f


def transpose4(f: Function, r: Sequence[Any]) -> None:
    """Transpose four v128 locals, the rows of a 4x4 matrix, in place."""
    with f.scratch("v128", 4) as t:
        for i, (x, y, lanes) in enumerate(
            ((0, 1, (0, 4, 1, 5)), (0, 1, (2, 6, 3, 7)), (2, 3, (0, 4, 1, 5)), (2, 3, (2, 6, 3, 7)))
        ):
            f.emit(r[x], r[y]).shuffle32(*lanes).set(t[i])
        for i, (x, y, lanes) in enumerate(
            ((0, 2, (0, 1, 4, 5)), (0, 2, (2, 3, 6, 7)), (1, 3, (0, 1, 4, 5)), (1, 3, (2, 3, 6, 7)))
        ):
            f.emit(t[x], t[y]).shuffle32(*lanes).set(r[i])


@helper("transpose_rows")
def transpose_rows(f: Function, source: Ptr, ld: I32, k: I32, rows: I32, to: Ptr, step: I32) -> None:
    """Write the transpose of a matrix of k rows, `ld` bytes apart, of `rows` elements: `step` bytes apart, up to three
    more of them. Reads at most 12 bytes past the source's last row."""
    n, (at, target), v = f.integers(1)[0], f.pointers(2), f.vectors(4)
    for taken in (4, 1):
        with f.countdown(k, taken):
            f.set(at, source).set(target, to).set(n, rows)
            with f.loop() as again:
                with f.scratch("ptr") as (row,):
                    f.set(row, at)
                    for x in v[:taken]:
                        f.set(x, row.load()).set(row, row + ld)
                if taken == 4:
                    transpose4(f, v)
                for lane in range(4):
                    if taken == 4:
                        f.store(target, v[lane])
                    else:
                        f.store_lane("v128.store32_lane", target, v[0], lane)
                    f.set(target, target + step)
                f.add(at, 16)
                f.br_if(again, n.tee(n - 4).gt_s(0))
            f.set(source, source + ld * taken).add(to, 4 * taken)


@once
def pack_cols(module: Module, half: bool) -> Function:
    """From transposed B [N][K]: eight of its rows at a time, by 4x4 transposes. `ld` is between these rows."""
    f = module.function("pack_cols", ["i32"] * 6, export=False)
    source, ld, k, cols, to, step = f.params
    elements = FloatLoads(f, half)
    rows, last, n, t = f.locals("i32", PANEL), f.local("i32"), f.local("i32"), f.local("i32")
    masks, v = f.locals("v128", 2), f.locals("v128", 4)
    with f.block() as none:
        f.emit(cols).i32(0).emit("i32.le_s").br_if(none)
        with f.loop() as again:
            f.emit(source, cols).i32(1).emit("i32.sub", ld, "i32.mul", "i32.add").set(last)
            for i, row in enumerate(rows):  # rows past the end read the last row and are masked
                f.emit(source, ld).i32(i).emit("i32.mul", "i32.add", last)
                f.i32(i).emit(cols, "i32.lt_s", "select").set(row)
            for part in (0, 1):
                _lane_mask(f, cols, part, masks[part])
            f.emit(to).set(t).emit(k).i32(2).emit("i32.shr_u").tee(n)
            with f.if_(), f.loop() as next4:
                for part in (0, 1):
                    for i in range(4):
                        elements.four(rows[4 * part + i]).set(v[i])
                    transpose4(f, v)
                    for i in range(4):
                        f.emit(t, v[i], masks[part], "v128.and").mem("v128.store", 32 * i + 16 * part)
                _advance(elements, rows, t, n, 4)
                f.emit(n).br_if(next4)
            f.emit(k).i32(3).emit("i32.and").tee(n)
            with f.if_(), f.loop() as next1:
                for part in (0, 1):
                    for i in range(4):
                        elements.one(rows[4 * part + i]).set(v[i])
                    transpose4(f, v)
                    f.emit(t, v[0], masks[part], "v128.and").mem("v128.store", 16 * part)
                _advance(elements, rows, t, n, 1)
                f.emit(n).br_if(next1)
            f.emit(source, ld).i32(PANEL).emit("i32.mul", "i32.add").set(source)
            f.emit(to, step, "i32.add").set(to)
            f.emit(cols).i32(PANEL).emit("i32.sub").tee(cols).i32(0).emit("i32.gt_s").br_if(again)
    return f


def _advance(elements: FloatLoads, rows: list[int], to: int, count: int, k: int) -> None:
    f = elements.f
    for row in rows:
        f.add(row, elements.size * k)
    f.add(to, 32 * k).add(count, -1)
