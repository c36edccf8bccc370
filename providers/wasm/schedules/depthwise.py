"""The routine "depthwise": convolution of each channel with its own kernels, f32, one or two spatial dims.

y[n, c * mult + j, oy, ox] =
    sum over (r, s) of w[c * mult + j, r, s] * x[n, c, oy * sh - ph + r * dh, ox * sw - pw + s * dw]

A plane of x is copied with its pads, so that each tap of four outputs is a plain load, also at the ends of rows. In a
row of the copy, columns with the same remainder by `sw` are adjacent. Up to 32 outputs of a row are summed in
registers, tap by tap, so that a weight is loaded once for all of them. A table has the offset of each tap from the
first output's.

x, w, y are contiguous. The epilogue's row is the filter c * mult + j, its col is oy * ow + ox.
Thread t has scratch + t * scratch_bytes. Reads up to 4 bytes past the end of x.

Work units: batch * c * mult planes of y.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once
from ..printer.values import I32, POINTERS, V128, ZERO, Ptr, ceil_div, constant, f32x4, minimum, select, shuffle32
from .arguments import KERNEL, ArgumentBlock, ConvBuffers, Word
from .arithmetic import Arithmetic
from .register_tile import FINISH, NO_EPILOGUE, Epilogue, apply_epilogue, store_part

REACH = 1024  # rows and columns of a window: for wider windows most of the copy may be pads
NATIVE_PLANES = 16  # most planes of a call of machine code
_BEHIND = 32  # floats that the last outputs of the last row may read past it
# (vectors of outputs of a round, taps in parallel, which hide the latency of a sum, four cycles; the round is used
# while more outputs than this are left in the row)
ROUNDS = ((8, 1, 16), (4, 2, 8), (2, 2, 0))
# Fits the registers that Cranelift allocates: docs/design/cpu-kernels.md#code-for-cranelift
CRANELIFT_ROUNDS = ((6, 1, 16), (4, 1, 8), (2, 2, 0))


class Params(NamedTuple, Generic[Word]):
    batch: Word
    c: Word
    mult: Word  # filters of a channel
    ih: Word  # extents of the input (1-D: 1 row)
    iw: Word
    oh: Word  # of the output
    ow: Word
    kh: Word  # of the kernel
    kw: Word
    sh: Word  # strides
    sw: Word
    dh: Word  # dilations
    dw: Word
    ph: Word  # pads at the beginning
    pw: Word
    rows: Word  # of the copy, from `copied`
    run: Word  # columns of a run; a row of the copy has sw runs


ARGUMENTS = ArgumentBlock(ConvBuffers._fields, Params._fields, "y")


def copied(size: list[AnyDim], kernel: list[Any], strides: list[Any], dilations: list[Any]) -> tuple[AnyDim, AnyDim]:
    """Return the rows of the copy and the columns of a run; size: extents of a plane of y."""
    rows = (size[0] - 1) * strides[0] + (kernel[0] - 1) * dilations[0] + 1
    return rows, size[1] - 1 + sh.ceildiv((kernel[1] - 1) * dilations[1] + 1, strides[1])


def scratch_bytes(rows: AnyDim, run: AnyDim, stride: AnyDim, taps: AnyDim) -> AnyDim:
    """Return the bytes of a thread's scratch: for the copy and for the table."""
    return 16 * sh.ceildiv(rows * run * stride + _BEHIND + taps, 4)


class PlaneWords(NamedTuple):
    """Parameters of the function of one plane of y; w: weights of the filter `row`; copy: the copy of x."""

    args: Ptr
    w: Ptr
    y: Ptr
    bias: Ptr
    batch: I32
    row: I32
    rows: I32
    col: I32
    cols: I32
    copy: Ptr
    table: Ptr


