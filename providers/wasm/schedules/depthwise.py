"""The routine "depthwise": convolution of each channel with its own kernels, f32, one or two spatial dims.

y[n, c * mult + j, oy, ox] =
    sum over (r, s) of w[c * mult + j, r, s] * x[n, c, oy * sh - ph + r * dh, ox * sw - pw + s * dw]

Outputs along the width are computed in vectors. Where all taps lie inside the input, eight at a time from plain loads
(even lanes of two loads for stride 2); elsewhere four at a time with lane masks, so borders cost little. A baked kernel
has its square window (3 or 5) and its stride along the width (1 or 2) written out; everything else is a parameter.

Argument block (i32 words): buffers x w y bias, then `extra` ones for the epilogue, then PARAMS:
    batch c mult              samples, channels, filters per channel
    ih iw oh ow kh kw         extents of input, output, kernel (1-D: ih = oh = kh = 1)
    sh sw dh dw ph pw         strides, dilations, pads at the beginning
x, w, y are contiguous. The epilogue's bias is "row"; its row is the filter c * mult + j, its col is oy * ow + ox.
Reads up to 12 bytes before x and past its end.

Work units: batch * c * mult planes of y.
"""

from __future__ import annotations

import struct

from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module
from .arguments import KERNEL, load_words
from .arithmetic import Arithmetic
from .register_tile import Epilogue, apply_epilogue, store_part

BUFFERS = ("x", "w", "y", "bias")
PARAMS = ("batch", "c", "mult", "ih", "iw", "oh", "ow", "kh", "kw", "sh", "sw", "dh", "dw", "ph", "pw")
_NOWHERE = -(1 << 30)
_PLANE = ("args", "x", "w", "y", "bias", "batch", "row", "rows", "col", "cols")


def pick(kh: int, kw: int, sw: int) -> tuple[int, int]:
    """(window, stride) to bake; 0 is any. Baked ones are 2 to 4 times as fast (Chromium 156, Zen 5, 7x7 to 112x112)."""
    if kh == kw and kh in (3, 5) and sw in (1, 2):
        return kh, sw
    return 0, 1 if sw == 1 else 0


