"""The routine "depthwise": convolution of each channel with its own kernels, f32, one or two spatial dims.

y[n, c * mult + j, oy, ox] =
    sum over (r, s) of w[c * mult + j, r, s] * x[n, c, oy * sh - ph + r * dh, ox * sw - pw + s * dw]

Four outputs along the width at a time. Where all their taps lie inside the row they are plain loads (even lanes of two
loads for stride 2); at the borders lanes are masked, so borders cost little. The window (3x3, 5x5 or any) and the
stride along the width (1, 2 or any) are baked into the kernel; everything else is a parameter.

Argument block (i32 words): buffers x w y bias, then `extra` ones for the epilogue, then PARAMS:
    batch c mult              samples, channels, filters per channel
    ih iw oh ow kh kw         extents of input, output, kernel (1-D: ih = oh = kh = 1)
    sh sw dh dw ph pw         strides, dilations, pads at the beginning
x, w, y are contiguous. The epilogue's bias is "row"; its row is the filter c * mult + j, its col is oy * ow + ox.
Reads up to 12 bytes before x and past its end.

Work units: batch * c * mult planes of y.
"""

from __future__ import annotations

from .assembler import Function, Module
from .gemm import KERNEL, load_words
from .tile import Epilogue, apply_epilogue, madd, store_part

BUFFERS = ("x", "w", "y", "bias")
PARAMS = ("batch", "c", "mult", "ih", "iw", "oh", "ow", "kh", "kw", "sh", "sw", "dh", "dw", "ph", "pw")
_ROW = ("args", "x", "w", "y", "bias", "batch", "row", "oy")


def pick(kh: int, kw: int, sw: int) -> tuple[int, int]:
    """(window, stride) to bake: window 3 or 5 for square ones, else 0 (any); stride 1 or 2, else 0 (any)."""
    return (kh if kh == kw and kh in (3, 5) else 0), (sw if sw in (1, 2) else 0)


