"""The routine "conv" in f32 for one to three spatial dims, as an implicit matrix product.

y[n, g*mg + m, out] = sum over k = (c, tap) of w[g*mg + m, k] * x[n, g*cg + c, out * stride - pad + tap * dilation]

The weights are the rows, as stored. The columns are gathered from x into panels in scratch, a block at a time, through
a table of offsets and lane masks, one for each block of output positions. Fewer dims are 3-D with extents of 1.
A 1x1 convolution with stride 1, no padding and one group is a product (gemm.py) that reads x in place. Depthwise
convolutions are in depthwise.py.

x, w, y are contiguous. The epilogue's bias is "row"; its row is the filter g*mg + m, its col the output position.
With Arithmetic.INT16 or INT8 an element of x and w is two int16 or four bytes of adjacent channels, and y is int32.
`filled`: the padding is the word at `bias` instead of 0.
Reads up to 12 bytes before x and past its end (masked). `scratch_bytes` of scratch for each thread.

Work units: batch * groups * ceil(positions / nc) * ceil(mg / mc), `units`; filter blocks vary fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from ..printer.values import POINTERS
from .arguments import KERNEL, ArgumentBlock, ConvBuffers, element, minimum
from .arithmetic import Arithmetic
from .gemm import row_block
from .register_tile import (
    NO_EPILOGUE,
    PANEL,
    Block,
    Epilogue,
    block_of_unit,
    call_block,
    call_units,
    flags_of,
    panels_block,
)


class Params(NamedTuple):
    batch: AnyDim
    groups: AnyDim
    mg: AnyDim  # filters of a group
    cg: AnyDim  # channels of a group
    id: AnyDim  # extents of the input: depth, height, width
    ih: AnyDim
    iw: AnyDim
    od: AnyDim  # of the output
    oh: AnyDim
    ow: AnyDim
    kd: AnyDim  # of the kernel
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
    mc: AnyDim  # block sizes, from `blocks`: filters, positions (a multiple of 8), channels
    nc: AnyDim
    cc: AnyDim


ARGUMENTS = ArgumentBlock(ConvBuffers._fields, Params._fields, "y")
_CONTIGUOUS = -1  # marks an entry whose four positions are adjacent in x: its fourth offset
_NOWHERE = -(1 << 30)  # marks a coordinate outside of x
_ENTRY = 32  # four byte offsets, four lane masks


def blocks(mg: AnyDim, cg: AnyDim, positions: AnyDim, taps: int, threads: int = 1) -> tuple[AnyDim, int, AnyDim]:
    """Return (mc, nc, cc), like `gemm.blocks`; a step sums cc * taps products.

    Chromium 156, Zen 5, relaxed, one thread, GFLOP/s of 61: 64x56x56 3x3 53, 256x14x14 3x3 53, 512x7x7 3x3 46,
    3x224x224 7x7/2 48, 16x56x56 3x3 44.
    """
    most = max(1, 384 // max(taps, 1))
    cc = sh.clamp(cg, 1, most)
    mc, nc = sh.clamp(mg, 1, 192), 256
    while nc > 32 and taps * nc * (4 * (cc if isinstance(cc, int) else most) + 8) > 1 << 20:
        nc //= 2
    while threads > 1 and nc > 64 and sh.compare("lt", units(1, 1, mg, positions, mc, nc), 4 * threads) == 1:
        nc //= 2
    if threads > 1:
        mc = row_block(mg, sh.ceildiv(positions, nc), threads)
    return mc, nc, cc


def units(batch: AnyDim, groups: AnyDim, mg: AnyDim, positions: AnyDim, mc: AnyDim, nc: AnyDim) -> AnyDim:
    return batch * groups * sh.ceildiv(positions, nc) * sh.ceildiv(mg, mc)


def scratch_bytes(nc: AnyDim, cc: AnyDim, taps: AnyDim) -> AnyDim:
    """Per thread: panels (4 bytes a product) and the table (8); thread t uses scratch + t * scratch_bytes."""
    return nc * taps * (4 * cc + 8)


def _next_position(f: Function, w: dict[str, Any], at: dict[str, Any]) -> None:
    """Advance (z, y, x) to the next output position."""
    f.add(at["x"], 1).emit(at["x"], w["ow"], "i32.eq")
    with f.if_():
        f.i32(0).set(at["x"]).add(at["y"], 1).emit(at["y"], w["oh"], "i32.eq")
        with f.if_():
            f.i32(0).set(at["y"]).add(at["z"], 1)


def _corners(f: Function, w: dict[str, Any], at: dict[str, Any], left: int, corner: dict[str, Any]) -> None:
    """Set the first input coordinates (tap 0) of four output positions; counts down `left`, the positions left in the
    block."""
    for lane in range(4):
        f.emit(left).i32(0).emit("i32.gt_s")
        with f.if_():
            for axis, size in (("z", "d"), ("y", "h"), ("x", "w")):
                f.emit(corner[axis], at[axis], w["s" + size], "i32.mul", w["p" + size], "i32.sub")
                f.lane("i32x4.replace_lane", lane).set(corner[axis])
            _next_position(f, w, at)
            f.otherwise()
            f.emit(corner["x"]).i32(_NOWHERE).lane("i32x4.replace_lane", lane).set(corner["x"])
        f.add(left, -1)


def _entry(f: Function, w: dict[str, Any], corner: dict[str, Any], tap: dict[str, Any], to: int, same: int) -> None:
    """Write a table entry: the offsets that four positions read for this tap, and a mask of the positions inside of
    x."""
    with f.scratch("v128", 2) as (mask, offset), f.scratch("v128", 3) as inputs:
        f.v128(b"\xff" * 16).set(mask).f32x4(0).set(offset)
        for v, axis, size in zip(inputs, "zyx", "dhw", strict=True):
            f.emit(corner[axis], tap[axis], "i32x4.splat", "i32x4.add").set(v)
            f.emit(v, w["i" + size], "i32x4.splat", "i32x4.lt_u", mask, "v128.and").set(mask)
            f.emit(offset, w["i" + size], "i32x4.splat", "i32x4.mul", v, "i32x4.add").set(offset)
        f.emit(offset).i32(2).emit("i32x4.shl").set(offset)
        f.emit(to, mask).mem("v128.store", 16).emit(same)
        with f.if_():
            f.emit(to, offset).lane("i32x4.extract_lane", 0).i32(0).emit(mask, "v128.any_true", "select")
            f.mem("i32.store").emit(to).i32(_CONTIGUOUS).mem("i32.store", 12)
            f.otherwise().emit(to, offset, mask, "v128.and").mem("v128.store")
    f.add(to, _ENTRY)


@once
def _table(module: Module, extra: int) -> Function:
    """(args, col, cols, to): write the entries [ceil(cols / 8) * 2][taps] for output positions col..col+cols."""
    f = module.function("conv_table", ["i32"] * 4, export=False)
    _, col, cols, to = f.params
    w = ARGUMENTS.load(f, extra, ())
    at, tap = ({axis: f.local("i32") for axis in "zyx"} for _ in range(2))
    corner = {axis: f.local("v128") for axis in "zyx"}
    same, end = f.locals("i32", 2)
    rest = at["y"]
    f.emit(col, w["ow"], "i32.rem_u").set(at["x"]).emit(col, w["ow"], "i32.div_u").tee(rest)
    f.emit(w["oh"], "i32.div_u").set(at["z"]).emit(rest, w["oh"], "i32.rem_u").set(at["y"])
    f.i32(0).emit(cols).i32(PANEL - 1).emit("i32.add").i32(-PANEL).emit("i32.and", "i32.sub").emit(cols, "i32.add")
    f.set(end)  # cols - ceil8(cols), the end of the countdown
    ends = {axis: f.local("i32") for axis in "zyx"}
    for axis, size in zip("zyx", "dhw", strict=True):
        f.emit(w["k" + size], w["d" + size], "i32.mul").set(ends[axis])
    with f.block() as out, f.loop() as again:
        f.emit(cols, end, "i32.le_s").br_if(out)
        f.emit(at["x"]).i32(3).emit("i32.add", w["ow"], "i32.lt_s").emit(w["sw"]).i32(1).emit("i32.eq", "i32.and")
        f.emit(cols).i32(4).emit("i32.ge_s", "i32.and").set(same)
        _corners(f, w, at, cols, corner)
        with ExitStack() as loops:
            for axis, size in zip("zyx", "dhw", strict=True):
                loops.enter_context(_taps(f, tap[axis], w["d" + size], ends[axis]))
            _entry(f, w, corner, tap, to, same)
        f.br(again)
    return f


@contextmanager
def _taps(f: Function, tap: int, dilation: int, end: int) -> Iterator[None]:
    """Loop over the taps of an axis, as dilated offsets."""
    f.i32(0).set(tap)
    with f.loop() as again:
        yield
        f.emit(tap, dilation, "i32.add").tee(tap).emit(end, "i32.lt_s").br_if(again)


def _gather(f: Function, table: int, x: int, to: int, channels: int, plane: int, jump: int, around: list[Any]) -> None:
    """Gather one entry for all channels: half rows of the panel at `to`, `to` + jump, ... from x, x + plane, ...;
    around: a local with four copies of the padding, empty if it is 0."""

    def masked(mask: int) -> None:
        if around:
            f.emit(*around, mask, "v128.bitselect").mem("v128.store")
        else:
            f.emit(mask, "v128.and").mem("v128.store")

    with f.scratch("v128", 2) as (mask, v), f.scratch("i32", 6) as (*p, q, n):
        f.emit(table).mem("v128.load", 16).set(mask).emit(to).set(q).emit(channels).set(n)
        f.emit(x, table).mem("i32.load").emit("i32.add").set(p[0])
        f.emit(table).mem("i32.load", 12).i32(_CONTIGUOUS).emit("i32.eq")
        with f.if_():
            with f.loop() as again:
                f.emit(q, p[0]).mem("v128.load")
                masked(mask)
                f.emit(p[0], plane, "i32.add").set(p[0]).emit(q, jump, "i32.add").set(q)
                f.add(n, -1).emit(n).br_if(again)
            f.otherwise()
            for lane in (1, 2, 3):
                f.emit(x, table).mem("i32.load", 4 * lane).emit("i32.add").set(p[lane])
            with f.loop() as again:
                f.emit(p[0]).mem("v128.load32_zero").set(v)
                for lane in (1, 2, 3):
                    f.emit(p[lane], v).mem_lane("v128.load32_lane", lane).set(v)
                f.emit(q, v)
                masked(mask)
                for pointer in p:
                    f.emit(pointer, plane, "i32.add").set(pointer)
                f.emit(q, jump, "i32.add").set(q).add(n, -1).emit(n).br_if(again)


@once
def _pack(module: Module, filled: bool) -> Function:
    """(x, plane, channels, taps, table, cols, to): write panels of a block from the channels at x, `plane` bytes apart.
    With `filled` another parameter is four copies of the padding."""
    f = module.function("conv_pack", ["i32"] * 7 + ["v128"] * filled, export=False)
    x, plane, channels, taps, table, cols, to, *around = f.params
    half, tap, q, jump, size = f.locals("i32", 5)
    f.emit(taps).i32(5).emit("i32.shl").tee(jump).emit(channels, "i32.mul").set(size)
    f.emit(channels)
    with f.if_(), f.loop() as panels:
        f.i32(0).set(half)
        with f.loop() as halves:
            f.emit(to, half, "i32.add").set(q).i32(0).set(tap)
            with f.until(tap, taps):
                _gather(f, table, x, q, channels, plane, jump, around)
                f.add(table, _ENTRY).add(q, 4 * PANEL)
            f.add(half, 16).emit(half).i32(16).emit("i32.eq").br_if(halves)
        f.emit(to, size, "i32.add").set(to).add(cols, -PANEL).emit(cols).i32(0).emit("i32.gt_s").br_if(panels)
    return f


def _product(f: Function, *factors: int) -> Function:
    """Push the product of locals."""
    f.emit(factors[0])
    for factor in factors[1:]:
        f.emit(factor, "i32.mul")
    return f


@once
def _unit(module: Module, arithmetic: Arithmetic, epilogue: Epilogue, filled: bool) -> Function:
    """(args, unit, scratch, reuse): one block of y; reuse: scratch has the table of this block, and the panels if one
    step takes all channels."""
    panels = panels_block(module, arithmetic, epilogue.tile())
    table_function, pack = _table(module, epilogue.extra), _pack(module, filled)
    f = module.function("conv_unit", ["i32"] * 4, export=False)
    args, unit, scratch, reuse = f.params
    w = ARGUMENTS.load(f, epilogue.extra)
    p = f.fields(Block)
    group, positions, taps, plane, products, table, x, c0, channels = f.locals("i32", 9)
    f.emit(args).set(p.args).emit(w["bias"]).set(p.bias)
    _product(f, w["od"], w["oh"], w["ow"]).set(positions)
    _product(f, w["kd"], w["kh"], w["kw"]).set(taps)
    _product(f, w["id"], w["ih"], w["iw"]).set(plane)
    _product(f, w["cg"], taps).tee(products).i32(2).emit("i32.shl").set(p.lda)
    with block_of_unit(f, p, unit, (w["mg"], w["mc"]), (positions, w["nc"])) as rest:
        f.emit(rest, w["groups"], "i32.rem_u").set(group).emit(rest, w["groups"], "i32.div_u").set(p.batch)
        f.emit(group, w["mg"], "i32.mul", p.row, "i32.add").set(p.row)
    element(f, w["w"], (p.row, products)).set(p.a)
    _product(f, w["groups"], w["mg"]).emit(p.batch, "i32.mul", p.row, "i32.add", positions, "i32.mul")
    f.emit(p.col, "i32.add").i32(2).emit("i32.shl", w["y"], "i32.add").set(p.c)
    f.emit(p.batch, w["groups"], "i32.mul", group, "i32.add", w["cg"], "i32.mul", plane, "i32.mul")
    f.i32(2).emit("i32.shl", w["x"], "i32.add").set(x)
    f.emit(positions).i32(2).emit("i32.shl").set(p.ldc).emit(plane).i32(2).emit("i32.shl").set(plane)
    f.emit(scratch).set(p.b).emit(scratch, w["nc"], taps, "i32.mul", w["cc"], "i32.mul").i32(2)
    f.emit("i32.shl", "i32.add").set(table)
    f.emit(reuse, "i32.eqz")
    with f.if_():
        f.emit(args, p.col, p.cols, table).call(table_function)
    f.emit(reuse, w["cg"], w["cc"], "i32.le_u", "i32.and").set(reuse)
    with f.loop() as again:
        f.emit(w["cg"], c0, "i32.sub").set(channels)
        minimum(f, channels, channels, w["cc"])
        f.set(p.flags, flags_of(c0, channels, w["cg"]))
        f.emit(channels, taps, "i32.mul").tee(p.k).i32(5).emit("i32.shl").set(p.ldb).emit(reuse, "i32.eqz")
        with f.if_():
            f.emit(x, plane, channels, taps, table, p.cols, scratch)
            if filled:
                f.emit(w["bias"]).mem("v128.load32_splat")
            f.call(pack)
        call_block(f, panels, p)
        f.emit(p.a, p.k).i32(2).emit("i32.shl", "i32.add").set(p.a)
        f.emit(x, plane, channels, "i32.mul", "i32.add").set(x)
        f.emit(c0, channels, "i32.add").tee(c0).emit(w["cg"], "i32.lt_u").br_if(again)
    epilogue.finish(f, p)
    return f


def conv(
    module: Module, name: str, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE, filled: bool = False
) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, arithmetic, epilogue, filled)
    f = module.function(name, KERNEL)
    w = ARGUMENTS.load(f, epilogue.extra, ("scratch",))
    _product(f, w["kd"], w["kh"], w["kw"], w["nc"], f.params[-1])
    f.emit(w["cc"]).i32(2).emit("i32.shl").i32(8).emit("i32.add", "i32.mul", w["scratch"], "i32.add").set(w["scratch"])
    call_units(f, unit, POINTERS[w["scratch"]], (w["mg"], w["mc"]))
    return f
