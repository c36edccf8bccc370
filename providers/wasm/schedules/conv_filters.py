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

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from .arguments import KERNEL, ArgumentBlock, element, minimum
from .arithmetic import Arithmetic
from .pack_panels import transpose4
from .register_tile import FIRST, NO_EPILOGUE, PANEL, Block, block_of_unit, call_block, panels_block

STEP = 384  # positions of a step, at most
FEW = 2  # rows, up to which panels do not pay


class Buffers(NamedTuple):
    x: Tensor
    g: Tensor
    y: Tensor
    scratch: Tensor


class Params(NamedTuple):
    batch: AnyDim
    groups: AnyDim
    mg: AnyDim  # filters of a group
    cg: AnyDim  # channels of a group
    id: AnyDim  # extents of x: depth, height, width
    ih: AnyDim
    iw: AnyDim
    od: AnyDim  # of g
    oh: AnyDim
    ow: AnyDim
    kd: AnyDim  # of the window
    kh: AnyDim
    kw: AnyDim
    sd: AnyDim  # strides
    sh: AnyDim
    sw: AnyDim
    dd: AnyDim  # dilations
    dh: AnyDim
    dw: AnyDim
    pd: AnyDim  # pads at the beginning
    ph: AnyDim
    pw: AnyDim
    mc: AnyDim  # block sizes, from `blocks`: filters, columns (a multiple of 8)
    nc: AnyDim
    lines: AnyDim  # of a step, from `step_size`
    wide: AnyDim
    rows: AnyDim  # of x that a step's lines cover, from `covered`
    run: AnyDim  # elements of such a row, for each remainder by the stride
    bytes: AnyDim  # of scratch for a thread
    direct: int  # 1: no im2row copy; the plane is one row of `run` elements


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "y")


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


def covered(lines: AnyDim, wide: AnyDim, window: dict[str, AnyDim]) -> tuple[AnyDim, AnyDim]:
    """Return (rows, run). window: parameters by name"""
    rows = (lines - 1) * window["sh"] + (window["kh"] - 1) * window["dh"] + 1
    return rows, wide + sh.floordiv((window["kw"] - 1) * window["dw"], window["sw"])


def scratch_bytes(nc: int, channels: int, window: dict[str, AnyDim], rows: AnyDim, run: AnyDim) -> AnyDim:
    """Panels, a table of the columns, and what windows cover of so many channels."""
    return nc * (STEP + 1) * 4 + channels * window["kd"] * rows * window["sw"] * run * 4 + 16


