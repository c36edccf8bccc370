"""Outputs of a transposed convolution as direct sums, where the convolution of all phases gave NaN.

Filters of a phase with fewer taps are padded with zeros, and 0 times infinity is NaN. Such outputs are computed again,
from the taps of their own phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from .arguments import ArgumentBlock


class MendingBuffers(NamedTuple):
    z: Tensor  # as in phase_interleave.py
    y: Tensor
    x: Tensor  # the input
    w: Tensor  # the filters of the phases (M * phases, C / group, *taps)


class MendingParams(NamedTuple):
    channels: AnyDim  # of a group of x
    members: AnyDim  # filters of a group
    kd: AnyDim  # extents of the window
    kh: AnyDim
    kw: AnyDim
    td: AnyDim  # taps of a phase
    th: AnyDim
    tw: AnyDim
    id: AnyDim  # extents of x
    ih: AnyDim
    iw: AnyDim
    pd: AnyDim  # pads of the convolution of all phases
    ph: AnyDim
    pw: AnyDim


@once
def mend_plane(module: Module, arguments: ArgumentBlock, extra: int) -> Function:
    """(args, plane, y): compute again those outputs of one plane (a channel of a batch item) that are NaN. plane: its
    number; y: its address"""
    f, p = module.internal("phase_mend", ("args", "plane", "y"))
    w = arguments.load(f, extra, ("x", "w"))
    size, x, base = f.locals("i32", 3)
    o = {axis: f.local("i32") for axis in "dhw"}
    f.emit(w["od"], w["oh"], "i32.mul", w["ow"], "i32.mul").set(size)
    f.emit(p["y"], size).call(_has_nan)
    with f.if_():
        # x = the first of its channels of the group; base = the first filter of the plane
        f.emit(p["plane"], w["members"], "i32.div_u", w["channels"], "i32.mul").set(base)
        f.emit(w["x"], base, w["id"], "i32.mul", w["ih"], "i32.mul", w["iw"], "i32.mul").i32(2)
        f.emit("i32.shl", "i32.add").set(x)
        f.emit(p["plane"], w["filters"], "i32.rem_u", w["sd"], "i32.mul", w["sh"], "i32.mul", w["sw"], "i32.mul")
        f.set(base)
        for axis in "dhw":
            f.i32(0).set(o[axis])
        with f.until(o["d"], w["od"]):
            f.i32(0).set(o["h"])
            with f.until(o["h"], w["oh"]):
                f.i32(0).set(o["w"])
                with f.until(o["w"], w["ow"]):
                    f.emit(p["y"]).mem("f32.load").emit(p["y"]).mem("f32.load").emit("f32.ne")
                    with f.if_():
                        f.emit(p["y"])
                        _direct(f, w, x, base, o)
                        f.mem("f32.store")
                    f.add(p["y"], 4)
    return f


@once
def _has_nan(module: Module) -> Function:
    """(at, size) -> 1 if one of these elements is NaN, or if their sum overflows in both directions."""
    f = module.function("phase_has_nan", ["i32", "i32"], ["i32"], export=False)
    at, size = f.params
    total, rest = f.local("v128"), f.local("f32")
    for count in (64, 8):
        with f.countdown(size, count):
            f.emit(total)
            for n in range(count // 4):
                f.emit(at).mem("v128.load", 16 * n).emit("f32x4.add")
            f.set(total).add(at, 4 * count)
    with f.countdown(size, 1):
        f.emit(rest, at).mem("f32.load").emit("f32.add").set(rest).add(at, 4)
    f.emit(total, total, "f32x4.ne", "v128.any_true", rest, rest, "f32.ne", "i32.or")
    return f


def _direct(f: Function, w: dict[str, int], x: int, base: int, o: dict[str, int]) -> None:
    """Push the sum over the channels and the taps of an output. base: number of the first filter of its plane"""
    phase: list[int | str] = []
    with f.scratch("i32", 14) as names, f.scratch("f32", 1) as (total,):
        at = dict(zip("dhw", names[:3], strict=True))  # the first element of x, before its pads
        r = dict(zip("dhw", names[3:6], strict=True))
        tap = dict(zip("dhw", names[6:9], strict=True))
        c, row, filter_, source, line = names[9:]
        for axis in "dhw":
            f.emit(o[axis], w["b" + axis], "i32.add", w["s" + axis], "i32.rem_u").set(r[axis])
            f.emit(o[axis], w["b" + axis], "i32.add", w["s" + axis], "i32.div_u", w["p" + axis], "i32.sub")
            f.set(at[axis])
            phase = [*phase, w["s" + axis], "i32.mul", r[axis], "i32.add"] if phase else [r[axis]]
        f.emit(base, *phase, "i32.add", w["channels"], "i32.mul").set(row)
        f.f32(0).set(total).i32(0).set(c).emit(x).set(source)
        with f.until(c, w["channels"]):
            f.emit(row, c, "i32.add").set(filter_)
            with _taps(f, w, "d", tap, at, r), _taps(f, w, "h", tap, at, r), _taps(f, w, "w", tap, at, r):
                f.emit(at["d"], tap["d"], "i32.add", w["ih"], "i32.mul", at["h"], "i32.add", tap["h"], "i32.add")
                f.emit(w["iw"], "i32.mul", at["w"], "i32.add", tap["w"], "i32.add").set(line)
                f.emit(total)
                f.emit(source, line).i32(2).emit("i32.shl", "i32.add").mem("f32.load")
                f.emit(w["w"], filter_, w["td"], "i32.mul", tap["d"], "i32.add", w["th"], "i32.mul", tap["h"])
                f.emit("i32.add", w["tw"], "i32.mul", tap["w"], "i32.add").i32(2).emit("i32.shl", "i32.add")
                f.mem("f32.load").emit("f32.mul", "f32.add").set(total)
            f.emit(source, w["id"], w["ih"], "i32.mul", w["iw"], "i32.mul").i32(2).emit("i32.shl", "i32.add")
            f.set(source)
        f.emit(total)


@contextmanager
def _taps(
    f: Function, w: dict[str, int], axis: str, tap: dict[str, int], at: dict[str, int], r: dict[str, int]
) -> Iterator[None]:
    """Loop over the taps of an axis that the phase has and that read elements of x."""
    f.i32(0).set(tap[axis])
    with f.until(tap[axis], w["t" + axis]):
        f.emit(w["t" + axis], tap[axis], "i32.sub").i32(1).emit("i32.sub", w["s" + axis], "i32.mul", r[axis], "i32.add")
        f.emit(w["k" + axis], "i32.lt_s", at[axis], tap[axis], "i32.add", w["i" + axis], "i32.lt_u", "i32.and")
        with f.if_():
            yield
