"""Outputs of a Winograd convolution as direct sums, for tiles whose transforms gave infinities or NaN.

A transform subtracts elements of a patch from one another. If one of them is infinite, or so large that a sum
overflows, outputs become NaN although their own windows do not hold it. Such rows of outputs are computed again, from
kernels that are restored from their transforms U = G g Gt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..printer.assembler import Function, Module, once
from .arguments import ArgumentBlock
from .winograd_forms import FLOATS

ROWS = (0, 1, 2, 5)  # of G: row 0 has g0 alone, row 5 has g2 alone, and rows 1 and 2 differ in the sign of g1
FIRST, MIDDLE = 1 / FLOATS.g[0][0], 0.5 / FLOATS.g[1][1]
# Restored weights differ by up to 2^-21 of the largest one of their kernel. Below this share they count as 0, because
# weights that are 0 are common, and 0 times infinity is NaN.
SMALLEST = 2.0**-19
OUTPUTS = 16  # of a row of a quad


@once
def direct_row(module: Module, arguments: ArgumentBlock, extra: int) -> Function:
    """(args, x, row, oy, q, to): write row oy of quad q and of filter `row`. x: the planes of the image"""
    f = module.function("winograd_direct", ["i32"] * 6, export=False)
    _, x, row, oy, q, to = f.params
    w = arguments.load(f, extra, ("w",))
    c, u, step, line, base, left = f.locals("i32", 6)
    g = f.locals("f32", 9)
    f.emit(w["w"], row, w["c"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(u)
    f.emit(w["um"], w["c"], "i32.mul").i32(2).emit("i32.shl").set(step)
    f.emit(q).i32(OUTPUTS).emit("i32.mul", w["pw"], "i32.sub").set(left)
    for n in range(OUTPUTS // 4):
        f.emit(to).f32x4(0).mem("v128.store", 16 * n)
    with f.until(c, w["c"]):
        _restore(f, u, step, g)
        for r in range(3):
            f.emit(oy).i32(r).emit("i32.add", w["ph"], "i32.sub").tee(line).emit(w["ih"], "i32.lt_u")
            with f.if_():
                f.emit(x, line, w["iw"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(base)
                _add_row(f, g[3 * r : 3 * r + 3], base, left, w["iw"], to)
        f.emit(x, w["ih"], w["iw"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(x).add(u, 4)
    return f


def _restore(f: Function, u: int, step: int, g: Sequence[int]) -> None:
    """g = the kernel at u, the first of its points, which are `step` bytes apart."""
    with f.scratch("f32", 12) as rows, f.scratch("f32", 1) as (most,):
        for n, j in enumerate(ROWS):
            _combined(f, [partial(_point, f, u, step, FLOATS.side * i + j) for i in ROWS], rows[n::4])
        for r in range(3):
            _combined(f, [partial(f.emit, k) for k in rows[4 * r : 4 * r + 4]], g[3 * r : 3 * r + 3])
        f.f32(0)
        for k in g:
            f.emit(k, "f32.abs", "f32.max")
        f.f32(SMALLEST).emit("f32.mul").set(most)
        for k in g:
            f.f32(0).emit(k, k, "f32.abs", most, "f32.le", "select").set(k)


def _combined(f: Function, push: Sequence[Callable[[], Function]], to: Sequence[int]) -> None:
    """to = the three elements of a row of g, from four of U."""
    push[0]().f32(FIRST).emit("f32.mul").set(to[0])
    push[1]()
    push[2]().emit("f32.sub").f32(MIDDLE).emit("f32.mul").set(to[1])
    push[3]().set(to[2])


def _point(f: Function, u: int, step: int, n: int) -> Function:
    return f.emit(u, step).i32(n).emit("i32.mul", "i32.add").mem("f32.load")


def _add_row(f: Function, g: Sequence[int], base: int, left: int, width: int, to: int) -> None:
    """Add the products with one row of the input, at `base`, to each output."""
    with f.scratch("i32", 4) as (n, end, at, pointer):
        f.i32(0).set(n).i32(OUTPUTS).set(end)
        with f.until(n, end):
            f.emit(to, n).i32(2).emit("i32.shl", "i32.add").set(pointer)
            for s, k in enumerate(g):
                f.emit(left, n, "i32.add").i32(s).emit("i32.add").tee(at).emit(width, "i32.lt_u")
                with f.if_():
                    f.emit(pointer, pointer).mem("f32.load").emit(base, at).i32(2).emit("i32.shl", "i32.add")
                    f.mem("f32.load").emit(k, "f32.mul", "f32.add").mem("f32.store")
