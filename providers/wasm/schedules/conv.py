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

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Generic, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once, typed
from ..printer.values import I32, V128, ZERO, Ptr, bits, constant, i32x4, minimum, select
from .arguments import KERNEL, ArgumentBlock, ConvBuffers, Window, Word, windowed
from .arithmetic import Arithmetic
from .gemm import row_block
from .register_tile import (
    NO_EPILOGUE,
    PANEL,
    Block,
    Epilogue,
    Unit,
    block_of_unit,
    call_block,
    call_units,
    flags_of,
    has_native_block,
    panels_block,
)


class Params(NamedTuple, Generic[Word]):
    """Block sizes, from `blocks`, behind the parameters of the window."""

    mc: Word  # filters
    nc: Word  # positions, a multiple of 8
    cc: Word  # channels


ARGUMENTS = ArgumentBlock(ConvBuffers._fields, (*Window._fields, *Params._fields), "y")
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
    """Per thread: panels (4 bytes a product) and the table (8); thread t uses scratch + t * scratch_bytes. Machine code
    needs 160 bytes a product of one column: those of 40 columns, or of 32 and one channel with their table."""
    return nc * taps * (4 * cc + 8)


def _next_position(f: Function, w: Window[I32], at: Sequence[I32]) -> None:
    """Advance (z, y, x) to the next output position."""
    z, y, x = at
    with f.add(x, 1).if_(x.eq(w.ow)):
        f.set(x, 0).add(y, 1)
        with f.if_(y.eq(w.oh)):
            f.set(y, 0).add(z, 1)


def _corners(f: Function, w: Window[I32], at: Sequence[I32], left: I32, corner: Sequence[V128]) -> None:
    """Set the first input coordinates (tap 0) of four output positions; counts down `left`, the positions left in the
    block."""
    for lane in range(4):
        with f.if_(left.gt_s(0)):
            for v, position, stride, pad in zip(corner, at, w.axes("s"), w.axes("p"), strict=True):
                f.set(v, i32x4.replace(v, lane, position * stride - pad))
            _next_position(f, w, at)
            f.otherwise().set(corner[2], i32x4.replace(corner[2], lane, constant(_NOWHERE)))
        f.add(left, -1)


def _entry(f: Function, w: Window[I32], corner: Sequence[V128], taps: Sequence[I32], to: Ptr, same: I32) -> None:
    """Write a table entry: the offsets that four positions read for this tap, and a mask of the positions inside of
    x."""
    with f.scratch("v128", 2) as (mask, offset), f.scratch("v128", 3) as inputs:
        f.set(mask, i32x4.of(-1)).set(offset, ZERO)
        for v, first, tap, extent in zip(inputs, corner, taps, w.axes("i"), strict=True):
            f.set(v, i32x4.add(first, i32x4.splat(tap)))
            f.set(mask, i32x4.lt_u(v, i32x4.splat(extent)) & mask)
            f.set(offset, i32x4.add(i32x4.mul(offset, i32x4.splat(extent)), v))
        f.set(offset, i32x4.shl(offset, 2)).store(to, mask, 16)
        with f.if_(same):
            f.store(to, select(i32x4.extract(offset, 0), 0, mask.any()), name="i32.store")
            f.store(to, constant(_CONTIGUOUS), 12, "i32.store")
            f.otherwise().store(to, offset & mask)
    f.add(to, _ENTRY)