class _Row:
    """Emits the function of one output row: (args, x plane, w of the filter, y row, bias, batch, row, oy).

    window: baked square window or 0; stride: baked stride along the width or 0
    """

    def __init__(self, module: Module, window: int, stride: int, relaxed: bool, epilogue: Epilogue, first: int) -> None:
        self.window, self.stride, self.relaxed, self.epilogue = window, stride, relaxed, epilogue
        self.store = store_part(module)
        self.f = f = module.function(f"depthwise_row{window}", ["i32"] * len(_ROW), export=False)
        self.p = dict(zip(_ROW, f.params, strict=True))
        self.w = load_words(f, PARAMS, first)
        self.x0, self.ox, self.left, self.col, self.p0 = f.locals("i32", 5)
        self.total, self.v, self.u = f.locals("v128", 3)
        self.at, self.mask = f.local("v128"), f.local("v128")
        self.weights = [f.local("v128") for _ in range(window * window)]
        self.rows = f.locals("i32", window)
        self.emit()

    def emit(self) -> None:
        """All of a row: four outputs a round, the fast body where every tap of the four is inside the row."""
        f, w, p = self.f, self.w, self.p
        end, fast_end = f.locals("i32", 2)
        for i, weight in enumerate(self.weights):
            f.emit(p["w"]).mem("v128.load32_splat", 4 * i).set(weight)
        for r, pointer in enumerate(self.rows):
            self.row_pointer(lambda r=r: f.i32(r), pointer)
        f.i32(0).emit(w["pw"], "i32.sub").set(self.x0)
        f.emit(p["oy"], w["ow"], "i32.mul").set(self.col).emit(w["ow"]).set(self.left)
        f.emit(w["iw"], w["kw"]).i32(1).emit("i32.sub", w["dw"], "i32.mul", "i32.sub")
        f.i32(3 * self.stride + self.stride - 1).emit("i32.sub").set(fast_end)  # x0 of a fast round is below this
        f.emit(w["ow"]).set(end)
        with f.until(self.ox, end, 4):
            if self.window and self.stride:
                f.emit(self.x0).i32(0).emit("i32.ge_s", self.x0, fast_end, "i32.lt_s", "i32.and")
                f.emit(self.left).i32(4).emit("i32.ge_s", "i32.and")
                with f.if_():
                    self.baked(self.fast_tap)
                    f.otherwise()
                    self.border()
                    self.baked(self.masked_tap)
            else:
                self.border()
                (self.baked if self.window else self.any_window)(self.masked_tap)
            self.finish()
            f.emit(self.x0, w["sw"]).i32(2).emit("i32.shl", "i32.add").set(self.x0).add(self.left, -4).add(self.col, 4)

    def row_pointer(self, push_r: object, to: int) -> None:
        """to = address of the input row of tap r, 0 if there is none."""
        f, w, p = self.f, self.w, self.p
        f.emit(p["oy"], w["sh"], "i32.mul", w["ph"], "i32.sub")
        push_r()  # type: ignore[operator]
        f.emit(w["dh"], "i32.mul", "i32.add").tee(to)
        f.emit(w["iw"], "i32.mul").i32(2).emit("i32.shl", p["x"], "i32.add").i32(0)
        f.emit(to, w["ih"], "i32.lt_u", "select").set(to)

    def baked(self, tap: object) -> None:
        """total = the sum over a baked window."""
        f = self.f
        f.f32x4(0).set(self.total)
        for r, pointer in enumerate(self.rows):
            f.emit(pointer)
            with f.if_():
                for s in range(self.window):
                    tap(pointer, lambda s=s: f.i32(s), s)  # type: ignore[operator]
                    madd(f, self.total, self.weights[r * self.window + s], self.v, self.relaxed)

    def any_window(self, tap: object) -> None:
        """total = the sum over a window of any size."""
        f, w, p = self.f, self.w, self.p
        f.f32x4(0).set(self.total)
        with f.scratch("i32", 4) as (r, s, pointer, weight):
            f.emit(p["w"]).set(weight).i32(0).set(r)
            with f.until(r, w["kh"]):
                self.row_pointer(lambda: f.emit(r), pointer)
                f.emit(pointer)
                with f.if_():
                    f.i32(0).set(s)
                    with f.until(s, w["kw"]):
                        tap(pointer, lambda: f.emit(s), 0)  # type: ignore[operator]
                        f.emit(weight, s).i32(2).emit("i32.shl", "i32.add").mem("v128.load32_splat").set(self.u)
                        madd(f, self.total, self.u, self.v, self.relaxed)
                f.emit(weight, w["kw"]).i32(2).emit("i32.shl", "i32.add").set(weight)

    def fast_tap(self, row: int, push_s: object, s: int) -> None:
        """v = the inputs of one tap, all inside the row."""
        f, w = self.f, self.w
        f.emit(row, self.x0)
        if s:
            f.emit(w["dw"]).i32(s).emit("i32.mul", "i32.add")
        f.i32(2).emit("i32.shl", "i32.add")
        if self.stride == 1:
            f.mem("v128.load").set(self.v)
        else:
            f.tee(self.p0).mem("v128.load").emit(self.p0).mem("v128.load", 16).shuffle32(0, 2, 4, 6).set(self.v)

    def border(self) -> None:
        """at = input columns of the four outputs before taps; lanes past the last output are nowhere."""
        f, w = self.f, self.w
        lanes = f.v128(b"".join(i.to_bytes(4, "little") for i in range(4))).set(self.u)
        lanes.emit(self.u, w["sw"], "i32x4.splat", "i32x4.mul", self.x0, "i32x4.splat", "i32x4.add")
        f.i32x4(-(1 << 30)).emit(self.u, self.left, "i32x4.splat", "i32x4.lt_s", "v128.bitselect").set(self.at)

    def masked_tap(self, row: int, push_s: object, _: int) -> None:
        """v = the inputs of one tap, 0 outside the row."""
        f, w = self.f, self.w
        f.emit(self.at)
        push_s()  # type: ignore[operator]
        f.emit(w["dw"], "i32.mul", "i32x4.splat", "i32x4.add").tee(self.v)
        f.emit(w["iw"], "i32x4.splat", "i32x4.lt_u").set(self.mask)
        if self.stride == 1:
            f.emit(row, self.v).lane("i32x4.extract_lane", 0).i32(0).emit(self.mask, "v128.any_true", "select")
            # lane 0 may be before the row; lanes past the outputs follow it
            f.i32(2).emit("i32.shl", "i32.add").mem("v128.load").emit(self.mask, "v128.and").set(self.v)
            return
        f.emit(self.v, self.mask, "v128.and").i32(2).emit("i32x4.shl", row, "i32x4.splat", "i32x4.add").set(self.v)
        f.emit(self.v).lane("i32x4.extract_lane", 0).mem("v128.load32_zero").set(self.u)
        for lane in (1, 2, 3):
            f.emit(self.v).lane("i32x4.extract_lane", lane)
            f.emit(self.u).mem_lane("v128.load32_lane", lane).set(self.u)
        f.emit(self.u, self.mask, "v128.and").set(self.v)

    def finish(self) -> None:
        f, p = self.f, self.p
        apply_epilogue(f, self.epilogue, p, p["row"], self.col, self.total)
        f.emit(self.left).i32(4).emit("i32.ge_s")
        with f.if_():
            f.emit(p["y"], self.total).mem("v128.store")
            f.otherwise().emit(p["y"], self.total, self.total, self.left).call(self.store)
        f.add(p["y"], 16)


def depthwise(
    module: Module,
    name: str,
    window: int,
    stride: int,
    *,
    relaxed: bool,
    epilogue: Epilogue | None = None,
    extra: int = 0,
) -> Function:
    """Emit the kernel (args, begin, end, tid) for a `pick`; see the module's docstring for its argument block."""
    epilogue, first = epilogue or Epilogue(), len(BUFFERS) + extra
    key = ("depthwise", window, stride, relaxed, epilogue.key(), first)
    row_function = module.once(key, lambda: _Row(module, window, stride, relaxed, epilogue, first).f)
    f = module.function(name, KERNEL)
    args, begin, end, _ = f.params
    w = load_words(f, BUFFERS) | load_words(f, PARAMS, first)
    n, filters, filter_, oy, x, y, weights = f.locals("i32", 7)
    f.emit(w["c"], w["mult"], "i32.mul").set(filters)
    with f.until(begin, end):
        f.emit(begin, filters, "i32.div_u").set(n).emit(begin, filters, "i32.rem_u").set(filter_)
        f.emit(w["x"], begin, w["mult"], "i32.div_u", w["ih"], "i32.mul", w["iw"], "i32.mul").i32(2)
        f.emit("i32.shl", "i32.add").set(x)
        f.emit(w["w"], filter_, w["kh"], "i32.mul", w["kw"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(weights)
        f.emit(w["y"], begin, w["oh"], "i32.mul", w["ow"], "i32.mul").i32(2).emit("i32.shl", "i32.add").set(y)
        f.i32(0).set(oy)
        with f.until(oy, w["oh"]):
            f.emit(args, x, weights, y, w["bias"], n, filter_, oy).call(row_function)
            f.emit(y, w["ow"]).i32(2).emit("i32.shl", "i32.add").set(y)
    return f


def units(batch: int, c: int, mult: int) -> int:
    return batch * c * mult