class _Plane:
    """Emits the function of one plane of y, parameters _PLANE: plane of x, w of the filter, plane of y, filter `row`.

    Locals, in row oy: `left` outputs remain, the next one reads input columns from x0 (before taps) and is column `col`
    of the epilogue. rows[r] is the address of the input row of tap r, 0 if it is outside.
    """

    def __init__(
        self, module: Module, window: int, stride: int, arithmetic: Arithmetic, epilogue: Epilogue, first: int
    ) -> None:
        self.window, self.stride, self.arithmetic, self.epilogue = window, stride, arithmetic, epilogue
        self.store = store_part(module)
        self.f = f = module.function(f"depthwise_plane{window}{stride}", ["i32"] * len(_PLANE), export=False)
        self.p = dict(zip(_PLANE, f.params, strict=True))
        self.w = load_words(f, PARAMS, first)
        self.oy, self.x0, self.left, self.col = f.locals("i32", 4)
        self.v, self.u, self.at, self.mask = f.locals("v128", 4)
        self.totals = f.locals("v128", 2)
        self.shifts = f.locals("i32", window)
        self.weights = f.locals("v128", window * window)
        for i, weight in enumerate(self.weights):
            f.emit(self.p["w"]).mem("v128.load32_splat", 4 * i).set(weight)
        for i, shift in enumerate(self.shifts):
            f.emit(self.w["dw"]).i32(4 * i).emit("i32.mul").set(shift)
        with f.until(self.oy, self.w["oh"]):
            f.i32(0).emit(self.w["pw"], "i32.sub").set(self.x0).emit(self.w["ow"]).set(self.left)
            if window:
                self.baked()
            else:
                self.general()
            # the last four may have been fewer: left is what they lacked, negative
            f.emit(self.p["y"], self.left).i32(2).emit("i32.shl", "i32.add").set(self.p["y"])
            f.emit(self.col, self.left, "i32.add").set(self.col)
        f.i32(1).set(self.p["rows"]).emit(self.col).set(self.p["cols"])
        epilogue.finish(f, self.p)

    def row_pointer(self, tap: int, to: int) -> None:
        """to = address of the input row of tap row `tap` (a local), 0 if there is none."""
        f, w, p = self.f, self.w, self.p
        f.emit(self.oy, w["sh"], "i32.mul", w["ph"], "i32.sub", tap, w["dh"], "i32.mul", "i32.add").tee(to)
        f.emit(w["iw"], "i32.mul").i32(2).emit("i32.shl", p["x"], "i32.add").i32(0)
        f.emit(to, w["ih"], "i32.lt_u", "select").set(to)

    def outputs_at(self) -> None:
        """at = input columns of four outputs, before taps; lanes past the last output are nowhere."""
        f, w = self.f, self.w
        f.v128(struct.pack("<4i", 0, 1, 2, 3)).set(self.u)
        f.emit(self.u, w["sw"], "i32x4.splat", "i32x4.mul", self.x0, "i32x4.splat", "i32x4.add")
        f.i32x4(_NOWHERE).emit(self.u, self.left, "i32x4.splat", "i32x4.lt_s", "v128.bitselect").set(self.at)

    def finish(self, total: int) -> None:
        """Store four outputs (or the rest of the row) and go on to the next."""
        f, p = self.f, self.p
        apply_epilogue(f, self.epilogue.tile(), p, p["row"], self.col, total)
        f.emit(self.left).i32(4).emit("i32.ge_s")
        with f.if_():
            f.emit(p["y"], total).mem("v128.store")
            f.otherwise().emit(p["y"], total, total, self.left).call(self.store)
        f.emit(self.x0, self.w["sw"]).i32(2).emit("i32.shl", "i32.add").set(self.x0)
        f.add(p["y"], 16).add(self.left, -4).add(self.col, 4)

    # a baked window

    def baked(self) -> None:
        """Eight outputs a round while all their taps are inside, else four."""
        f, n = self.f, self.window
        self.rows, self.masks = f.locals("i32", n), f.locals("v128", n)
        self.low, self.high = f.locals("i32", n), f.locals("i32", n)
        inside, fast = f.locals("i32", 2)
        f.i32(1).set(inside)
        for i, pointer in enumerate(self.rows):
            f.i32(i).set(fast)
            self.row_pointer(fast, pointer)
            f.emit(inside, pointer).i32(0).emit("i32.ne", "i32.and").set(inside)
        f.emit(self.w["iw"], self.shifts[-1]).i32(2).emit("i32.shr_u", "i32.sub").i32(8 * self.stride)
        f.emit("i32.sub").set(fast)  # the largest x0 of a fast round
        with f.block() as out, f.loop() as again:
            self.if_fast(inside, fast)
            with f.if_():
                self.fast_rounds(inside, fast)
            f.emit(self.left).i32(0).emit("i32.le_s").br_if(out)
            self.masked_round()
            f.emit(self.left).i32(0).emit("i32.gt_s").br_if(again)

    def if_fast(self, inside: int, fast: int) -> None:
        f = self.f
        f.emit(inside, self.x0).i32(0).emit("i32.ge_s", "i32.and", self.x0, fast, "i32.le_s", "i32.and")
        f.emit(self.left).i32(8).emit("i32.ge_s", "i32.and")

    def fast_rounds(self, inside: int, fast: int) -> None:
        """Eight outputs a round; at least one round."""
        f = self.f
        with f.scratch("i32", self.window + 1) as (address, *pointers), f.loop() as again:
            for pointer, row in zip(pointers, self.rows, strict=True):
                f.emit(row, self.x0).i32(2).emit("i32.shl", "i32.add").set(pointer)
            for total in self.totals:
                f.f32x4(0).set(total)
            for i, weight in enumerate(self.weights):
                f.emit(pointers[i // self.window])
                if i % self.window:
                    f.emit(self.shifts[i % self.window], "i32.add")
                f.set(address)
                for half, total in enumerate(self.totals):
                    if self.stride == 1:
                        f.emit(address).mem("v128.load", 16 * half)
                    else:
                        f.emit(address).mem("v128.load", 32 * half).emit(address).mem("v128.load", 32 * half + 16)
                        f.shuffle32(0, 2, 4, 6)
                    self.arithmetic.multiply_add(f, total, weight, _popped(f, self.v))
            for total in self.totals:
                self.finish(total)
            self.if_fast(inside, fast)
            f.br_if(again)

    def masked_round(self) -> None:
        """Four outputs anywhere; every load holds a lane that counts, or reads the start of the row."""
        f, w, total = self.f, self.w, self.totals[0]
        self.outputs_at()
        for s, mask in enumerate(self.masks):
            f.emit(self.at, w["dw"]).i32(s).emit("i32.mul", "i32x4.splat", "i32x4.add").tee(self.v)
            f.emit(w["iw"], "i32x4.splat", "i32x4.lt_u").set(mask)
            halves = ((self.low[s], 0), (self.high[s], 4)) if self.stride == 2 else ((self.low[s], 0),)
            for local, ahead in halves:
                f.emit(self.v).lane("i32x4.extract_lane", 0).i32(ahead).emit("i32.add").i32(2).emit("i32.shl").i32(0)
                if self.stride == 2:
                    f.emit(mask).lane("i64x2.extract_lane", ahead // 4).i64(0).emit("i64.ne")
                else:
                    f.emit(mask, "v128.any_true")
                f.emit("select").set(local)
        f.f32x4(0).set(total)
        for r, row in enumerate(self.rows):
            f.emit(row)
            with f.if_():
                for s, mask in enumerate(self.masks):
                    f.emit(row, self.low[s], "i32.add").mem("v128.load")
                    if self.stride == 2:
                        f.emit(row, self.high[s], "i32.add").mem("v128.load").shuffle32(0, 2, 4, 6)
                    f.emit(mask, "v128.and")
                    self.arithmetic.multiply_add(f, total, self.weights[r * self.window + s], _popped(f, self.v))
        self.finish(total)

    # any window

    def general(self) -> None:
        """Four outputs a round, one tap at a time; those of stride 1 whose inputs are all inside by plain loads."""
        f, w, p, total = self.f, self.w, self.p, self.totals[0]
        r, s, row, weight, begin, first, last, end = f.locals("i32", 8)
        with f.loop() as again:
            self.outputs_at()
            f.emit(w["kw"]).set(end)
            if self.stride == 1:
                self.bounds(begin, first, last, end)
            f.f32x4(0).set(total).emit(p["w"]).set(weight).i32(0).set(r)
            with f.until(r, w["kh"]):
                self.row_pointer(r, row)
                f.emit(row)
                with f.if_():
                    f.emit(begin).set(s)
                    if self.stride == 1:
                        self.masked_taps(row, s, first, weight)
                        self.plain_taps(row, s, last, weight)
                    self.masked_taps(row, s, end, weight)
                f.emit(weight, w["kw"]).i32(2).emit("i32.shl", "i32.add").set(weight)
            self.finish(total)
            f.emit(self.left).i32(0).emit("i32.gt_s").br_if(again)

    def bounds(self, begin: int, first: int, last: int, end: int) -> None:
        """Of tap columns: [begin, end) reach the row, all four inputs of [first, last) lie inside."""
        f, w = self.f, self.w
        for bound, lanes in ((begin, 4), (first, 1)):  # where x0 + lanes - 1 is not left of the row
            f.emit(w["dw"], self.x0, "i32.sub").i32(lanes).emit("i32.sub", w["dw"], "i32.div_s").set(bound)
        for bound, lanes in ((last, 4), (end, 1)):  # behind the last where x0 + lanes - 1 is not right of it
            f.emit(w["iw"], self.x0, "i32.sub").i32(lanes).emit("i32.sub", w["dw"], "i32.add", w["dw"], "i32.div_s")
            f.set(bound)
        with f.scratch("i32", 1) as (low,):
            f.i32(0).set(low)
            for bound in (begin, first, last, end):
                f.emit(bound, low, bound, low, "i32.gt_s", "select").set(bound)
                f.emit(bound, w["kw"], bound, w["kw"], "i32.lt_s", "select").tee(bound).set(low)

    def masked_taps(self, row: int, s: int, end: int, weight: int) -> None:
        f = self.f
        with f.until(s, end):
            self.any_tap(row, s)
            f.emit(weight, s).i32(2).emit("i32.shl", "i32.add").mem("v128.load32_splat").set(self.u)
            self.arithmetic.multiply_add(f, self.totals[0], self.u, self.v)

    def plain_taps(self, row: int, s: int, end: int, weight: int) -> None:
        f, w = self.f, self.w
        with f.scratch("i32", 3) as (at, step, factor):
            f.emit(row, s, w["dw"], "i32.mul", self.x0, "i32.add").i32(2).emit("i32.shl", "i32.add").set(at)
            f.emit(w["dw"]).i32(2).emit("i32.shl").set(step)
            f.emit(weight, s).i32(2).emit("i32.shl", "i32.add").set(factor)
            with f.until(s, end):
                f.emit(factor).mem("v128.load32_splat").set(self.u).emit(at).mem("v128.load").set(self.v)
                self.arithmetic.multiply_add(f, self.totals[0], self.u, self.v)
                f.emit(at, step, "i32.add").set(at).add(factor, 4)

    def any_tap(self, row: int, s: int) -> None:
        """v = the inputs of tap column s, 0 outside the row."""
        f, w = self.f, self.w
        f.emit(self.at, s, w["dw"], "i32.mul", "i32x4.splat", "i32x4.add").tee(self.v)
        f.emit(w["iw"], "i32x4.splat", "i32x4.lt_u").set(self.mask)
        if self.stride == 1:
            f.emit(row, self.v).lane("i32x4.extract_lane", 0).i32(0).emit(self.mask, "v128.any_true", "select")
            f.i32(2).emit("i32.shl", "i32.add").mem("v128.load").emit(self.mask, "v128.and").set(self.v)
            return
        f.emit(self.v, self.mask, "v128.and").i32(2).emit("i32x4.shl", row, "i32x4.splat", "i32x4.add").set(self.v)
        f.emit(self.v).lane("i32x4.extract_lane", 0).mem("v128.load32_zero").set(self.u)
        for lane in (1, 2, 3):
            f.emit(self.v).lane("i32x4.extract_lane", lane)
            f.emit(self.u).mem_lane("v128.load32_lane", lane).set(self.u)
        f.emit(self.u, self.mask, "v128.and").set(self.v)


def _popped(f: Function, local: int) -> int:
    """Pop into a local and name it."""
    f.set(local)
    return local


def depthwise(
    module: Module,
    name: str,
    window: int,
    stride: int,
    *,
    arithmetic: Arithmetic,
    epilogue: Epilogue | None = None,
    extra: int = 0,
) -> Function:
    """Emit the kernel (args, begin, end, tid) for a `pick`; see the module's docstring for its argument block."""
    epilogue, first = Epilogue() if epilogue is None else epilogue, len(BUFFERS) + extra
    key = ("depthwise", window, stride, arithmetic, epilogue.block_key(), first)
    plane = module.once(key, lambda: _Plane(module, window, stride, arithmetic, epilogue, first).f)
    f = module.function(name, KERNEL)
    args, begin, end, _ = f.params
    w = load_words(f, BUFFERS) | load_words(f, PARAMS, first)
    n, filters, filter_, x, y, weights = f.locals("i32", 6)
    f.emit(w["c"], w["mult"], "i32.mul").set(filters)
    with f.block() as empty:
        f.emit(w["ow"], "i32.eqz").br_if(empty)
        with f.until(begin, end):
            f.emit(begin, filters, "i32.div_u").set(n).emit(begin, filters, "i32.rem_u").set(filter_)
            f.emit(w["x"], begin, w["mult"], "i32.div_u", w["ih"], "i32.mul", w["iw"], "i32.mul").i32(2)
            f.emit("i32.shl", "i32.add").set(x)
            f.emit(w["w"], filter_, w["kh"], "i32.mul", w["kw"], "i32.mul").i32(2).emit("i32.shl", "i32.add")
            f.set(weights).emit(w["y"], begin, w["oh"], "i32.mul", w["ow"], "i32.mul").i32(2)
            f.emit("i32.shl", "i32.add").set(y)
            f.emit(args, x, weights, y, w["bias"], n, filter_).i32(1).i32(0).i32(0).call(plane)
    return f


def units(batch: AnyDim, c: AnyDim, mult: AnyDim) -> AnyDim:
    return batch * c * mult
