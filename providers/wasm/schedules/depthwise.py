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

from typing import Any, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once
from ..printer.values import POINTERS
from .arguments import KERNEL, ArgumentBlock, ConvBuffers, ceil_div
from .arithmetic import Arithmetic
from .register_tile import NO_EPILOGUE, Epilogue, apply_epilogue, store_part

REACH = 1024  # rows and columns of a window: for wider windows most of the copy may be pads
_BEHIND = 32  # floats that the last outputs of the last row may read past it
_PLANE = ("args", "w", "y", "bias", "batch", "row", "rows", "col", "cols", "copy", "table")
# (vectors of outputs of a round, taps in parallel, which hide the latency of a sum, four cycles; the round is used
# while more outputs than this are left in the row)
ROUNDS = ((8, 1, 16), (4, 2, 8), (2, 2, 0))
# Fits the registers that Cranelift allocates: docs/design/cpu-kernels.md#code-for-cranelift
CRANELIFT_ROUNDS = ((6, 1, 16), (4, 1, 8), (2, 2, 0))


class Params(NamedTuple):
    batch: AnyDim
    c: AnyDim
    mult: AnyDim  # filters of a channel
    ih: AnyDim  # extents of the input (1-D: 1 row)
    iw: AnyDim
    oh: AnyDim  # of the output
    ow: AnyDim
    kh: AnyDim  # of the kernel
    kw: AnyDim
    sh: AnyDim  # strides
    sw: AnyDim
    dh: AnyDim  # dilations
    dw: AnyDim
    ph: AnyDim  # pads at the beginning
    pw: AnyDim
    rows: AnyDim  # of the copy, from `copied`
    run: AnyDim  # columns of a run; a row of the copy has sw runs


ARGUMENTS = ArgumentBlock(ConvBuffers._fields, Params._fields, "y")


def copied(size: list[AnyDim], kernel: list[Any], strides: list[Any], dilations: list[Any]) -> tuple[AnyDim, AnyDim]:
    """Return the rows of the copy and the columns of a run; size: extents of a plane of y."""
    rows = (size[0] - 1) * strides[0] + (kernel[0] - 1) * dilations[0] + 1
    return rows, size[1] - 1 + sh.ceildiv((kernel[1] - 1) * dilations[1] + 1, strides[1])


def scratch_bytes(rows: AnyDim, run: AnyDim, stride: AnyDim, taps: AnyDim) -> AnyDim:
    """Return the bytes of a thread's scratch: for the copy and for the table."""
    return 16 * sh.ceildiv(rows * run * stride + _BEHIND + taps, 4)


