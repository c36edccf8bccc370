"""The gradient of the filters of 3x3 convolutions with stride 1 by Winograd's F(4x4, 3x3), in float32.

The form (winograd_forms.py) is y = At (U V) A for V = Bt d B of a patch d of the input and U = G w Gt of the filters,
which is linear in each. So for what flows into a tile y, P = A g At, and the gradient of w is Gt (sum over tiles of
P V) G: 36 products for the 144 of a tile. For each of the 36 points the sum is a matrix product of V [C][tiles] with P
[tiles][M], which register tiles do (register_tile.py). A step takes rows of tiles, of one image or of several, and adds
its products to those before; tiles beyond the image have zeros in P.

Work units: blocks of channels and filters, each of which transforms what it reads; channels vary fastest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Generic, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once
from ..printer.values import I32, POINTERS, V128, ZERO, Ptr, constant, f32x4, i32x4, minimum, select, shuffle32
from . import winograd
from .arguments import KERNEL, ArgumentBlock, ConvBuffers, Word
from .arithmetic import Arithmetic
from .pack_panels import transpose4
from .register_tile import FIRST, NO_EPILOGUE, PANEL, Block, block_of_unit, call_block, panels_block
from .winograd_forms import FLOATS, A, B

SIDE, STEP, POINTS = FLOATS.side, FLOATS.step, FLOATS.points
BLOCK = 128  # channels and filters of a unit, at most: their sums take 2.3 MiB
COLUMNS = 64  # tiles of a step
APART = 64  # bytes between points, so that equal elements of all points are in different sets of a cache


class Params(NamedTuple, Generic[Word]):
    """Those of winograd.Params, and one more. tr: rows of tiles of a step; mg: filters of a unit"""

    batch: Word
    c: Word
    m: Word
    ih: Word
    iw: Word
    oh: Word
    ow: Word
    ph: Word
    pw: Word
    th: Word
    quads: Word
    tr: Word
    mg: Word
    bytes: Word
    cg: Word  # channels of a unit


ARGUMENTS = ArgumentBlock(ConvBuffers._fields, Params._fields, "y")  # w: what flows into the output


def blocks(c: int, m: int, threads: int) -> tuple[int, int]:
    """Return (cg, mg): at least a unit for each thread, if there are enough channels and filters."""
    cg, mg = (min(-(-n // -(-n // BLOCK) // PANEL) * PANEL, BLOCK) for n in (c, m))
    while units(c, m, cg, mg) < threads and max(cg, mg) > PANEL:
        if cg >= mg:
            cg = -(-cg // (2 * PANEL)) * PANEL
        else:
            mg = -(-mg // (2 * PANEL)) * PANEL
    return cg, mg


def units(c: int, m: int, cg: int, mg: int) -> int:
    return -(-c // cg) * -(-m // mg)


def rows_of_step(batch: AnyDim, th: AnyDim, quads: AnyDim) -> AnyDim:
    return sh.clamp(sh.floordiv(COLUMNS, quads * 4), 1, sh.maximum(batch * th, 1))


def scratch_bytes(cg: int, mg: int, tr: AnyDim, quads: AnyDim) -> AnyDim:
    """V, P, sums and the columns of one transform."""
    return POINTS * ((cg + mg) * tr * quads * 16 + cg * mg * 4 + 3 * APART + 16)


def _flow_transform(f: Function, g: Sequence[V128], to: Sequence[V128]) -> None:
    """to = A g: six vectors from four."""
    f.set(to[0], g[0]).set(to[5], g[3])
    with f.scratch("v128", 2) as (even, odd):
        for n, point in ((1, A), (3, B)):
            f.set(even, f32x4.add(g[0], f32x4.mul(g[2], f32x4.of(point**2))))
            f.set(odd, f32x4.add(f32x4.mul(g[1], f32x4.of(point)), f32x4.mul(g[3], f32x4.of(point**3))))
            f.set(to[n], f32x4.add(even, odd)).set(to[n + 1], f32x4.sub(even, odd))


def _filter_transform(f: Function, u: Sequence[V128], to: Sequence[V128]) -> None:
    """to = Gt u: three vectors from six."""
    g = FLOATS.g
    with f.scratch("v128", 2) as (near, far):
        for n in range(3):
            combine = f32x4.sub if n == 1 else f32x4.add
            f.set(near, f32x4.mul(combine(u[1], u[2]), f32x4.of(g[1][n])))
            f.set(far, f32x4.mul(combine(u[3], u[4]), f32x4.of(g[3][n])))
            f.set(to[n], f32x4.add(near, far))
    f.set(to[0], f32x4.add(to[0], f32x4.mul(u[0], f32x4.of(g[0][0])))).set(to[2], f32x4.add(to[2], u[5]))


@helper("winograd_flow")
def _flow(f: Function, args: Ptr, g: Ptr, ty: I32, count: I32, to: Ptr, temp: Ptr, step: I32, ld: I32) -> None:
    """Write P of a row of tiles and `count` filters, whose planes begin at g: panels of eight filters, `ld` bytes
    apart; `step` bytes between points."""
    s = Params(*ARGUMENTS.integers(f))
    (plane, line, left, y, n, first), (at, panel) = f.integers(6), f.pointers(2)
    planes, d, made, (numbers, mask) = f.pointers(4), f.vectors(4), f.vectors(SIDE), f.vectors(2)
    f.v128(struct.pack("<4i", 0, 1, 2, 3)).set(numbers)
    f.set(plane, s.oh * s.ow << 2).set(line, s.ow << 2).set(first, ty * STEP * line)
    with f.until(n, count, 4):
        for i, pointer in enumerate(planes):  # past the end, the last plane repeats
            f.set(y, n + i).set(y, minimum(y, count - 1)).set(pointer, g + y * plane + first)
        f.set(panel, to + (n >> 3) * ld + ((n & 4) << 2))
        f.set(left, s.ow)
        with f.loop() as again:
            f.set(at, panel)
            f.set(mask, i32x4.gt_s(i32x4.splat(left), numbers))
            for r in range(STEP):
                f.set(y, ty * STEP + r)
                with f.if_(left.gt_s(0) & y.lt_u(s.oh)):
                    for pointer, x in zip(planes, d, strict=True):
                        f.set(at, pointer + line * r).set(x, at.load() & mask)
                    transpose4(f, d)
                    _flow_transform(f, d, made)
                    for j, x in enumerate(made):
                        f.store(temp, x, 16 * (SIDE * r + j))
                    f.otherwise()
                    for j in range(SIDE):
                        f.store(temp, ZERO, 16 * (SIDE * r + j))
            for j in range(SIDE):
                for r, x in enumerate(d):
                    f.set(x, temp.load(16 * (SIDE * r + j)))
                _flow_transform(f, d, made)
                f.set(at, panel + step * j)
                for x in made:
                    f.store(at, x).set(at, at + step * SIDE)
            for pointer in planes:
                f.add(pointer, 4 * STEP)
            f.add(panel, 4 * PANEL).add(left, -STEP)
            f.br_if(again, (left + (s.quads << 4)).gt_s(s.ow))


@helper("filters_direct")
def _direct(f: Function, args: Ptr, x: Ptr, g: Ptr, to: Ptr) -> None:
    """Write the nine sums of a channel and a filter, whose planes of the first image are at x and g."""
    s = Params(*ARGUMENTS.integers(f))
    (tap, taps, n, oy, end, low, count), (row, flow), (total,) = f.integers(7), f.pointers(2), f.vectors(1)
    f.set(taps, 9)
    with f.until(tap, taps):
        f.set(total, ZERO).set(n, 0)
        f.set(low, s.pw - tap % 3).set(low, select(low, 0, low.gt_s(0)))
        with f.until(n, s.batch):
            f.set(oy, s.ph - tap // 3).set(end, oy + s.ih).set(end, select(end, s.oh, end.lt_s(s.oh)))
            f.set(oy, select(oy, 0, oy.gt_s(0)))
            with f.until(oy, end):
                f.set(row, x + (((n * s.c * s.ih + oy + tap // 3 - s.ph) * s.iw + low + tap % 3 - s.pw) << 2))
                f.set(flow, g + (((n * s.m * s.oh + oy) * s.ow + low) << 2))
                f.set(count, s.iw + s.pw - tap % 3).set(count, select(count, s.ow, count.lt_s(s.ow)) - low)
                for taken, load in ((4, "v128.load"), (1, "v128.load32_zero")):
                    with f.countdown(count, taken):
                        f.set(total, f32x4.add(total, f32x4.mul(row.load(0, load), flow.load(0, load))))
                        f.add(row, 4 * taken).add(flow, 4 * taken)
        for lanes in ((2, 3, 0, 1), (1, 0, 3, 2)):
            f.set(total, f32x4.add(total, shuffle32(total, total, *lanes)))
        f.store_lane("v128.store32_lane", to, total, 0).add(to, 4)


@helper("winograd_filters_back")
def _back(
    f: Function, args: Ptr, x: Ptr, g: Ptr, sums: Ptr, y: Ptr, channels: I32, filters: I32, temp: Ptr, step: I32,
    ld: I32,
) -> None:  # fmt: skip
    """Write the gradient of a unit's filters, from sums [channels] `ld` bytes apart of [filters]; directly where a
    transform subtracted infinities, or overflowed. x, g, y: the planes and the gradient of its first channel and
    filter"""
    s = Params(*ARGUMENTS.integers(f))
    (row, c, m), (source, at, to) = f.integers(3), f.pointers(3)
    u, three, (bad,) = f.vectors(SIDE), f.vectors(3), f.vectors(1)
    f.set(row, s.c * 36)
    with f.until(c, channels):
        f.set(source, sums).set(to, y).set(m, 0)
        with f.until(m, filters, 4):
            for j in range(SIDE):
                f.set(at, source + step * j)
                for value in u:
                    f.set(value, at.load()).set(at, at + step * SIDE)
                _filter_transform(f, u, three)
                for r, value in enumerate(three):
                    f.store(temp, value, 16 * (SIDE * r + j))
            f.set(bad, ZERO)
            for r in range(3):
                for j, value in enumerate(u):
                    f.set(value, temp.load(16 * (SIDE * r + j)))
                _filter_transform(f, u, three)
                for value in three:
                    f.set(bad, f32x4.add(bad, f32x4.sub(value, value)))
                for lane in range(4):
                    with f.if_((m + lane).lt_s(filters)):
                        f.set(at, to + row * lane)
                        for i, value in enumerate(three):
                            f.store_lane("v128.store32_lane", at, value, lane, 12 * r + 4 * i)
            with f.if_(bad.any()):
                for lane in range(4):
                    with f.if_((m + lane).lt_s(filters) & i32x4.extract(bad, lane).ne(0)):
                        f.call(_direct, args, x, g + ((m + lane) * s.oh * s.ow << 2), to + row * lane)
            f.add(source, 16).set(to, to + (row << 2))
        f.set(sums, sums + ld).add(y, 36).set(x, x + (s.ih * s.iw << 2))


@once
def _unit(module: Module, arithmetic: Arithmetic) -> Function:
    """(args, unit, scratch): one block of y."""
    panels = panels_block(module, arithmetic, NO_EPILOGUE)
    patches, flow, back = winograd.patches(module, FLOATS, 0, True), _flow(module), _back(module)
    f = module.function("winograd_filters_unit", ["i32"] * 3, export=False)
    args, unit, v = POINTERS[0], f.params[1], POINTERS[2]
    b, s, p = ConvBuffers(*ARGUMENTS.pointers(f)), Params(*ARGUMENTS.integers(f)), f.fields(Block)
    v_step, p_step, u_step, rows, row, end, n, ty, at, point, columns = f.integers(11)
    flows, sums, temp, image, target, source = f.pointers(6)
    with block_of_unit(f, p, unit, (s.c, s.cg), (s.m, s.mg)):
        pass
    f.set(columns, s.tr * s.quads << 2).set(p.args, args).set(p.flags, FIRST)
    f.set(p.lda, columns << 2).set(p.ldb, columns << 5).set(p.ldc, s.mg << 2)
    f.set(v_step, s.cg * p.lda + APART).set(p_step, s.mg * p.lda + APART).set(u_step, s.cg * p.ldc + APART)
    f.set(flows, v + v_step * POINTS).set(sums, flows + p_step * POINTS).set(temp, sums + u_step * POINTS)
    f.set(image, b.x + (p.row * s.ih * s.iw << 2)).set(target, b.w + (p.col * s.oh * s.ow << 2))
    f.set(rows, s.batch * s.th)
    with f.loop() as again:
        f.set(end, rows - row).set(end, minimum(end, s.tr)).set(p.k, end * s.quads << 2).set(end, end + row).set(at, 0)
        with f.until(row, end):
            f.set(n, row // s.th).set(ty, row % s.th)
            f.set(source, image + (n * s.c * s.ih * s.iw << 2))
            f.call(patches, args, source, ty, constant(1), v + (at << 2), temp, v_step, p.rows, p.lda)
            f.set(source, target + (n * s.m * s.oh * s.ow << 2))
            f.call(flow, args, source, ty, p.cols, flows + (at << 5), temp, p_step, p.ldb)
            f.set(at, at + (s.quads << 2))
        f.set(p.a, v).set(p.b, flows).set(p.c, sums).set(point, 0)
        with f.loop() as points:
            call_block(f, panels, p)
            f.set(p.a, p.a + v_step).set(p.b, p.b + p_step).set(p.c, p.c + u_step)
            f.br_if(points, point.tee(point + 1).lt_u(POINTS))
        f.set(p.flags, 0).br_if(again, row.lt_u(rows))
    f.call(back, args, image, target, sums, b.y + (p.col * s.c + p.row) * 36, p.rows, p.cols, temp, u_step, p.ldc)
    return f


def winograd_filters(module: Module, name: str, *, arithmetic: Arithmetic) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, arithmetic)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    (scratch,), s = ARGUMENTS.pointers(f, "scratch"), Params(*ARGUMENTS.integers(f))
    f.set(tid, scratch + s.bytes * tid)
    with f.until(begin, end):
        f.call(unit, args, begin, tid)
    return f