def channels_of_block(nc: int, cg: int, taps: int) -> int:
    """The most channels that a block of columns touches."""
    return min((nc - 2) // taps + 2, cg)


def units(groups: AnyDim, mg: int, columns: int, mc: int, nc: int) -> AnyDim:
    return groups * -(-columns // nc) * -(-mg // mc)


@once
def _table(module: Module) -> Function:
    """(args, col, cols, first, to): for each column, and the last one again up to a multiple of 8, where in scratch its
    first position is, in bytes; first: the channel with which scratch begins."""
    f = module.function("filters_table", ["i32"] * 5, export=False)
    _, col, cols, first, to = f.params
    w = ARGUMENTS.load(f, 0, ())
    j, end, tap, c = f.locals("i32", 4)
    f.emit(cols).i32(PANEL - 1).emit("i32.add").i32(-PANEL).emit("i32.and").set(end)
    f.emit(col, cols, "i32.add").i32(1).emit("i32.sub").set(cols)
    with f.until(j, end):
        f.emit(col, j, "i32.add").set(tap)
        minimum(f, tap, tap, cols)
        f.emit(tap, w["kd"], w["kh"], "i32.mul", w["kw"], "i32.mul").tee(c)
        f.emit("i32.div_u", first, "i32.sub", tap, c, "i32.rem_u").set(tap).set(c)
        f.emit(to, c, w["kd"], "i32.mul", tap, w["kh"], w["kw"], "i32.mul", "i32.div_u", "i32.add")
        f.emit(w["rows"], "i32.mul", tap, w["kw"], "i32.div_u", w["kh"], "i32.rem_u", w["dh"], "i32.mul", "i32.add")
        f.emit(tap, w["kw"], "i32.rem_u", w["dw"], "i32.mul").set(tap)
        f.emit(w["sw"], "i32.mul", tap, w["sw"], "i32.rem_u", "i32.add", w["run"], "i32.mul")
        f.emit(tap, w["sw"], "i32.div_u", "i32.add").i32(2).emit("i32.shl").mem("i32.store")
        f.add(to, 4)
    return f


@once
def _copy(module: Module) -> Function:
    """(args, x, channels, z, y, x0, to): copy what the windows of a step cover: rows [channels][kd][rows][sw][run]."""
    f = module.function("filters_copy", ["i32"] * 7, export=False)
    _, x, channels, z, y, x0, to = f.params
    w = ARGUMENTS.load(f, 0, ())
    size, c, tap, row, iz, iy, at, end = f.locals("i32", 8)
    f.emit(w["sw"], w["run"], "i32.mul").i32(2).emit("i32.shl").set(size)
    f.emit(z, w["sd"], "i32.mul", w["pd"], "i32.sub").set(z).emit(y, w["sh"], "i32.mul", w["ph"], "i32.sub").set(y)
    with f.until(c, channels):
        f.i32(0).set(tap)
        with f.until(tap, w["kd"]):
            f.emit(z, tap, w["dd"], "i32.mul", "i32.add").set(iz).i32(0).set(row)
            with f.until(row, w["rows"]):
                f.emit(to).set(at).emit(to, size, "i32.add").set(end)
                with f.until(at, end, 16):
                    f.emit(at).f32x4(0).mem("v128.store")
                f.emit(y, row, "i32.add").set(iy)
                f.emit(iz, w["id"], "i32.lt_u", iy, w["ih"], "i32.lt_u", "i32.and")
                with f.if_():
                    f.emit(c, w["id"], "i32.mul", iz, "i32.add", w["ih"], "i32.mul", iy, "i32.add", w["iw"], "i32.mul")
                    f.i32(2).emit("i32.shl", x, "i32.add").set(at)
                    _copy_row(f, w, at, x0, to)
                f.emit(end).set(to)
    return f


def _copy_row(f: Function, w: dict[str, Any], source: int, x0: int, to: int) -> None:
    """Copy the row of x at `source` to [sw][run] at `to`, from output position x0 on."""
    with f.scratch("i32", 6) as (phase, low, high, start, at, step):
        f.i32(0).set(phase).emit(w["sw"]).i32(2).emit("i32.shl").set(step)
        with f.until(phase, w["sw"]):
            for place, extent in ((low, ()), (high, (w["iw"], "i32.add"))):
                f.emit(w["pw"], phase, "i32.sub", *extent, w["sw"], "i32.add").i32(1).emit("i32.sub")
                f.emit(w["sw"], "i32.div_s", x0, "i32.sub").set(place)
            f.emit(low).i32(0).emit(low).i32(0).emit("i32.gt_s", "select").set(low)
            f.emit(high, w["run"], high, w["run"], "i32.lt_s", "select").set(high)
            f.emit(x0, low, "i32.add", w["sw"], "i32.mul", phase, "i32.add", w["pw"], "i32.sub").i32(2)
            f.emit("i32.shl", source, "i32.add").set(start)
            f.emit(phase, w["run"], "i32.mul", low, "i32.add").i32(2).emit("i32.shl", to, "i32.add").set(at)
            f.emit(high, low, "i32.sub").set(high)  # the number of elements
            for stride in (1, 2):
                f.emit(w["sw"]).i32(stride).emit("i32.eq")
                with f.if_(), f.countdown(high, 4):
                    f.emit(at, start).mem("v128.load")
                    if stride == 2:
                        f.emit(start).mem("v128.load", 16).shuffle32(0, 2, 4, 6)
                    f.mem("v128.store").add(at, 16).add(start, 16 * stride)
            with f.countdown(high, 1):
                f.emit(at, start).mem("f32.load").mem("f32.store").add(at, 4).emit(start, step, "i32.add").set(start)


@once
def _pack(module: Module) -> Function:
    """(from, table, cols, count, lines, step, to): write panels [ceil(cols / 8)][lines * count][8]; step: bytes between
    lines in scratch."""
    f = module.function("filters_pack", ["i32"] * 7, export=False)
    source, table, cols, count, lines, step, to = f.params
    line, n = f.locals("i32", 2)
    firsts, rows, v = f.locals("i32", PANEL), f.locals("i32", PANEL), f.locals("v128", 4)
    with f.loop() as panels:
        for i, first in enumerate(firsts):
            f.emit(source, table).mem("i32.load", 4 * i).emit("i32.add").set(first)
        f.i32(0).set(line)
        with f.until(line, lines):
            for first, row in zip(firsts, rows, strict=True):
                f.emit(first).tee(row).emit(step, "i32.add").set(first)
            f.emit(count).set(n)
            for taken in (4, 1):
                with f.countdown(n, taken):
                    _positions(f, rows, to, v, taken)
                    for row in rows:
                        f.add(row, 4 * taken)
                    f.add(to, 32 * taken)
        f.add(table, 4 * PANEL).add(cols, -PANEL).emit(cols).i32(0).emit("i32.gt_s").br_if(panels)
    return f


def _positions(f: Function, rows: list[Any], to: int, v: list[Any], taken: int) -> None:
    """Write four positions of eight columns, or one."""
    for half in (0, 1):
        part = rows[4 * half : 4 * half + 4]
        if taken == 1:
            f.emit(part[0]).mem("v128.load32_zero").set(v[0])
            for lane in (1, 2, 3):
                f.emit(part[lane], v[0]).mem_lane("v128.load32_lane", lane).set(v[0])
            f.emit(to, v[0]).mem("v128.store", 16 * half)
            continue
        for row, to_row in zip(part, v, strict=True):
            f.emit(row).mem("v128.load").set(to_row)
        transpose4(f, v)
        for i in range(4):
            f.emit(to, v[i]).mem("v128.store", 32 * i + 16 * half)


@once
def _dots(module: Module, arithmetic: Arithmetic) -> Function:
    """(from, table, cols, count, lines, step, a, c, flags): one row of y, each element a sum along positions. a: the
    row of g; from to step: as `_pack`."""
    f = module.function("filters_dots", ["i32"] * 9, export=False)
    source, table, cols, *_ = f.params
    for width in (PANEL, 1):
        columns, sums = f.locals("i32", width), f.locals("v128", width)
        with f.countdown(cols, width):
            for i, (column, total) in enumerate(zip(columns, sums, strict=True)):
                f.emit(source, table).mem("i32.load", 4 * i).emit("i32.add").set(column).f32x4(0).set(total)
            _sum_positions(f, columns, sums, arithmetic)
            _add_sums(f, sums)
            f.add(table, 4 * width).add(f.params[7], 4 * width)
        f.release(*columns, *sums)
    return f


def _sum_positions(f: Function, columns: list[Any], sums: list[Any], arithmetic: Arithmetic) -> None:
    """Add g times x at all positions of the step to the sums."""
    count, lines, step, a = f.params[3:7]
    with f.scratch("i32", 3 + len(columns)) as (g, line, n, *at), f.scratch("v128", 2) as (flow, value):
        f.emit(a).set(g).i32(0).set(line)
        with f.until(line, lines):
            for column, pointer in zip(columns, at, strict=True):
                f.emit(column).tee(pointer).emit(step, "i32.add").set(column)
            f.emit(count).set(n)
            for taken, load in ((4, "v128.load"), (1, "v128.load32_zero")):
                with f.countdown(n, taken):
                    f.emit(g).mem(load).set(flow).add(g, 4 * taken)
                    for pointer, total in zip(at, sums, strict=True):
                        f.emit(pointer).mem(load).set(value).add(pointer, 4 * taken)
                        arithmetic.multiply_add(f, total, flow, value)


def _add_sums(f: Function, sums: list[Any]) -> None:
    """Add the sums over lanes to y, or store them in the first step."""
    c, flags = f.params[7:]
    for i, total in enumerate(sums):
        for lanes in ((2, 3, 0, 1), (1, 0, 3, 2)):
            f.emit(total, total, total).shuffle32(*lanes).emit("f32x4.add").set(total)
        f.emit(c).f32(0).emit(c).mem("f32.load", 4 * i).emit(flags, "select")
        f.emit(total).lane("f32x4.extract_lane", 0).emit("f32.add").mem("f32.store", 4 * i)


@contextmanager
def _steps(f: Function, w: dict[str, Any], n: int, z: int, y: int, x: int) -> Iterator[None]:
    """Loop over the batch and its steps: depth z, first line y, first position x."""
    for counter in (n, z, y, x):
        f.i32(0).set(counter)
    with f.until(n, w["batch"]):
        f.i32(0).set(z)
        with f.until(z, w["od"]):
            f.i32(0).set(y)
            with f.block() as lines, f.loop() as next_lines:
                f.emit(y, w["oh"], "i32.ge_s").br_if(lines)
                f.i32(0).set(x)
                with f.block() as out, f.loop() as again:
                    f.emit(x, w["ow"], "i32.ge_s").br_if(out)
                    yield
                    f.emit(x, w["wide"], "i32.add").set(x).br(again)
                f.emit(y, w["lines"], "i32.add").set(y).br(next_lines)


@once
def _unit(module: Module, arithmetic: Arithmetic) -> Function:
    """(args, unit, scratch): one block of y."""
    panels = panels_block(module, arithmetic, NO_EPILOGUE)
    table, copy, pack, dots = _table(module), _copy(module), _pack(module), _dots(module, arithmetic)
    f = module.function("filters_unit", ["i32"] * 3, export=False)
    args, unit, scratch = f.params
    w = ARGUMENTS.load(f)
    p = f.fields(Block)
    columns, taps, group, positions, plane, first, channels = f.locals("i32", 7)
    n, z, y, x, count, lines, offsets, covered_at, image, step, source = f.locals("i32", 11)
    for to, names in ((taps, "kd kh kw"), (positions, "od oh ow"), (plane, "id ih iw")):
        a, b, c = (w[name] for name in names.split())
        f.emit(a, b, "i32.mul", c, "i32.mul").set(to)
    f.emit(w["cg"], taps, "i32.mul").set(columns)
    with block_of_unit(f, p, unit, (w["mg"], w["mc"]), (columns, w["nc"])) as rest:
        f.emit(rest).set(group)
    f.emit(args).set(p.args).emit(positions).i32(2).emit("i32.shl").set(p.lda)
    f.emit(columns).i32(2).emit("i32.shl").set(p.ldc).emit(scratch).set(p.b).i32(FIRST).set(p.flags)
    f.emit(group, w["mg"], "i32.mul", p.row, "i32.add").set(n)
    element(f, w["y"], (n, columns)).emit(p.col).i32(2).emit("i32.shl", "i32.add").set(p.c)
    element(f, w["g"], (n, positions)).set(w["g"])
    f.emit(p.col, taps, "i32.div_u").set(first)
    f.emit(p.col, p.cols, "i32.add").i32(1).emit("i32.sub", taps, "i32.div_u", first, "i32.sub").i32(1)
    f.emit("i32.add").set(channels)
    f.emit(group, w["cg"], "i32.mul", first, "i32.add").set(n)
    element(f, w["x"], (n, plane)).set(image)
    f.emit(scratch, w["nc"]).i32(4 * STEP).emit("i32.mul", "i32.add").tee(offsets)
    f.emit(w["nc"]).i32(2).emit("i32.shl", "i32.add").set(covered_at)
    f.emit(w["sh"], w["sw"], "i32.mul", w["run"], "i32.mul").i32(2).emit("i32.shl").set(step)
    f.emit(args, p.col, p.cols, first, offsets).call(table)
    f.emit(w["batch"], positions, "i32.mul", "i32.eqz")
    with f.if_():
        call_block(f, panels, p)  # zeros: k is 0
    with _steps(f, w, n, z, y, x):
        for to, extent, at, most in ((count, "ow", x, "wide"), (lines, "oh", y, "lines")):
            f.emit(w[extent], at, "i32.sub").set(to)
            minimum(f, to, to, w[most])
        f.emit(n, w["groups"], "i32.mul", w["cg"], "i32.mul", plane, "i32.mul", x).i32(0).emit(w["direct"], "select")
        f.emit("i32.add").i32(2).emit("i32.shl", image, "i32.add").set(source).emit(w["direct"], "i32.eqz")
        with f.if_():
            f.emit(args, source, channels, z, y, x, covered_at).call(copy).emit(covered_at).set(source)
        f.emit(n, w["groups"], "i32.mul", w["mg"], "i32.mul", positions, "i32.mul")
        f.emit(z, w["oh"], "i32.mul", y, "i32.add", w["ow"], "i32.mul", x, "i32.add", "i32.add").i32(2)
        f.emit("i32.shl", w["g"], "i32.add").set(p.a)
        span = (source, offsets, p.cols, count, lines, step)
        f.emit(p.rows).i32(FEW).emit("i32.le_s")
        with f.if_():
            f.emit(*span, p.a, p.c, p.flags).call(dots).emit(p.rows).i32(1).emit("i32.gt_s")
            with f.if_():
                f.emit(*span, p.a, p.lda, "i32.add", p.c, p.ldc, "i32.add", p.flags).call(dots)
            f.otherwise().emit(*span, scratch).call(pack)
            f.emit(count, lines, "i32.mul").tee(p.k).i32(5).emit("i32.shl").set(p.ldb)
            call_block(f, panels, p)
        f.i32(0).set(p.flags)
    return f


def conv_filters(module: Module, name: str, *, arithmetic: Arithmetic) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, arithmetic)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    w = ARGUMENTS.load(f, 0, ("scratch",))
    f.emit(w["scratch"], w["bytes"], tid, "i32.mul", "i32.add").set(tid)
    with f.until(begin, end):
        f.emit(args, begin, tid).call(unit)
    return f
