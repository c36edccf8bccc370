"""Machine code of depthwise convolutions (schedules/depthwise.py), for AVX2 and AVX-512.

Planes of x are read in place. For a vector of columns of y, each tap is one load for which a comparison of its columns
with those of x makes the mask, so that pads are zeros; two loads with a shuffle if the stride is 2. Each element is the
sum of its taps in order, so that its bits depend neither on its place nor on the number of threads. Rows whose windows
need no pads above and below are computed four at a time, with one mask and one load of each weight. If y is wider than
a vector, the last two vectors of a row may overlap.
"""

from __future__ import annotations

import struct

from ..printer.native_imports import BY_ROW, FUNCTIONS
from .function import Function, slots
from .kinds import AVX512, Kind
from .x86 import R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RSI, XMM, ZMM, Memory, Vector

EXTENT, TAPS, DILATION = 1 << 20, 1 << 10, 1 << 10  # the largest extents, kernels and strides, dilations
WORK = 1 << 28  # most products of a call

X, W, TAP, ROW, LINE = R8, R9, R10, R11, R12  # of the inner loops; LINE: the row of x
Y, LEFT, CORNER, PITCH, LINES = R13, R14, R15, RBX, RBP  # CORNER: of x, for the row and column 0 of a window
STEP, NEXT_ROW, NEXT_ROWS = RSI, RDI, RCX  # bytes between taps; between rows of x for the next row of y, and three
TOGETHER = 4  # rows of y
SIGN = -(1 << 31)  # added to numbers of columns, it makes a signed comparison an unsigned one


