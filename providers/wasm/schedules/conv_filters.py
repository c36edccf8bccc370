"""The routine "conv_filters", the gradient of the filters of a convolution, in float32 for one to three spatial dims.

y[q*mg + m, c, tap] = sum over n and out of g[n, q*mg + m, out] * x[n, q*cg + c, out * stride - pad + tap * dilation]

A product whose rows are those of g, as they lie in memory, and whose columns are (c, tap). A step takes `lines` lines
of out, or `wide` positions of one: it copies what their windows cover, with zeros for the padding, into scratch, where
positions of a tap are adjacent, and transposes these into panels. So no matrix of windows is ever in memory (a 3x3
window: nine times x), and a step's panels stay in the second-level cache. For one or two rows (depthwise) it sums
products along the positions instead, without panels. A 1x1 convolution with stride 1 reads x in place.

Fewer dims are 3-D with extents of 1. Reads up to 4 bytes past the end of x. `scratch_bytes` of scratch for each thread.
Work units: groups * ceil(cg * taps / nc) * ceil(mg / mc); row blocks vary fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once
from ..printer.values import I32, POINTERS, V128, ZERO, Ptr, f32x4, minimum, select, shuffle32
from .arguments import KERNEL, ArgumentBlock, Window, Word, windowed
from .arithmetic import Arithmetic
from .pack_panels import transpose4
from .register_tile import FIRST, NO_EPILOGUE, PANEL, Block, block_of_unit, call_block, panels_block

STEP = 384  # positions of a step, at most
FEW = 2  # rows, up to which panels do not pay


class Buffers(NamedTuple, Generic[Word]):
    x: Word
    g: Word
    y: Word
    scratch: Word


class Params(NamedTuple, Generic[Word]):
    """Behind the parameters of the window, whose output is g."""

    mc: Word  # block sizes, from `blocks`: filters, columns (a multiple of 8)
    nc: Word
    lines: Word  # of a step, from `step_size`
    wide: Word
    rows: Word  # of x that a step's lines cover, from `covered`
    run: Word  # elements of such a row, for each remainder by the stride
    bytes: Word  # of scratch for a thread
    direct: Word  # 1: no im2row copy; the plane is one row of `run` elements


ARGUMENTS = ArgumentBlock(Buffers._fields, (*Window._fields, *Params._fields), "y")


def blocks(mg: int, columns: int, threads: int) -> tuple[int, int]:
    """Return (mc, nc): with several threads, at least two blocks for each, of columns if there are enough."""
    mc, nc = max(min(mg, 192), 1), 256
    if threads > 1:
        nc = max(min(-(-columns // (2 * threads * PANEL)) * PANEL, 256), 2 * PANEL)
        if columns <= nc * (threads - 1):
            mc = max(min(-(-mg // (threads * 6)) * 6, 192), 1)
    return mc, nc


def step_size(oh: AnyDim, ow: AnyDim) -> tuple[AnyDim, AnyDim]:
    """Return (lines, wide)."""
    wide = sh.clamp(ow, 1, STEP)
    return sh.clamp(sh.floordiv(STEP, wide), 1, sh.maximum(oh, 1)), wide


def covered(lines: AnyDim, wide: AnyDim, w: Window[AnyDim]) -> tuple[AnyDim, AnyDim]:
    """Return (rows, run)."""
    return (lines - 1) * w.sh + (w.kh - 1) * w.dh + 1, wide + sh.floordiv((w.kw - 1) * w.dw, w.sw)


def scratch_bytes(nc: int, channels: int, w: Window[AnyDim], rows: AnyDim, run: AnyDim) -> AnyDim:
    """Panels, a table of the columns, and what windows cover of so many channels."""
    return nc * (STEP + 1) * 4 + channels * w.kd * rows * w.sw * run * 4 + 16


def channels_of_block(nc: int, cg: int, taps: int) -> int:
    """The most channels that a block of columns touches."""
    return min((nc - 2) // taps + 2, cg)


def units(groups: AnyDim, mg: int, columns: int, mc: int, nc: int) -> AnyDim:
    return groups * -(-columns // nc) * -(-mg // mc)


@helper("filters_table")
def _table(f: Function, args: Ptr, col: I32, cols: I32, first: I32, to: Ptr) -> None:
    """For each column, and the last one again up to a multiple of 8, write where in scratch its first position is, in
    bytes; first: the channel with which scratch begins."""
    w, sizes = windowed(ARGUMENTS.integers(f), Params)
    j, end, tap, c = f.integers(4)
    f.set(end, cols + (PANEL - 1) & -PANEL).set(cols, col + cols - 1)
    with f.until(j, end):
        f.set(tap, col + j).set(tap, minimum(tap, cols))
        f.push(tap // c.tee(w.kd * w.kh * w.kw) - first, tap % c).set(tap).set(c)
        f.push(to, (c * w.kd + tap // (w.kh * w.kw)) * sizes.rows + tap // w.kw % w.kh * w.dh)
        f.set(tap, tap % w.kw * w.dw)
        f.emit(w.sw, "i32.mul").push(tap % w.sw).emit("i32.add", sizes.run, "i32.mul")
        f.push(tap // w.sw).emit("i32.add").i32(2).emit("i32.shl").mem("i32.store").add(to, 4)


@helper("filters_copy")
def _copy(f: Function, args: Ptr, x: Ptr, channels: I32, z: I32, y: I32, x0: I32, to: Ptr) -> None:
    """Copy what the windows of a step cover: rows [channels][kd][rows][sw][run]."""
    w, sizes = windowed(ARGUMENTS.integers(f), Params)
    (size, c, tap, row, iz, iy), (at, end) = f.integers(6), f.pointers(2)
    f.set(size, w.sw * sizes.run << 2).set(z, z * w.sd - w.pd).set(y, y * w.sh - w.ph)
    with f.until(c, channels):
        f.set(tap, 0)
        with f.until(tap, w.kd):
            f.set(iz, z + tap * w.dd).set(row, 0)
            with f.until(row, sizes.rows):
                f.set(at, to).set(end, to + size)
                with f.until(at, end, 16):
                    f.store(at, ZERO)
                f.set(iy, y + row)
                with f.if_(iz.lt_u(w.id) & iy.lt_u(w.ih)):
                    f.set(at, (((c * w.id + iz) * w.ih + iy) * w.iw << 2) + x)
                    _copy_row(f, w, sizes.run, at, x0, to)
                f.set(to, end)


def _copy_row(f: Function, w: Window[I32], run: I32, source: Ptr, x0: I32, to: Ptr) -> None:
    """Copy the row of x at `source` to [sw][run] at `to`, from output position x0 on."""
    with f.scratch("i32 i32 i32 ptr ptr i32") as (phase, low, high, start, at, step):
        f.set(phase, 0).set(step, w.sw << 2)
        with f.until(phase, w.sw):
            pads = w.pw - phase
            for place, columns in ((low, pads), (high, pads + w.iw)):
                f.set(place, (columns + w.sw - 1).div_s(w.sw) - x0)
            f.set(low, select(low, 0, low.gt_s(0))).set(high, select(high, run, high.lt_s(run)))
            f.set(start, ((x0 + low) * w.sw + phase - w.pw << 2) + source)
            f.set(at, (phase * run + low << 2) + to).set(high, high - low)  # high: the number of elements
            for stride in (1, 2):
                with f.if_(w.sw.eq(stride)), f.countdown(high, 4):
                    four = start.load()
                    f.store(at, four if stride == 1 else shuffle32(four, start.load(16), 0, 2, 4, 6))
                    f.add(at, 16).add(start, 16 * stride)
            with f.countdown(high, 1):
                f.emit(at, start).mem("f32.load").mem("f32.store").add(at, 4).add(start, step)


class Span(NamedTuple):
    """Positions of a step: `lines` lines of `width`, `step` bytes apart in scratch, and the columns of a block."""

    source: Ptr
    table: Ptr
    cols: I32
    width: I32
    lines: I32
    step: I32


@helper("filters_pack")
def _pack(f: Function, source: Ptr, table: Ptr, cols: I32, count: I32, lines: I32, step: I32, to: Ptr) -> None:
    """Write panels [ceil(cols / 8)][lines * count][8] of a span."""
    line, n = f.integers(2)
    firsts, rows, v = f.pointers(PANEL), f.pointers(PANEL), f.vectors(4)
    with f.loop() as panels:
        for i, first in enumerate(firsts):
            f.set(first, source + table.i32(4 * i))
        f.set(line, 0)
        with f.until(line, lines):
            for first, row in zip(firsts, rows, strict=True):
                f.set(first, row.tee(first) + step)
            f.set(n, count)
            for taken in (4, 1):
                with f.countdown(n, taken):
                    _positions(f, rows, to, v, taken)
                    for row in rows:
                        f.add(row, 4 * taken)
                    f.add(to, 32 * taken)
        f.add(table, 4 * PANEL).add(cols, -PANEL).br_if(panels, cols.gt_s(0))


def _positions(f: Function, rows: Sequence[Ptr], to: Ptr, v: Sequence[V128], taken: int) -> None:
    """Write four positions of eight columns, or one."""
    for half in (0, 1):
        part = rows[4 * half : 4 * half + 4]
        if taken == 1:
            f.set(v[0], part[0].load(0, "v128.load32_zero"))
            for lane in (1, 2, 3):
                f.set(v[0], part[lane].load_lane("v128.load32_lane", v[0], lane))
            f.store(to, v[0], 16 * half)
            continue
        for row, to_row in zip(part, v, strict=True):
            f.set(to_row, row.load())
        transpose4(f, v)
        for i in range(4):
            f.store(to, v[i], 32 * i + 16 * half)


@helper("filters_dots")
def _dots(
    f: Function, source: Ptr, table: Ptr, cols: I32, count: I32, lines: I32, step: I32, a: Ptr, c: Ptr, flags: I32,
    *, arithmetic: Arithmetic,
) -> None:  # fmt: skip
    """Write one row of y, each element a sum along the positions of a span. a: the row of g"""
    span = Span(source, table, cols, count, lines, step)
    for width in (PANEL, 1):
        columns, sums = f.pointers(width), f.vectors(width)
        with f.countdown(cols, width):
            for i, (column, total) in enumerate(zip(columns, sums, strict=True)):
                f.set(column, source + table.i32(4 * i)).set(total, ZERO)
            _sum_positions(f, span, a, columns, sums, arithmetic)
            for i, total in enumerate(sums):
                _add_sum(f, total, c, flags, 4 * i)
            f.add(table, 4 * width).add(c, 4 * width)
        f.release(*columns, *sums)


def _sum_positions(
    f: Function, span: Span, a: Ptr, columns: Sequence[Ptr], sums: Sequence[V128], arithmetic: Arithmetic
) -> None:  # fmt: skip
    """Add g times x at all positions of the step to the sums."""
    with f.scratch("ptr i32 i32" + " ptr" * len(columns)) as (g, line, n, *at), f.scratch("v128", 2) as (flow, value):
        f.set(g, a).set(line, 0)
        with f.until(line, span.lines):
            for column, pointer in zip(columns, at, strict=True):
                f.set(column, pointer.tee(column) + span.step)
            f.set(n, span.width)
            for taken, load in ((4, "v128.load"), (1, "v128.load32_zero")):
                with f.countdown(n, taken):
                    f.set(flow, g.load(0, load)).add(g, 4 * taken)
                    for pointer, total in zip(at, sums, strict=True):
                        f.set(value, pointer.load(0, load)).add(pointer, 4 * taken)
                        arithmetic.multiply_add(f, total, flow, value)


def _add_sum(f: Function, total: V128, c: Ptr, flags: I32, at: int) -> None:
    """Add the sum over lanes to y, or store it in the first step."""
    for lanes in ((2, 3, 0, 1), (1, 0, 3, 2)):
        f.set(total, f32x4.add(total, shuffle32(total, total, *lanes)))
    f.emit(c).f32(0).emit(c).mem("f32.load", at).emit(flags, "select")
    f.emit(total).lane("f32x4.extract_lane", 0).emit("f32.add").mem("f32.store", at)


@contextmanager
def _steps(f: Function, w: Window[I32], sizes: Params[I32], at: Sequence[I32]) -> Iterator[None]:
    """Loop over the batch and its steps. at: the image, depth z, first line y, first position x"""
    n, z, y, x = at
    for counter in at:
        f.set(counter, 0)
    with f.until(n, w.batch):
        f.set(z, 0)
        with f.until(z, w.od):
            f.set(y, 0)
            with f.block() as lines, f.loop() as next_lines:
                f.br_if(lines, y.ge_s(w.oh)).set(x, 0)
                with f.block() as out, f.loop() as again:
                    f.br_if(out, x.ge_s(w.ow))
                    yield
                    f.add(x, sizes.wide).br(again)
                f.add(y, sizes.lines).br(next_lines)


@once
def _unit(module: Module, arithmetic: Arithmetic) -> Function:
    """(args, unit, scratch): one block of y."""
    panels = panels_block(module, arithmetic, NO_EPILOGUE)
    table, copy, pack, dots = _table(module), _copy(module), _pack(module), _dots(module, arithmetic=arithmetic)
    f = module.function("filters_unit", ["i32"] * 3, export=False)
    args, unit, scratch = POINTERS[0], f.params[1], POINTERS[2]
    b = Buffers(*ARGUMENTS.pointers(f))
    w, sizes = windowed(ARGUMENTS.integers(f), Params)
    p = f.fields(Block)
    columns, taps, group, positions, plane, first, channels, n, z, y, x, count, lines = f.integers(13)
    (offsets, covered_at, image), (step,), (source,) = f.pointers(3), f.integers(1), f.pointers(1)
    f.set(taps, w.kd * w.kh * w.kw).set(positions, w.od * w.oh * w.ow).set(plane, w.id * w.ih * w.iw)
    f.set(columns, w.cg * taps)
    with block_of_unit(f, p, unit, (w.mg, sizes.mc), (columns, sizes.nc)) as rest:
        f.set(group, rest)
    f.set(p.args, args).set(p.lda, positions << 2).set(p.ldc, columns << 2).set(p.b, scratch).set(p.flags, FIRST)
    f.set(n, group * w.mg + p.row).set(p.c, b.y + n * columns * 4 + (p.col << 2)).set(b.g, b.g + n * positions * 4)
    f.set(first, p.col // taps).set(channels, (p.col + p.cols - 1) // taps - first + 1)
    f.set(n, group * w.cg + first).set(image, b.x + n * plane * 4)
    f.set(covered_at, offsets.tee(scratch + sizes.nc * (4 * STEP)) + (sizes.nc << 2))
    f.set(step, w.sh * w.sw * sizes.run << 2).call(table, args, p.col, p.cols, first, offsets)
    with f.if_((w.batch * positions).eqz()):
        call_block(f, panels, p)  # zeros: k is 0
    with _steps(f, w, sizes, (n, z, y, x)):
        f.set(count, w.ow - x).set(count, minimum(count, sizes.wide))
        f.set(lines, w.oh - y).set(lines, minimum(lines, sizes.lines))
        f.set(source, (n * w.groups * w.cg * plane + select(x, 0, sizes.direct) << 2) + image)
        with f.if_(sizes.direct.eqz()):
            f.call(copy, args, source, channels, z, y, x, covered_at).set(source, covered_at)
        f.set(p.a, (n * w.groups * w.mg * positions + ((z * w.oh + y) * w.ow + x) << 2) + b.g)
        span = Span(source, offsets, p.cols, count, lines, step)
        with f.if_(p.rows.le_s(FEW)):
            f.call(dots, *span, p.a, p.c, p.flags)
            with f.if_(p.rows.gt_s(1)):
                f.call(dots, *span, p.a + p.lda, p.c + p.ldc, p.flags)
            f.otherwise().call(pack, *span, scratch).set(p.ldb, p.k.tee(count * lines) << 5)
            call_block(f, panels, p)
        f.set(p.flags, 0)
    return f


def conv_filters(module: Module, name: str, *, arithmetic: Arithmetic) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, arithmetic)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    (scratch,), (_, sizes) = ARGUMENTS.pointers(f, "scratch"), windowed(ARGUMENTS.integers(f), Params)
    f.set(tid, scratch + sizes.bytes * tid)
    with f.until(begin, end):
        f.call(unit, args, begin, tid)
    return f