@helper("conv_table")
def _table(f: Function, args: Ptr, col: I32, cols: I32, to: Ptr, *, extra: int) -> None:
    """Write the entries [ceil(cols / 8) * 2][taps] for output positions col..col+cols."""
    w, _ = windowed(ARGUMENTS.integers(f, extra), Params)
    at, taps, corner = f.integers(3), f.integers(3), f.vectors(3)
    same, end, *ends = f.integers(5)
    z, y, x = at
    f.set(x, col % w.ow).set(z, y.tee(col // w.ow) // w.oh).set(y, y % w.oh)
    f.set(end, 0 - (cols + (PANEL - 1) & -PANEL) + cols)  # cols - ceil8(cols), the end of the countdown
    for last, extent, dilation in zip(ends, w.axes("k"), w.axes("d"), strict=True):
        f.set(last, extent * dilation)
    with f.block() as out, f.loop() as again:
        f.br_if(out, cols.le_s(end))
        f.set(same, (x + 3).lt_s(w.ow) & w.sw.eq(1) & cols.ge_s(4))
        _corners(f, w, at, cols, corner)
        with ExitStack() as loops:
            for tap, dilation, last in zip(taps, w.axes("d"), ends, strict=True):
                loops.enter_context(_each_tap(f, tap, dilation, last))
            _entry(f, w, corner, taps, to, same)
        f.br(again)


@contextmanager
def _each_tap(f: Function, tap: I32, dilation: I32, end: I32) -> Iterator[None]:
    """Loop over the taps of an axis, as dilated offsets."""
    f.set(tap, 0)
    with f.loop() as again:
        yield
        f.br_if(again, tap.tee(tap + dilation).lt_s(end))


def _gather(
    f: Function, table: Ptr, x: Ptr, to: Ptr, channels: I32, plane: I32, jump: I32, around: Sequence[V128]
) -> None:  # fmt: skip
    """Gather one entry for all channels: half rows of the panel at `to`, `to` + jump, ... from x, x + plane, ...;
    around: a local with four copies of the padding, empty if it is 0."""

    def masked(value: V128) -> V128:
        return bits.bitselect(value, *around, mask) if around else value & mask

    with f.scratch("v128", 2) as (mask, v), f.scratch("ptr ptr ptr ptr ptr i32") as (*p, q, n):
        f.set(mask, table.load(16)).set(q, to).set(n, channels).set(p[0], x + table.i32())
        with f.if_(table.i32(12).eq(_CONTIGUOUS)):
            with f.loop() as again:
                f.store(q, masked(p[0].load())).add(p[0], plane).add(q, jump).add(n, -1).br_if(again, n)
            f.otherwise()
            for lane in (1, 2, 3):
                f.set(p[lane], x + table.i32(4 * lane))
            with f.loop() as again:
                f.set(v, p[0].load(0, "v128.load32_zero"))
                for lane in (1, 2, 3):
                    f.set(v, p[lane].load_lane("v128.load32_lane", v, lane))
                f.store(q, masked(v))
                for pointer in p:
                    f.add(pointer, plane)
                f.add(q, jump).add(n, -1).br_if(again, n)


class Pack(NamedTuple):
    """What a block of panels is gathered from: the channels at x, `plane` bytes apart, and a table of its columns."""

    x: Ptr
    plane: I32
    channels: I32
    taps: I32
    table: Ptr
    cols: I32
    to: Ptr


@once
def _pack(module: Module, filled: bool) -> Function:
    """A function of `Pack` that writes panels. With `filled` another parameter is four copies of the padding."""
    f = module.function("conv_pack", ["i32"] * 7 + ["v128"] * filled, export=False)
    x, plane, channels, taps, table, cols, to = typed(Pack, f.params[:7])
    (half, tap), (q,), (jump, size) = f.integers(2), f.pointers(1), f.integers(2)
    f.set(size, jump.tee(taps << 5) * channels)
    with f.if_(channels), f.loop() as panels:
        f.set(half, 0)
        with f.loop() as halves:
            f.set(q, to + half).set(tap, 0)
            with f.until(tap, taps):
                _gather(f, table, x, q, channels, plane, jump, f.params[7:])
                f.add(table, _ENTRY).add(q, 4 * PANEL)
            f.add(half, 16).br_if(halves, half.eq(16))
        f.add(to, size).add(cols, -PANEL).br_if(panels, cols.gt_s(0))
    return f


@contextmanager
def _after_native(
    f: Function, arithmetic: Arithmetic, tile: Epilogue, p: Block, w: Window[I32], sizes: Params[I32], x: Ptr,
    reuse: I32,
) -> Iterator[None]:  # fmt: skip
    """Let the host's machine code compute columns of a block; the body of the context is for those that it leaves, with
    scratch as machine code leaves it. p.b is the scratch."""
    from ..printer.native_imports import BLOCKS, WINDOW_COLUMNS, WINDOW_STEP, call_function  # pages do not have it
    from ..printer.native_imports import call_block as call_native

    col, cols, count, c0, channels, taps, plane, oy, ox = f.integers(9)
    (c,) = f.pointers(1)
    f.set(c, p.c).set(col, p.col).set(cols, p.cols).set(taps, w.kh * w.kw).set(plane, w.ih * w.iw << 2)
    with f.block() as out, f.loop() as again:
        f.br_if(out, p.cols.eqz() | (w.id * w.od * w.kd).ne(1) | w.pd)
        f.set(count, minimum(p.cols, WINDOW_COLUMNS)).set(c0, 0).set(oy, p.col // w.ow).set(ox, p.col % w.ow)
        with f.loop() as more:
            f.set(channels, w.cg - c0).set(channels, minimum(channels, sizes.cc))
            f.set(p.flags, flags_of(c0, channels, w.cg)).set(p.k, channels * taps)
            window = {"x": x + plane * c0, "channels": channels, "oy": oy, "ox": ox, "cols": count, "to": p.b}
            call_function(f, "windows", w._asdict() | window)
            f.emit("i32.eqz").br_if(out)
            operands = {"a": p.a + (c0 * taps << 2), "ldb": constant(4 * PANEL), "step": constant(WINDOW_STEP)}
            call_native(
                f, BLOCKS[arithmetic.name], p._asdict() | operands | {"cols": count}, tile.bias, tile.low, tile.high
            )  # fmt: skip
            f.emit("i32.eqz").br_if(out)
            f.br_if(more, c0.tee(c0 + channels).lt_u(w.cg))
        f.add(p.c, count << 2).add(p.col, count).set(p.cols, p.cols - count).br(again)
    with f.if_(p.cols):
        f.set(reuse, 0)
        yield
    f.set(p.c, c).set(p.col, col).set(p.cols, cols)


@once
def _unit(module: Module, arithmetic: Arithmetic, epilogue: Epilogue, filled: bool) -> Function:
    """One block of y; reuse: scratch has the table of this block, and the panels if one step takes all channels."""
    panels = panels_block(module, arithmetic, epilogue.tile())
    entries, pack = _table(module, extra=epilogue.extra), _pack(module, filled)
    f, (args, unit, scratch, reuse) = module.inner("conv_unit", Unit)
    at = ConvBuffers(*ARGUMENTS.pointers(f))
    w, sizes = windowed(ARGUMENTS.integers(f, epilogue.extra), Params)
    p = f.fields(Block)
    (group, positions, taps, plane, products), (table, x), (c0, channels) = (
        f.integers(5), f.pointers(2), f.integers(2)
    )  # fmt: skip
    f.set(p.args, args).set(p.bias, at.bias).set(positions, w.od * w.oh * w.ow)
    f.set(taps, w.kd * w.kh * w.kw).set(plane, w.id * w.ih * w.iw).set(p.lda, products.tee(w.cg * taps) << 2)
    with block_of_unit(f, p, unit, (w.mg, sizes.mc), (positions, sizes.nc)) as rest:
        f.set(group, rest % w.groups).set(p.batch, rest // w.groups).set(p.row, group * w.mg + p.row)
    f.set(p.a, at.w + p.row * products * 4)
    f.set(p.c, ((w.groups * w.mg * p.batch + p.row) * positions + p.col << 2) + at.y)
    f.set(x, ((p.batch * w.groups + group) * w.cg * plane << 2) + at.x)
    f.set(p.ldc, positions << 2).set(plane, plane << 2)
    f.set(p.b, scratch).set(table, scratch + (sizes.nc * taps * sizes.cc << 2))
    native = has_native_block(module, arithmetic) and not filled
    with _after_native(f, arithmetic, epilogue.tile(), p, w, sizes, x, reuse) if native else nullcontext():
        with f.if_(reuse.eqz()):
            f.call(entries, args, p.col, p.cols, table)
        f.set(reuse, reuse & w.cg.le_u(sizes.cc))
        with f.loop() as again:
            f.set(channels, w.cg - c0).set(channels, minimum(channels, sizes.cc))
            f.set(p.flags, flags_of(c0, channels, w.cg)).set(p.ldb, p.k.tee(channels * taps) << 5)
            with f.if_(reuse.eqz()):
                around = [at.bias.splat()] if filled else []
                f.call(pack, *Pack(x, plane, channels, taps, table, p.cols, scratch), *around)
            call_block(f, panels, p)
            f.add(p.a, p.k << 2).add(x, plane * channels).br_if(again, c0.tee(c0 + channels).lt_u(w.cg))
    epilogue.finish(f, p)
    return f


def conv(
    module: Module, name: str, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE, filled: bool = False
) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, arithmetic, epilogue, filled)
    f = module.function(name, KERNEL)
    (scratch,) = ARGUMENTS.pointers(f, "scratch")
    w, sizes = windowed(ARGUMENTS.integers(f, epilogue.extra), Params)
    f.set(scratch, w.kd * w.kh * w.kw * sizes.nc * f.params[-1] * ((sizes.cc << 2) + 8) + scratch)
    call_units(f, unit, scratch, (w.mg, sizes.mc))
    return f
