"""The gradient of a maximum over windows of 2x2 that do not overlap, in float32: four windows at a time.

dx[p, 2·r + i, 2·c + j] = g[p, r, c] if x is the first largest element of its window there, else 0. A last row or column
of x that no window covers gets 0. Comparisons in lanes have no branches; in scalar code V8 and Cranelift select floats
by branches, half of which are predicted wrongly (1.0 ms for 100,000 windows, against 0.1).

Reads up to 12 bytes past the ends of x and g. Work units: planes p.
"""

from __future__ import annotations

from typing import NamedTuple

from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module
from .arguments import KERNEL, ArgumentBlock, element
from .register_tile import Epilogue, store_part


class Buffers(NamedTuple):
    x: Tensor
    g: Tensor
    y: Tensor


class Params(NamedTuple):
    h: AnyDim  # extents of x
    w: AnyDim
    oh: AnyDim  # extents of g
    ow: AnyDim
    channels: AnyDim


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "y")


def into_largest(module: Module, name: str, *, epilogue: Epilogue) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    store_part(module)
    f = module.function(name, KERNEL)
    args, begin, end, _ = f.params
    w = ARGUMENTS.load(f, epilogue.extra, Buffers._fields)
    x, y, row, step = f.locals("i32", 4)
    finish = {n: f.local("i32") for n in ("batch", "row", "rows", "col", "cols")} | {"args": args}
    f.i32(1).set(finish["rows"]).emit(w["h"], w["w"], "i32.mul").set(finish["cols"])
    f.emit(w["w"]).i32(2).emit("i32.shl").set(step)
    element(f, w["x"], (begin, finish["cols"])).set(x)
    element(f, w["y"], (begin, finish["cols"])).set(y)
    with f.scratch("i32", 1) as (size,):
        f.emit(w["oh"], w["ow"], "i32.mul").set(size)
        element(f, w["g"], (begin, size)).set(w["g"])
    with f.until(begin, end):
        f.i32(0).set(row)
        with f.until(row, w["oh"]):
            _row(f, w, x, y, step)
            f.emit(x, step).i32(1).emit("i32.shl", "i32.add").set(x)
            f.emit(y, step).i32(1).emit("i32.shl", "i32.add").set(y)
            f.emit(w["g"], w["ow"]).i32(2).emit("i32.shl", "i32.add").set(w["g"])
        f.emit(w["h"]).i32(1).emit("i32.and")
        with f.if_():
            with f.scratch("i32", 1) as (column,):  # not memory.fill: a run cannot be stopped inside of it
                f.i32(0).set(column)
                with f.until(column, step, 4):
                    f.emit(y, column, "i32.add").i32(0).mem("i32.store")
            f.emit(x, step, "i32.add").set(x).emit(y, step, "i32.add").set(y)
        f.emit(begin, w["channels"], "i32.div_u").set(finish["batch"])
        f.emit(begin, w["channels"], "i32.rem_u").set(finish["row"])
        epilogue.finish(f, finish)
    return f


def _row(f: Function, w: dict[str, int], x: int, y: int, step: int) -> None:
    """Write two rows at y from those at x; step: bytes of a row."""
    with f.scratch("i32", 7) as (left, upper, lower, to, below, g, second), f.scratch("v128", 9) as v:
        f.emit(w["ow"]).set(left).emit(w["g"]).set(g)
        f.emit(x).set(upper).emit(x, step, "i32.add").set(lower).emit(y).set(to).emit(y, step, "i32.add").set(below)
        with f.block() as out, f.loop() as again:
            f.emit(left).i32(0).emit("i32.le_s").br_if(out)
            f.emit(left).i32(2).emit("i32.gt_s").i32(4).emit("i32.shl").set(second)  # do not read past the row
            for n, source in ((0, upper), (2, lower)):
                f.emit(source).mem("v128.load").set(v[n]).emit(source, second, "i32.add").mem("v128.load").set(v[n + 1])
            f.emit(g).mem("v128.load").set(v[8])
            _spread(f, v[:4], v[8], v[4:8])
            for target, even, odd in ((to, v[4], v[5]), (below, v[6], v[7])):
                f.emit(even, odd).shuffle32(0, 4, 1, 5).set(v[0]).emit(even, odd).shuffle32(2, 6, 3, 7).set(v[1])
                f.emit(left).i32(4).emit("i32.ge_s")
                with f.if_():
                    f.emit(target, v[0]).mem("v128.store").emit(target, v[1]).mem("v128.store", 16)
                    f.otherwise().emit(target, v[0], v[1], left).i32(1).emit("i32.shl").call(store_part)
            for pointer in (upper, lower, to, below):
                f.add(pointer, 32)
            f.add(g, 16).add(left, -4).br(again)
        f.emit(w["w"]).i32(1).emit("i32.and")
        with f.if_():
            f.emit(y, step, "i32.add").set(below)
            for row in (y, below):
                f.emit(row, step, "i32.add").i32(4).emit("i32.sub").f32(0).mem("f32.store")


def _spread(f: Function, rows: list[int], flow: int, to: list[int]) -> None:
    """to: for each of the four elements of a window, the flow where it is the first largest one. rows: eight elements
    of two rows, which are overwritten"""
    for n, (low, high) in enumerate((rows[:2], rows[2:])):
        f.emit(low, high).shuffle32(0, 2, 4, 6).set(to[2 * n]).emit(low, high).shuffle32(1, 3, 5, 7).set(to[2 * n + 1])
    best, larger = rows[0], rows
    f.emit(to[0]).set(best)
    for n in (1, 2, 3):
        f.emit(to[n], best, "f32x4.gt").set(larger[n]).emit(best, to[n], "f32x4.pmax").set(best)
    for n in (3, 2, 1):
        f.emit(flow, larger[n], "v128.and").set(to[n]).emit(flow, larger[n], "v128.andnot").set(flow)
    f.emit(flow).set(to[0])