class _Plane:
    """Emits the function of one plane."""

    def __init__(self, module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> None:
        self.arithmetic, self.epilogue = arithmetic, epilogue
        store_part(module)
        self.f, self.p = f, p = module.inner("depthwise_plane", PlaneWords)
        w = Params(*ARGUMENTS.integers(f, epilogue.extra))
        (self.left,), (self.start,), (self.taps, oy, line) = f.integers(1), f.pointers(1), f.integers(3)
        f.set(self.taps, w.kh * w.kw).set(line, w.sh * w.sw * w.run << 2)
        with f.until(oy, w.oh):
            f.set(self.start, p.copy).set(self.left, w.ow)
            with f.loop() as again:
                self.rounds()
                f.br_if(again, self.left.gt_s(0))
            # the last vectors may have fewer outputs or none: `left` is then negative
            f.add(p.y, self.left << 2).add(p.col, self.left).add(p.copy, line)
        f.set(p.rows, 1).set(p.cols, p.col).set(p.col, 0)
        epilogue.finish(f, p)

    def rounds(self) -> None:
        f = self.f
        with f.block() as done:
            for vectors, chains, more in CRANELIFT_ROUNDS if f.module.cranelift else ROUNDS:
                with f.if_(self.left.gt_s(more)):
                    self.round(vectors, chains)
                    f.br(done)

    def round(self, vectors: int, chains: int) -> None:
        """Compute 4 * vectors outputs; `start` is the address of the first tap."""
        f = self.f
        with f.scratch("v128", vectors * chains) as flat, f.scratch("ptr ptr i32") as (weight, place, taps):
            sums = [flat[n * vectors : (n + 1) * vectors] for n in range(chains)]
            for total in flat:
                f.set(total, ZERO)
            f.set(weight, self.p.w).set(place, self.p.table).set(taps, self.taps)
            for each in sorted({3 if chains == 1 and not f.module.cranelift else chains, 1}, reverse=True):
                with f.countdown(taps, each):
                    for n in range(each):
                        self.tap(sums[n % chains], weight, place, 4 * n)
                    f.add(weight, 4 * each).add(place, 4 * each)
            for other in sums[1:]:
                for total, more in zip(sums[0], other, strict=True):
                    f.set(total, f32x4.add(total, more))
            for total in sums[0]:
                self.finish(total)
        f.add(self.start, 16 * vectors)

    def tap(self, sums: Sequence[V128], weight: Ptr, place: Ptr, offset: int) -> None:
        f = self.f
        with f.scratch("v128", 2) as (factor, x), f.scratch("ptr") as (at,):
            f.set(factor, weight.splat(offset)).set(at, self.start + place.i32(offset))
            for v, total in enumerate(sums):
                f.set(x, at.load(16 * v))
                self.arithmetic.multiply_add(f, total, factor, x)

    def finish(self, total: V128) -> None:
        """Store four outputs or the rest of the row, and advance."""
        f, p, tile = self.f, self.p, self.epilogue.tile()
        with f.if_(self.left.ge_s(4)):
            apply_epilogue(f, tile, p.bias, p.row, p.col, total)
            f.store(p.y, total).otherwise()
            with f.if_(self.left.gt_s(0)):
                apply_epilogue(f, tile, p.bias, p.row, p.col, total)
                f.call(store_part, p.y, total, total, self.left)
        f.add(p.y, 16).add(self.left, -4).add(p.col, 4)


@once
def _plane(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    return _Plane(module, arithmetic, epilogue).f


@helper("depthwise_copy")
def _copy_run(f: Function, x: Ptr, line: I32, rows: I32, columns: I32, to: Ptr, pitch: I32, step: I32) -> None:
    """Copy each step-th column of rows that are `line` bytes apart to rows that are `pitch` bytes apart."""
    (row,), (a, b), (left, apart) = f.integers(1), f.pointers(2), f.integers(2)
    f.set(apart, step << 2)
    with f.until(row, rows):
        f.set(a, x).set(b, to).set(left, columns)
        for stride in (1, 2):
            with f.block() as out, f.loop() as again:
                f.br_if(out, step.ne(stride) | left.lt_s(4))
                four = a.load()
                f.store(b, four if stride == 1 else shuffle32(four, a.load(16), 0, 2, 4, 6))
                f.add(a, 16 * stride).add(b, 16).add(left, -4).br(again)
        with f.block() as out, f.loop() as again:
            f.br_if(out, left.le_s(0)).store(b, a.i32(), name="i32.store")
            f.add(a, apart).add(b, 4).add(left, -1).br(again)
        f.add(x, line).add(to, pitch)


@once
def _copy(module: Module, extra: int) -> Function:
    """(args, x, to): copy a plane of x, run after run, between pads that are zeros already."""
    run = _copy_run(module)
    f = module.function("depthwise_runs", ["i32"] * 3, export=False)
    x, to = POINTERS[1], POINTERS[2]
    w = Params(*ARGUMENTS.integers(f, extra))
    n, rows, place, column, count, most, line, pitch = f.integers(8)
    f.set(line, w.iw << 2).set(to, pitch.tee(w.run * w.sw << 2) * w.ph + to)
    f.set(rows, select(rows.tee(w.rows - w.ph), w.ih, rows.lt_s(w.ih)))
    with f.until(n, w.sw):
        # address of the run's first element after the pads, and its column of x
        first = select(w.pw - n, 0, w.pw.gt_s(n)) + w.sw - 1
        f.set(column, place.tee(first.div_s(w.sw)) * w.sw + n - w.pw)
        f.set(count, (w.iw - column + w.sw - 1).div_s(w.sw)).set(most, w.run - place)
        columns = select(count, most, count.lt_s(most))
        f.call(run, x + (column << 2), line, rows, columns, to + (n * w.run + place << 2), pitch, w.sw)
    return f


@helper("depthwise_start", results=("i32",))
def _start(f: Function, args: Ptr, at: Ptr, *, extra: int) -> None:
    """Clear the copy and write the table after it, whose address is the result."""
    w = Params(*ARGUMENTS.integers(f, extra))
    (table, to), (r, s, column, done, size) = f.pointers(2), f.integers(5)
    f.set(to, table.tee((size.tee(w.rows * w.run * w.sw + _BEHIND) << 2) + at))
    with f.until(done, size, 4):
        f.store(at, ZERO).add(at, 16)
    with f.until(r, w.kh):
        f.set(s, 0)
        with f.until(s, w.kw):
            f.set(column, s * w.dw)
            place = (r * w.dh * w.sw + column % w.sw) * w.run + column // w.sw
            f.store(to, place << 2, name="i32.store").add(to, 4)
    f.push(table)


def depthwise(module: Module, name: str, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    plane = _plane(module, arithmetic, epilogue)
    copy, start = _copy(module, epilogue.extra), _start(module, extra=epilogue.extra)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    at = ConvBuffers(*ARGUMENTS.pointers(f))
    w = Params(*ARGUMENTS.integers(f, epilogue.extra))
    (filters, filter_, taps, four, size), (table,) = f.integers(5), f.pointers(1)
    f.set(filters, w.c * w.mult).set(taps, w.kh * w.kw).set(four, 4)
    f.set(size, w.rows * w.run * w.sw + taps + _BEHIND)
    f.set(at.scratch, (ceil_div(size, four) << 4) * tid + at.scratch)
    if "depthwise" in module.imports and arithmetic is Arithmetic.FUSED and epilogue.bias != "col":
        _native(f, at, w, epilogue)
    with f.block() as empty:
        f.br_if(empty, w.oh.eqz() | w.ow.eqz() | begin.ge_s(end))
        f.call(start, POINTERS[args], at.scratch).set(table)
        with f.until(begin, end):
            f.set(filter_, begin % filters)
            f.call(copy, args, at.x + (begin // w.mult * w.ih * w.iw << 2), at.scratch)
            f.call(
                plane, args, at.w + (filter_ * taps << 2), at.y + (begin * w.oh * w.ow << 2), at.bias,
                begin // filters, filter_, constant(1), constant(0), constant(0), at.scratch, table,
            )  # fmt: skip
    return f


def _native(f: Function, at: ConvBuffers[Ptr], w: Params[I32], epilogue: Epilogue) -> None:
    """Let the host's machine code compute planes, until it leaves one to the WebAssembly behind."""
    from ..printer.native_imports import call_depthwise  # pages do not have it

    args, begin, end, _ = f.params
    filters, filter_, planes = f.integers(3)
    f.set(filters, w.c * w.mult)
    with f.block() as out, f.loop() as again:
        f.br_if(out, begin.ge_s(end))
        f.set(filter_, begin % filters).set(planes, 1)
        if not epilogue.block:  # which is for each plane while it is in cache
            with f.if_(w.mult.eq(1)):
                f.set(planes, minimum(filters - filter_, end - begin)).set(planes, minimum(planes, NATIVE_PLANES))
        p = w._asdict() | {
            "x": at.x + (begin // w.mult * w.ih * w.iw << 2), "w": at.w + (filter_ * w.kh * w.kw << 2),
            "y": at.y + (begin * w.oh * w.ow << 2), "bias": at.bias + (filter_ << 2), "planes": planes,
        }  # fmt: skip
        call_depthwise(f, p, epilogue.bias == "row", epilogue.low, epilogue.high)
        f.emit("i32.eqz").br_if(out)
        finish = (args, begin // filters, filter_, constant(1), constant(0), w.oh * w.ow)
        epilogue.finish(f, dict(zip(FINISH, finish, strict=True)))
        f.add(begin, planes).br(again)


def units(batch: AnyDim, c: AnyDim, mult: AnyDim) -> AnyDim:
    return batch * c * mult
