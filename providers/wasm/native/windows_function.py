"""Machine code that gathers windows for the implicit product of convolutions (schedules/conv.py), for AVX2 and AVX-512.

For up to WINDOW_COLUMNS output positions it writes a row [k] of x's elements for each channel and tap, which the block
function then reads in place. Positions of one row of y are a vector, which for each tap has one mask for all channels:
columns outside of x are 0. Two loads with a shuffle if the stride is 2.
"""

from __future__ import annotations

import struct

from ..printer.native_imports import FUNCTIONS, WINDOW_COLUMNS, WINDOW_STEP
from .depthwise_function import DILATION, EXTENT, SIGN, TAPS
from .function import Function, slots
from .kinds import AVX512, Kind
from .x86 import R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RSI, XMM, ZMM, Memory, Vector

ROWS = 1 << 17  # most rows of a call

X, TO, CHANNEL, TAP, KERNEL_ROW, LINE = R8, R9, R10, R11, R12, R13  # of the inner loops; LINE: the row of x
WINDOW, ROW, PLANE, CHANNEL_STEP, STEP = R14, R15, RBX, RBP, RSI  # of x, of the result; bytes between channels, taps


class WindowsFunction(Function):
    name = "windows"

    def __init__(self, kind: Kind, windows: bool) -> None:
        super().__init__(kind, windows)
        self.now = slots(FUNCTIONS[self.name].operands, 1)
        self.constants = self.code.label()
        (
            self.value, self.next, self.place, self.next_place, self.first, self.next_first, self.limit, self.dilation,
            self.zero, self.order, self.mask, self.next_mask,
        ) = kind.vectors[:12]  # fmt: skip

    def check(self) -> None:
        code, slot = self.code, self.slot
        for name, most in (
            ("channels", EXTENT), ("ih", EXTENT), ("iw", EXTENT), ("ow", EXTENT), ("kh", TAPS), ("kw", TAPS),
            ("sh", TAPS), ("sw", 2), ("dh", DILATION), ("dw", DILATION), ("cols", WINDOW_COLUMNS),
        ):  # fmt: skip
            self.between(name, 1, most)
        for name in ("ph", "pw", "oy", "ox"):
            self.between(name, 0, EXTENT)
        code.op("cmp", RAX, slot["ow"], wide=False)  # rax is ox
        code.jump(self.declined, "ae")
        for name, extents, size in (("x", ("ih", "iw"), 4), ("to", ("kh", "kw"), WINDOW_STEP)):
            code.op("mov", RCX, slot["channels"], wide=False)
            for extent in extents:
                code.op("mov", RAX, slot[extent], wide=False)
                code.op("imul", RCX, RAX)
            if name == "to":
                code.constant("cmp", RCX, ROWS)
                code.jump(self.declined, "a")
            code.constant("mov", RAX, size, wide=False)
            code.op("imul", RCX, RAX)
            code.constant("mov", RAX, 0, wide=False)
            self.address(name)

    def body(self) -> None:
        """For each vector of positions, all taps."""
        code, slot, now = self.code, self.slot, self.now
        self._start()
        again, same_row, done = code.here(), code.label(), code.label()
        self._take()
        self._place()
        self._kernel()
        code.op("mov", RAX, now["cols"])
        code.op("mov", RCX, slot["to"])
        code.op("lea", RCX, Memory(RCX, 0, RAX, 4))
        code.op("store", RCX, slot["to"])
        code.op("mov", RCX, slot["ox"], wide=False)
        code.op("add", RCX, RAX)
        code.op("store", RCX, slot["ox"], wide=False)
        code.op("cmp", RCX, slot["ow"], wide=False)
        code.jump(same_row, "ne")
        code.constant("mov", slot["ox"], 0, wide=False)
        code.constant("add", slot["oy"], 1, wide=False)
        code.place(same_row)
        code.op("mov", RCX, slot["cols"], wide=False)
        code.op("sub", RCX, RAX)
        code.jump(done, "e")
        code.op("store", RCX, slot["cols"], wide=False)
        code.jump(again)
        code.place(done)

    def data(self) -> None:
        self.code.place(self.constants)
        self.code.data(struct.pack("<32i", *range(32)))
        self.code.data(struct.pack("<16i", *range(0, 32, 2)))

    def _start(self) -> None:
        """Set what is the same for all positions."""
        code, slot = self.code, self.slot
        code.vector("vbroadcastss", self.dilation, slot["dw"])
        code.vector("vxorps", *[XMM[self.zero.number]] * 3)
        code.op("mov", RAX, slot["iw"], wide=False)
        code.op("lea", RCX, Memory(RAX, SIGN))
        code.op("store", RCX, self.now["iw"], wide=False)
        code.vector("vbroadcastss", self.limit, self.now["iw"])
        code.op("mov", PLANE, slot["ih"], wide=False)
        code.op("imul", PLANE, RAX)
        code.shift("shl", PLANE, 2)
        code.op("mov", STEP, slot["dw"], wide=False)
        code.shift("shl", STEP, 2)
        code.op("mov", CHANNEL_STEP, slot["kh"], wide=False)
        code.op("mov", RAX, slot["kw"], wide=False)
        code.op("imul", CHANNEL_STEP, RAX)
        code.constant("mov", RAX, WINDOW_STEP, wide=False)
        code.op("imul", CHANNEL_STEP, RAX)
        if self.kind is AVX512:
            code.address(RAX, self.constants)
            code.vector("vmovups", self.order, Memory(RAX, 4 * 32))

    def _take(self) -> None:
        """Set the number of positions, those of a row of y that are left, at most a vector; AVX-512 stores no others,
        AVX2 what is behind them in a row of the result."""
        code, slot = self.code, self.slot
        code.op("mov", RAX, slot["ow"], wide=False)
        code.op("mov", RCX, slot["ox"], wide=False)
        code.op("sub", RAX, RCX)
        code.op("mov", RCX, slot["cols"], wide=False)
        code.op("cmp", RAX, RCX)
        code.op("cmova", RAX, RCX)
        code.constant("mov", RCX, self.kind.lanes, wide=False)
        code.op("cmp", RAX, RCX)
        code.op("cmova", RAX, RCX)
        code.op("store", RAX, self.now["cols"])
        if self.kind is AVX512:
            code.constant("mov", RCX, -1, wide=False)
            code.bzhi(RCX, RCX, RAX)
            code.mask(2, RCX)

    def _place(self) -> None:
        """Set the first row and column of x, its address in `to`'s second half, and the vectors of columns."""
        code, slot, now = self.code, self.slot, self.now
        code.op("mov", LINE, slot["oy"], wide=False)
        code.op("mov", RAX, slot["sh"], wide=False)
        code.op("imul", LINE, RAX)
        code.op("mov", RAX, slot["ph"], wide=False)
        code.op("sub", LINE, RAX)
        code.op("mov", RAX, slot["ox"], wide=False)
        code.op("mov", RCX, slot["sw"], wide=False)
        code.op("imul", RAX, RCX)
        code.op("mov", RCX, slot["pw"], wide=False)
        code.op("sub", RAX, RCX)
        code.op("lea", RCX, Memory(RAX, SIGN))
        code.op("store", RCX, now["pw"], wide=False)
        code.shift("shl", RAX, 2)
        code.op("add", RAX, slot["x"])
        code.op("store", RAX, now["to"])
        code.address(RAX, self.constants)
        code.vector("vbroadcastss", self.first, now["pw"])
        code.vector("vpaddd", self.next_first, self.first, Memory(RAX, 4 * self.kind.lanes))
        code.vector("vpaddd", self.first, self.first, Memory(RAX))

    def _kernel(self) -> None:
        """All taps of a vector of positions."""
        code, slot = self.code, self.slot
        code.op("mov", ROW, slot["to"])
        code.op("mov", KERNEL_ROW, slot["kh"], wide=False)
        rows = code.here()
        code.op("mov", WINDOW, slot["iw"], wide=False)
        code.shift("shl", WINDOW, 2)
        code.op("imul", WINDOW, LINE)
        code.op("add", WINDOW, self.now["to"])
        code.vector("vmovups", self.place, self.first)
        code.vector("vmovups", self.next_place, self.next_first)
        code.op("mov", TAP, slot["kw"], wide=False)
        taps, outside, two, after = code.here(), code.label(), code.label(), code.label()
        code.op("mov", X, WINDOW)
        code.op("mov", TO, ROW)
        code.op("mov", CHANNEL, slot["channels"], wide=False)
        code.op("mov", RAX, slot["ih"], wide=False)
        code.op("cmp", LINE, RAX)
        code.jump(outside, "ae")
        self._mask(1, self.mask, self.place)
        self._mask(3, self.next_mask, self.next_place)
        code.constant("cmp", slot["sw"], 2, wide=False)
        code.jump(two, "e")
        self._channels(1)
        code.jump(after)
        code.place(two)
        self._channels(2)
        code.jump(after)
        code.place(outside)
        self._channels(0)
        code.place(after)
        code.op("add", WINDOW, STEP)
        code.constant("add", ROW, WINDOW_STEP)
        code.constant("sub", TAP, 1)
        code.jump(taps, "ne")
        code.op("mov", RAX, slot["dh"], wide=False)
        code.op("add", LINE, RAX)
        code.constant("sub", KERNEL_ROW, 1)
        code.jump(rows, "ne")

    def _mask(self, number: int, mask: Vector, place: Vector) -> None:
        """Compare columns with the width of x, and advance them by a tap. number: of the mask register, for AVX-512"""
        self.code.vector("vpcmpgtd", ZMM[number] if self.kind is AVX512 else mask, self.limit, place)
        self.code.vector("vpaddd", place, place, self.dilation)

    def _channels(self, stride: int) -> None:
        """All channels of a tap. stride: 0 for zeros"""
        code, value = self.code, self.value if stride else self.zero
        again = code.here()
        if stride:
            self._load(value, 1, self.mask, 0)
        if stride == 2:
            self._load(self.next, 3, self.next_mask, 4 * self.kind.lanes)
            if self.kind is AVX512:
                code.vector("vpermt2ps", value, self.order, self.next)
            else:
                code.vector("vshufps", value, value, self.next, number=0x88)
                code.vector("vpermpd", value, value, number=0xD8)
        code.vector("store", value.masked(2) if self.kind is AVX512 else value, Memory(TO))
        code.op("add", X, PLANE)
        code.op("add", TO, CHANNEL_STEP)
        code.constant("sub", CHANNEL, 1)
        code.jump(again, "ne")

    def _load(self, to: Vector, number: int, mask: Vector, offset: int) -> None:
        if self.kind is AVX512:
            self.code.vector("vmovups", to.masked(number), Memory(X, offset))
        else:
            self.code.vector("vmaskmovps", to, mask, Memory(X, offset))