class _Plane:
    """Emits the function, with the parameters _PLANE, of one plane of y; w: weights of the filter `row`; copy: the copy
    of x."""

    def __init__(self, module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> None:
        self.arithmetic, self.epilogue = arithmetic, epilogue
        store_part(module)
        self.f, self.p = f, p = module.internal("depthwise_plane", _PLANE)
        self.w = w = ARGUMENTS.load(f, epilogue.extra, ())
        self.left, self.start, self.taps, oy, line = f.locals("i32", 5)
        f.emit(w["kh"], w["kw"], "i32.mul").set(self.taps)
        f.emit(w["sh"], w["sw"], "i32.mul", w["run"], "i32.mul").i32(2).emit("i32.shl").set(line)
        with f.until(oy, w["oh"]):
            f.emit(p["copy"]).set(self.start).emit(w["ow"]).set(self.left)
            with f.loop() as again:
                self.rounds()
                f.emit(self.left).i32(0).emit("i32.gt_s").br_if(again)
            # the last vectors may have fewer outputs or none: `left` is then negative
            f.emit(p["y"], self.left).i32(2).emit("i32.shl", "i32.add").set(p["y"])
            f.emit(p["col"], self.left, "i32.add").set(p["col"]).emit(p["copy"], line, "i32.add").set(p["copy"])
        f.i32(1).set(p["rows"]).emit(p["col"]).set(p["cols"]).i32(0).set(p["col"])
        epilogue.finish(f, p)

    def rounds(self) -> None:
        f = self.f
        with f.block() as done:
            for vectors, chains, more in CRANELIFT_ROUNDS if f.module.cranelift else ROUNDS:
                f.emit(self.left).i32(more).emit("i32.gt_s")
                with f.if_():
                    self.round(vectors, chains)
                    f.br(done)

    def round(self, vectors: int, chains: int) -> None:
        """Compute 4 * vectors outputs; `start` is the address of the first tap."""
        f = self.f
        with f.scratch("v128", vectors * chains) as flat, f.scratch("i32", 3) as (weight, place, taps):
            sums = [flat[n * vectors : (n + 1) * vectors] for n in range(chains)]
            for total in flat:
                f.f32x4(0).set(total)
            f.emit(self.p["w"]).set(weight).emit(self.p["table"]).set(place).emit(self.taps).set(taps)
            for each in sorted({3 if chains == 1 and not f.module.cranelift else chains, 1}, reverse=True):
                with f.countdown(taps, each):
                    for n in range(each):
                        self.tap(sums[n % chains], weight, place, 4 * n)
                    f.add(weight, 4 * each).add(place, 4 * each)
            for other in sums[1:]:
                for total, more in zip(sums[0], other, strict=True):
                    f.emit(total, more, "f32x4.add").set(total)
            for total in sums[0]:
                self.finish(total)
        f.add(self.start, 16 * vectors)

    def tap(self, sums: list[Any], weight: int, place: int, offset: int) -> None:
        f = self.f
        with f.scratch("v128", 2) as (factor, x), f.scratch("i32", 1) as (at,):
            f.emit(weight).mem("v128.load32_splat", offset).set(factor)
            f.emit(self.start, place).mem("i32.load", offset).emit("i32.add").set(at)
            for v, total in enumerate(sums):
                f.emit(at).mem("v128.load", 16 * v).set(x)
                self.arithmetic.multiply_add(f, total, factor, x)

    def finish(self, total: Any) -> None:
        """Store four outputs or the rest of the row, and advance."""
        f, p, tile = self.f, self.p, self.epilogue.tile()
        f.emit(self.left).i32(4).emit("i32.ge_s")
        with f.if_():
            apply_epilogue(f, tile, POINTERS[p["bias"]], p["row"], p["col"], total)
            f.emit(p["y"], total).mem("v128.store").otherwise().emit(self.left).i32(0).emit("i32.gt_s")
            with f.if_():
                apply_epilogue(f, tile, POINTERS[p["bias"]], p["row"], p["col"], total)
                f.emit(p["y"], total, total, self.left).call(store_part)
        f.add(p["y"], 16).add(self.left, -4).add(p["col"], 4)


@once
def _plane(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    return _Plane(module, arithmetic, epilogue).f


@helper("depthwise_copy")
def _copy_run(f: Function, x: int, line: int, rows: int, columns: int, to: int, pitch: int, step: int) -> None:
    """Copy each step-th column of rows that are `line` bytes apart to rows that are `pitch` bytes apart."""
    row, a, b, left, apart = f.locals("i32", 5)
    f.emit(step).i32(2).emit("i32.shl").set(apart)
    with f.until(row, rows):
        f.emit(x).set(a).emit(to).set(b).emit(columns).set(left)
        for stride in (1, 2):
            with f.block() as out, f.loop() as again:
                f.emit(step).i32(stride).emit("i32.ne", left).i32(4).emit("i32.lt_s", "i32.or").br_if(out)
                f.emit(b, a).mem("v128.load")
                if stride == 2:
                    f.emit(a).mem("v128.load", 16).shuffle32(0, 2, 4, 6)
                f.mem("v128.store").add(a, 16 * stride).add(b, 16).add(left, -4).br(again)
        with f.block() as out, f.loop() as again:
            f.emit(left).i32(0).emit("i32.le_s").br_if(out)
            f.emit(b, a).mem("i32.load").mem("i32.store")
            f.emit(a, apart, "i32.add").set(a).add(b, 4).add(left, -1).br(again)
        f.emit(x, line, "i32.add").set(x).emit(to, pitch, "i32.add").set(to)


@once
def _copy(module: Module, extra: int) -> Function:
    """(args, x, to): copy a plane of x, run after run, between pads that are zeros already."""
    run = _copy_run(module)
    f = module.function("depthwise_runs", ["i32"] * 3, export=False)
    _, x, to = f.params
    w = ARGUMENTS.load(f, extra, ())
    n, rows, place, column, count, most, line, pitch = f.locals("i32", 8)
    f.emit(w["iw"]).i32(2).emit("i32.shl").set(line)
    f.emit(w["run"], w["sw"], "i32.mul").i32(2).emit("i32.shl").tee(pitch)
    f.emit(w["ph"], "i32.mul", to, "i32.add").set(to).emit(w["rows"], w["ph"], "i32.sub").tee(rows)
    f.emit(w["ih"], rows, w["ih"], "i32.lt_s", "select").set(rows)
    with f.until(n, w["sw"]):
        # address of the run's first element after the pads, and its column of x
        f.emit(w["pw"], n, "i32.sub").i32(0).emit(w["pw"], n, "i32.gt_s", "select", w["sw"], "i32.add")
        f.i32(1).emit("i32.sub", w["sw"], "i32.div_s").tee(place)
        f.emit(w["sw"], "i32.mul", n, "i32.add", w["pw"], "i32.sub").set(column)
        f.emit(w["iw"], column, "i32.sub", w["sw"], "i32.add").i32(1).emit("i32.sub", w["sw"], "i32.div_s")
        f.set(count).emit(w["run"], place, "i32.sub").set(most)
        f.emit(x, column).i32(2).emit("i32.shl", "i32.add", line, rows)
        f.emit(count, most, count, most, "i32.lt_s", "select")
        f.emit(to, n, w["run"], "i32.mul", place, "i32.add").i32(2).emit("i32.shl", "i32.add", pitch, w["sw"])
        f.call(run)
    return f


@once
def _start(module: Module, extra: int) -> Function:
    """(args, copy) -> the table: clear the copy and write the table after it."""
    f = module.function("depthwise_start", ["i32"] * 2, ["i32"], export=False)
    _, at = f.params
    w = ARGUMENTS.load(f, extra, ())
    table, to, r, s, column, done, size = f.locals("i32", 7)
    f.emit(w["rows"], w["run"], "i32.mul", w["sw"], "i32.mul").i32(_BEHIND).emit("i32.add").tee(size)
    f.i32(2).emit("i32.shl", at, "i32.add").tee(table).set(to)
    with f.until(done, size, 4):
        f.emit(at).f32x4(0).mem("v128.store").add(at, 16)
    with f.until(r, w["kh"]):
        f.i32(0).set(s)
        with f.until(s, w["kw"]):
            f.emit(s, w["dw"], "i32.mul").set(column)
            f.emit(to, r, w["dh"], "i32.mul", w["sw"], "i32.mul", column, w["sw"], "i32.rem_u", "i32.add")
            f.emit(w["run"], "i32.mul", column, w["sw"], "i32.div_u", "i32.add").i32(2).emit("i32.shl")
            f.mem("i32.store").add(to, 4)
    return f.emit(table)


def depthwise(module: Module, name: str, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    plane = _plane(module, arithmetic, epilogue)
    copy, start = _copy(module, epilogue.extra), _start(module, epilogue.extra)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    w = ARGUMENTS.load(f, epilogue.extra)
    filters, filter_, taps, four, size, table = f.locals("i32", 6)
    f.emit(w["c"], w["mult"], "i32.mul").set(filters).emit(w["kh"], w["kw"], "i32.mul").set(taps).i32(4).set(four)
    f.emit(w["rows"], w["run"], "i32.mul", w["sw"], "i32.mul", taps, "i32.add").i32(_BEHIND).emit("i32.add").set(size)
    ceil_div(f, size, four).i32(4).emit("i32.shl", tid, "i32.mul", w["scratch"], "i32.add").set(w["scratch"])
    with f.block() as empty:
        f.emit(w["oh"], "i32.eqz", w["ow"], "i32.eqz", "i32.or", begin, end, "i32.ge_s", "i32.or").br_if(empty)
        f.emit(args, w["scratch"]).call(start).set(table)
        with f.until(begin, end):
            f.emit(begin, filters, "i32.rem_u").set(filter_)
            f.emit(args, w["x"], begin, w["mult"], "i32.div_u", w["ih"], "i32.mul", w["iw"], "i32.mul").i32(2)
            f.emit("i32.shl", "i32.add", w["scratch"]).call(copy)
            f.emit(args, w["w"], filter_, taps, "i32.mul").i32(2).emit("i32.shl", "i32.add")
            f.emit(w["y"], begin, w["oh"], "i32.mul", w["ow"], "i32.mul").i32(2).emit("i32.shl", "i32.add")
            f.emit(w["bias"], begin, filters, "i32.div_u", filter_).i32(1).i32(0).i32(0).emit(w["scratch"], table)
            f.call(plane)
    return f


def units(batch: AnyDim, c: AnyDim, mult: AnyDim) -> AnyDim:
    return batch * c * mult