class DepthwiseFunction(Function):
    name = "depthwise"

    def __init__(self, kind: Kind, windows: bool) -> None:
        super().__init__(kind, windows)
        self.now = slots(FUNCTIONS[self.name].operands, 1)
        self.constants = self.code.label()
        (
            self.value, self.next, self.weight, self.place, self.next_place, self.first, self.next_first, self.limit,
            self.dilation, self.mask, *rest,
        ) = kind.vectors[:16]  # fmt: skip
        self.sums, self.masks = rest[:TOGETHER], rest[TOGETHER:]
        self.order = kind.vectors[-1]  # for AVX-512

    def check(self) -> None:
        code, slot = self.code, self.slot
        for name, most in (
            ("planes", EXTENT), ("ih", EXTENT), ("iw", EXTENT), ("oh", EXTENT), ("ow", EXTENT),
            ("kh", TAPS), ("kw", TAPS), ("sh", TAPS), ("sw", 2), ("dh", DILATION), ("dw", DILATION),
        ):  # fmt: skip
            self.between(name, 1, most)
        for name in ("ph", "pw"):
            self.between(name, 0, EXTENT)
        for name, extents in (("x", ("ih", "iw")), ("w", ("kh", "kw")), ("bias", ()), ("y", ("oh", "ow"))):
            after = code.label()
            if name == "bias":
                code.test(slot["epilogue"], BY_ROW)
                code.jump(after, "e")
            code.op("mov", RCX, slot["planes"], wide=False)
            for extent in extents:
                code.op("mov", RAX, slot[extent], wide=False)
                code.op("imul", RCX, RAX)
            code.shift("shl", RCX, 2)
            code.op("mov", R8, RCX)
            code.constant("mov", RAX, 0, wide=False)
            self.address(name)
            code.place(after)
        for extent in ("kh", "kw"):  # times the bytes of y, which are inside of a memory
            code.op("mov", RAX, slot[extent], wide=False)
            code.op("imul", R8, RAX)
        code.shift("shr", R8, 2)
        code.constant("cmp", R8, WORK)
        code.jump(self.declined, "a")

    def body(self) -> None:
        code = self.code
        self._start()
        plane = code.here()
        none = code.label()
        code.constant("mov", self.now["bias"], 0)
        code.test(self.slot["epilogue"], BY_ROW)
        code.jump(none, "e")
        code.op("mov", RAX, self.slot["bias"])
        code.op("mov", RAX, Memory(RAX), wide=False)
        code.op("store", RAX, self.now["bias"])
        code.constant("add", self.slot["bias"], 4)
        code.place(none)
        self._columns()
        for name, extents in (("x", ("ih", "iw")), ("w", ("kh", "kw")), ("y", ("oh", "ow"))):
            code.op("mov", RAX, self.slot[extents[0]], wide=False)
            code.op("mov", RCX, self.slot[extents[1]], wide=False)
            code.op("imul", RAX, RCX)
            code.shift("shl", RAX, 2)
            code.op("add", RAX, self.slot[name])
            code.op("store", RAX, self.slot[name])
        code.constant("sub", self.slot["planes"], 1, wide=False)
        code.jump(plane, "ne")

    def data(self) -> None:
        self.code.place(self.constants)
        self.code.data(struct.pack("<32i", *range(32)))
        self.code.data(struct.pack("<16i", *range(0, 32, 2)))

    def _start(self) -> None:
        """Set what is the same for all planes."""
        code, slot, lanes = self.code, self.slot, self.kind.lanes
        code.vector("vbroadcastss", self.dilation, slot["dw"])
        code.op("mov", PITCH, slot["iw"], wide=False)
        code.op("lea", RAX, Memory(PITCH, SIGN))
        code.op("store", RAX, self.now["iw"], wide=False)
        code.vector("vbroadcastss", self.limit, self.now["iw"])
        code.shift("shl", PITCH, 2)
        code.op("mov", STEP, slot["dw"], wide=False)
        code.shift("shl", STEP, 2)
        code.op("mov", LINES, slot["ih"], wide=False)
        code.address(RAX, self.constants)
        code.op("mov", RCX, slot["ow"], wide=False)
        if self.kind is AVX512:
            code.vector("vmovups", self.order, Memory(RAX, 4 * 32))
            code.constant("mov", RAX, -1, wide=False)
            code.bzhi(RAX, RAX, RCX)
            code.mask(2, RAX)
        else:  # the first columns that are less than ow
            code.vector("vbroadcastss", self.mask, slot["ow"])
            code.vector("vpcmpgtd", self.mask, self.mask, Memory(RAX))
        code.op("store", RCX, self.now["ow"])
        code.constant("sub", self.now["ow"], lanes)  # the last group's first column, if not negative

    def _columns(self) -> None:
        """For each vector of columns of y, all rows. The column is in the slot of x's second half."""
        code, lanes, column = self.code, self.kind.lanes, self.now["x"]
        code.constant("mov", column, 0)
        again, done = code.here(), code.label()
        code.op("mov", RAX, column)
        code.op("mov", RCX, RAX)
        code.op("mov", CORNER, self.slot["sw"], wide=False)
        code.op("imul", CORNER, RCX)
        code.op("mov", RCX, self.slot["pw"], wide=False)
        code.op("sub", CORNER, RCX)  # the column of x
        code.op("lea", RCX, Memory(CORNER, SIGN))
        code.op("store", RCX, self.now["pw"], wide=False)
        code.op("mov", Y, self.slot["y"])
        code.op("lea", Y, Memory(Y, 0, RAX, 4))
        code.shift("shl", CORNER, 2)
        code.op("add", CORNER, self.slot["x"])
        code.address(RAX, self.constants)
        code.vector("vbroadcastss", self.first, self.now["pw"])
        code.vector("vpaddd", self.next_first, self.first, Memory(RAX, 4 * lanes))
        code.vector("vpaddd", self.first, self.first, Memory(RAX))
        rows, one = code.label(), code.label()
        code.constant("cmp", self.slot["sw"], 1, wide=False)
        code.jump(one, "e")
        self._rows(2)
        code.jump(rows)
        code.place(one)
        self._rows(1)
        code.place(rows)
        code.op("mov", RAX, column)
        code.constant("add", RAX, lanes)
        code.op("mov", RCX, self.slot["ow"], wide=False)
        code.op("cmp", RAX, RCX)
        code.jump(done, "ge")
        code.op("cmp", RAX, self.now["ow"])
        code.op("cmova", RAX, self.now["ow"])
        code.op("store", RAX, column)
        code.jump(again)
        code.place(done)

    def _rows(self, stride: int) -> None:
        """All rows of a vector of columns. The row of x of the first tap is in the second half of ph's slot."""
        code, slot, first = self.code, self.slot, self.now["ph"]
        code.op("mov", RAX, slot["ph"], wide=False)
        code.constant("mov", RCX, 0, wide=False)
        code.op("sub", RCX, RAX)
        code.op("store", RCX, first)
        code.op("mov", LEFT, slot["oh"], wide=False)
        code.op("mov", NEXT_ROW, slot["sh"], wide=False)
        code.op("imul", NEXT_ROW, PITCH)
        again, one, after = code.here(), code.label(), code.label()
        code.constant("cmp", LEFT, TOGETHER)
        code.jump(one, "l")
        code.op("mov", LINE, first)
        code.constant("cmp", LINE, 0)
        code.jump(one, "l")
        code.op("mov", RAX, slot["kh"], wide=False)
        code.op("mov", RCX, slot["dh"], wide=False)
        code.constant("sub", RAX, 1)
        code.op("imul", RAX, RCX)
        code.op("add", LINE, RAX)
        code.op("mov", RAX, slot["sh"], wide=False)
        code.op("lea", RAX, Memory(RAX, 0, RAX, 2))
        code.op("add", LINE, RAX)  # the last row of x
        code.op("cmp", LINE, LINES)
        code.jump(one, "ge")
        self._some_rows(stride, TOGETHER)
        code.jump(after)
        code.place(one)
        self._some_rows(stride, 1)
        code.place(after)
        code.constant("cmp", LEFT, 0)
        code.jump(again, "g")

    def _some_rows(self, stride: int, count: int) -> None:
        """Rows of y. count: 1, or TOGETHER if all rows of their windows are of x"""
        code, first = self.code, self.now["ph"]
        for total in self.sums[:count]:
            code.vector("vxorps", *[XMM[total.number]] * 3)
        code.op("mov", W, self.slot["w"])
        code.op("mov", LINE, first)
        code.op("mov", ROW, self.slot["kh"], wide=False)
        code.op("lea", NEXT_ROWS, Memory(NEXT_ROW, 0, NEXT_ROW, 2))
        rows, outside, next_row = code.here(), code.label(), code.label()
        code.op("mov", TAP, self.slot["kw"], wide=False)
        code.op("cmp", LINE, LINES)
        code.jump(outside, "ae")
        code.op("mov", X, LINE)
        code.op("imul", X, PITCH)
        code.op("add", X, CORNER)
        self._taps(stride, count)
        code.place(next_row)
        code.op("mov", RAX, self.slot["dh"], wide=False)
        code.op("add", LINE, RAX)
        code.constant("sub", ROW, 1)
        code.jump(rows, "ne")
        self._store(count)
        code.op("mov", RAX, self.slot["sh"], wide=False)
        code.constant("mov", RCX, count, wide=False)
        code.op("imul", RAX, RCX)
        code.op("add", RAX, first)
        code.op("store", RAX, first)
        code.constant("sub", LEFT, count)
        done = code.label()
        code.jump(done)
        code.place(outside)  # pads are multiplied, too: an infinite weight makes NaN
        self._taps(0, count)
        code.jump(next_row)
        code.place(done)

    # ── taps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _taps(self, stride: int, count: int) -> None:
        """Add the products of a row of the kernel for some rows of y. stride: 0 for rows of pads"""
        code = self.code
        code.vector("vmovups", self.place, self.first)
        code.vector("vmovups", self.next_place, self.next_first)
        code.vector("vxorps", *[XMM[self.value.number]] * 3)
        again = code.here()
        if stride:
            self._mask(1, self.masks[0], self.place)
        if stride == 2:
            self._mask(3, self.masks[1], self.next_place)
        code.vector("vbroadcastss", self.weight, Memory(W))
        for row, total in enumerate(self.sums[:count]):
            if stride:
                self._load(stride, row)
            code.vector("vfmadd231ps", total, self.value, self.weight)
        code.op("add", X, STEP)
        code.constant("add", W, 4)
        code.constant("sub", TAP, 1)
        code.jump(again, "ne")

    def _mask(self, number: int, mask: Vector, place: Vector) -> None:
        """Compare columns with the width of x, and advance them by a tap. number: of the mask register, for AVX-512"""
        self.code.vector("vpcmpgtd", ZMM[number] if self.kind is AVX512 else mask, self.limit, place)
        self.code.vector("vpaddd", place, place, self.dilation)

    def _load(self, stride: int, row: int) -> None:
        """Set `value` for a row: of a vector, or every other element of two."""
        code, value = self.code, self.value
        at = Memory(X, 0, (None, NEXT_ROW, NEXT_ROW, NEXT_ROWS)[row], 2 if row == 2 else 1)
        for n, to in enumerate((value, self.next)[:stride]):
            source = at._replace(offset=4 * self.kind.lanes * n)
            if self.kind is AVX512:
                code.vector("vmovups", to.masked((1, 3)[n]), source)
            else:
                code.vector("vmaskmovps", to, self.masks[n], source)
        if stride == 2 and self.kind is AVX512:
            code.vector("vpermt2ps", value, self.order, self.next)
        elif stride == 2:
            code.vector("vshufps", value, value, self.next, number=0x88)
            code.vector("vpermpd", value, value, number=0xD8)

    def _store(self, count: int) -> None:
        """Add the bias, clip, and advance Y. If the sum is NaN or equals a bound, the result is the second operand."""
        code, sums = self.code, self.sums[:count]
        for name, bound in (("vaddps", self.now["bias"]), ("vmaxps", self.slot["low"]), ("vminps", self.slot["high"])):
            code.vector("vbroadcastss", self.weight, bound)
            for total in sums:
                code.vector(name, total, self.weight, total)
        code.op("mov", RAX, self.slot["ow"], wide=False)
        for total in sums:
            if self.kind is AVX512:
                code.vector("store", total.masked(2), Memory(Y))
            else:
                partial, done = code.label(), code.label()
                code.constant("cmp", RAX, self.kind.lanes)
                code.jump(partial, "l")
                code.vector("store", total, Memory(Y))
                code.jump(done)
                code.place(partial)
                code.vector("mask store", total, self.mask, Memory(Y))
                code.place(done)
            code.op("lea", Y, Memory(Y, 0, RAX, 4))
