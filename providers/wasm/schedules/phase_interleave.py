"""Interleaves the phases of a transposed convolution, one convolution for each phase of the stride, in float32.

y[n, m, o] = z[n, m * phases + r, u] with o + b = u * s + r along each of three axes; the r of the axes form the
row-major number of the phase. Fewer than three spatial dims are 3-D with extents and strides of 1.

The epilogue has a block function only; its row is m, its col the position in the plane. Work units: planes of y.
If filters are padded with zeros, phase_mending.py checks the finished planes.
"""

from __future__ import annotations

from typing import NamedTuple

from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module
from .arguments import KERNEL, ArgumentBlock
from .phase_mending import MendingBuffers, MendingParams, mend_plane
from .register_tile import Epilogue


class Buffers(NamedTuple):
    z: Tensor
    y: Tensor


class Params(NamedTuple):
    od: AnyDim  # extents of y
    oh: AnyDim
    ow: AnyDim
    ud: AnyDim  # of z
    uh: AnyDim
    uw: AnyDim
    sd: AnyDim  # strides
    sh: AnyDim
    sw: AnyDim
    bd: AnyDim  # elements to drop at the beginning, less than the stride
    bh: AnyDim
    bw: AnyDim
    filters: AnyDim  # extent of m


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "y")
MENDED = ArgumentBlock(MendingBuffers._fields, (*Params._fields, *MendingParams._fields), "y")


def interleave(module: Module, name: str, *, epilogue: Epilogue, mended: bool = False) -> Function:
    """Emit the kernel (args, begin, end, tid). mended: it has the arguments MENDED and computes NaN again"""
    f = module.function(name, KERNEL)
    args, begin, end, _ = f.params
    arguments = MENDED if mended else ARGUMENTS
    w = arguments.load(f, epilogue.extra, Buffers._fields)
    plane, phases, z, y, row = f.locals("i32", 5)
    o = {axis: f.local("i32") for axis in "dh"}
    f.emit(w["ud"], w["uh"], "i32.mul", w["uw"], "i32.mul").i32(2).emit("i32.shl").set(plane)
    f.emit(w["sd"], w["sh"], "i32.mul", w["sw"], "i32.mul").set(phases)
    finish = {n: f.local("i32") for n in ("batch", "row", "rows", "col", "cols")} | {"args": args}
    f.i32(1).set(finish["rows"]).emit(w["od"], w["oh"], "i32.mul", w["ow"], "i32.mul").set(finish["cols"])
    f.emit(w["y"], begin, finish["cols"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(y)
    with f.until(begin, end):
        f.emit(w["z"], begin, phases, "i32.mul", plane, "i32.mul", "i32.add").set(z)
        f.i32(0).set(o["d"])
        with f.until(o["d"], w["od"]):
            f.i32(0).set(o["h"])
            with f.until(o["h"], w["oh"]):
                _source(f, w, o, z, plane, row)
                _row(f, w, row, plane, y)
                f.emit(y, w["ow"]).i32(2).emit("i32.shl", "i32.add").set(y)
        if mended:
            f.emit(args, begin, y, finish["cols"]).i32(2).emit("i32.shl", "i32.sub")
            f.call(mend_plane(module, arguments, epilogue.extra))
        f.emit(begin, w["filters"], "i32.div_u").set(finish["batch"])
        f.emit(begin, w["filters"], "i32.rem_u").set(finish["row"])
        epilogue.finish(f, finish)
    return f


def _source(f: Function, w: dict[str, int], o: dict[str, int], z: int, plane: int, row: int) -> None:
    """row = address of the first of the `sw` rows that are interleaved to row (d, h) of y."""
    with f.scratch("i32", 2) as (phase, line):
        f.i32(0).set(phase).i32(0).set(line)
        for axis in "dh":
            q, s = (o[axis], w["b" + axis]), w["s" + axis]
            f.emit(phase, s, "i32.mul", *q, "i32.add", s, "i32.rem_u", "i32.add").set(phase)
            f.emit(line, w["u" + axis], "i32.mul", *q, "i32.add", s, "i32.div_u", "i32.add").set(line)
        f.emit(z, phase, w["sw"], "i32.mul", plane, "i32.mul", "i32.add")
        f.emit(line, w["uw"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(row)


def _row(f: Function, w: dict[str, int], row: int, plane: int, y: int) -> None:
    """Write one row of y. Elements of a phase are a stride apart; a stride of 2 writes several at a time from two
    rows."""
    with f.scratch("i32", 6) as (x, phase, source, to, step, first), f.scratch("v128", 2) as (even, odd):
        f.i32(0).set(x)
        f.emit(w["sw"]).i32(2).emit("i32.eq")
        with f.if_():
            # x counts elements; if an element is dropped at the beginning, the odd row comes first
            f.emit(row).set(source).emit(row, plane, "i32.add").set(to).emit(w["bw"])
            with f.if_():
                f.emit(source).i32(4).emit("i32.add", to).set(source).set(to)
            f.emit(y).set(first)
            for count in (32, 8):
                f.emit(w["ow"]).i32(count - 1).emit("i32.sub").set(step)
                with f.until(x, step, count):
                    for n in range(count // 8):
                        f.emit(source).mem("v128.load", 16 * n).set(even).emit(to).mem("v128.load", 16 * n).set(odd)
                        for half, lanes in ((0, (0, 4, 1, 5)), (16, (2, 6, 3, 7))):
                            f.emit(first, even, odd).shuffle32(*lanes).mem("v128.store", 32 * n + half)
                    f.add(source, 2 * count).add(to, 2 * count).add(first, 4 * count)
        _rest(f, w, row, plane, y, x, (phase, source, to, step, first))


def _rest(f: Function, w: dict[str, int], row: int, plane: int, y: int, x: int, scratch: tuple[int, ...]) -> None:
    """Write the elements from x on, whose number is a multiple of the stride, phase by phase. scratch: five locals"""
    phase, source, to, step, first = scratch
    last = f.local("i32")
    f.emit(w["sw"]).i32(2).emit("i32.shl").set(step).i32(0).set(phase)
    f.emit(y, w["ow"]).i32(2).emit("i32.shl", "i32.add").set(last)
    with f.until(phase, w["sw"]):
        f.emit(x, w["bw"], "i32.add", w["sw"], "i32.div_u")  # u of the first element that is not dropped
        f.emit(phase, w["bw"], "i32.lt_u", "i32.add").set(first)
        f.emit(row, phase, plane, "i32.mul", "i32.add", first).i32(2).emit("i32.shl", "i32.add").set(source)
        f.emit(first, w["sw"], "i32.mul", phase, "i32.add", w["bw"], "i32.sub").i32(2).emit("i32.shl", y, "i32.add")
        f.set(to)
        with f.block() as out, f.loop() as again:
            f.emit(to, last, "i32.ge_u").br_if(out)
            f.emit(to, source).mem("f32.load").mem("f32.store").add(source, 4).emit(to, step, "i32.add").set(to)
            f.br(again)
    f.release(last)
