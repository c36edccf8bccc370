"""Register tiles in machine code: up to 12 rows (AVX2: 6) times two vectors of columns, with AVX2 also one or two rows
times four, and one row of floats times eight vectors of 256 bits. Sums are floats, or int32 of pairs of int16 or of
four bytes along k (schedules/arithmetic.py).

A tile adds the products of one k after another, so that an element does not depend on the place of its tile. Panels
that do not exist repeat the last one. Columns past the end are computed and not stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ..printer.native_imports import BLOCK, BY_COLUMN, BY_ROW, HAS_HIGH, HAS_LOW
from ..schedules.arithmetic import Arithmetic
from ..schedules.register_tile import FIRST, LAST, LINE, PANEL
from .function import slots
from .kinds import AVX2, AVX512, Kind
from .x86 import (
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RSI,
    YMM,
    Assembler,
    Label,
    Memory,
    Vector,
)  # fmt: skip

UNROLLED = 4  # steps of k
ROW_COLUMNS = 8 * PANEL  # of a tile of one row

# Operands are 16 bytes apart; the second half of each is free for what changes from tile to tile.
SLOT, NOW = slots(BLOCK), slots(BLOCK, 1)
# Registers of a tile
ROWS, STRIDE, STRIDES = (R8, R11, RBX), R9, R10  # rows 0, 4 and 8 of A; bytes between rows, and of three rows
# Those after the fourth are of tiles of one row
PANELS, COUNT, C, C_STRIDE = (RSI, RCX, RBP, R12, R11, RBX, R9, R10), R13, R14, R15
STEP, STEPS = RAX, RDI  # bytes between the k of a panel, and between three


class Tile:
    """A function that computes rows times `count` vectors of C, whose addresses and strides are in registers. copies:
    it also writes the vectors of B that it reads to the scratch, two for each k"""

    def __init__(
        self, code: Assembler, kind: Kind, arithmetic: Arithmetic, rows: int, count: int, copies: bool = False
    ) -> None:  # fmt: skip
        self.code, self.kind, self.arithmetic, self.count, self.copies = code, kind, arithmetic, count, copies
        self.floats = arithmetic is Arithmetic.FUSED
        self.b = kind.vectors[:count]
        self.spare = kind.vectors[-2:] if kind is AVX512 else kind.vectors[14:16]
        self.width = count * kind.lanes  # columns
        numbers = [max(2, count) + n for n in range(rows * count)]
        self.sums = [[kind.vectors[n] for n in numbers[count * r : count * (r + 1)]] for r in range(rows)]

    def write(self) -> None:
        code = self.code
        for total in self._all():
            code.vector("vpxord" if self.kind is AVX512 else "vxorps", total, total, total)
        self._prefetch()
        if self.copies:
            code.op("mov", C, SLOT["scratch"])
        self._all_k()
        if self.copies:
            code.op("mov", C, NOW["c"])
        self._mask()
        done = code.label()
        code.test(SLOT["flags"], FIRST)
        code.jump(done, "ne")
        self._add_before()
        code.place(done)
        if self.floats:
            self._epilogue()
        self._store()
        code.ret()

    def _mask(self) -> None:
        """Load AVX2's masks of columns."""
        if self.kind is AVX2:
            self.code.op("mov", RAX, NOW["cols"])
            for n, mask in enumerate(self.b):
                self.code.vector("vmovups", mask, Memory(RAX, 32 * n))

    def _prefetch(self) -> None:
        """Load the lines of C to the right, which are written after the other rows of these columns."""
        self.code.op("mov", RAX, C)
        for _ in self.sums:
            for n in range(4 * self.width // LINE):
                self.code.prefetch_to_write(Memory(RAX, 4 * self.width + LINE * n))
            self.code.op("add", RAX, C_STRIDE)

    def _all(self) -> list[Vector]:
        return [total for row in self.sums for total in row]

    # ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _all_k(self) -> None:
        code = self.code
        rest, done = code.label(), code.label()
        code.op("mov", STEP, NOW["step"], wide=False)
        code.op("lea", STEPS, Memory(STEP, 0, STEP, 2))
        code.constant("sub", COUNT, UNROLLED)
        code.jump(rest, "l")
        many = code.here()
        for u in range(UNROLLED):
            self._step(u)
        self._advance(UNROLLED)
        code.constant("sub", COUNT, UNROLLED)
        code.jump(many, "ge")
        code.place(rest)
        code.constant("add", COUNT, UNROLLED)
        code.jump(done, "e")
        one = code.here()
        self._step(0)
        self._advance(1)
        code.constant("sub", COUNT, 1)
        code.jump(one, "ne")
        code.place(done)

    def _step(self, u: int) -> None:
        """Add the products of the u-th k after the pointers."""
        code = self.code
        panels = [self._multiple(panel, u, STEP, STEPS) for panel in PANELS]
        for n, b in enumerate(self.b):
            if self.kind is AVX2:
                code.vector("vmovups", b, panels[n])
            else:
                code.vector("vmovups", YMM[b.number], panels[2 * n])
                code.vector("vinsertf64x4", b, b, panels[2 * n + 1], number=1)
            if self.copies:
                code.vector("store", b, Memory(C, 4 * self.kind.lanes * (2 * u + n)))
        for r, row in enumerate(self.sums):
            x = self._multiple(ROWS[r // 4], r % 4, STRIDE, STRIDES)._replace(offset=4 * u)
            if self.floats and self.kind is AVX512:
                for total, b in zip(row, self.b, strict=True):
                    code.vector("vfmadd231ps", total, b, x._replace(splat=True))
                continue
            code.vector("vbroadcastss", self.spare[0], x)
            for total, b in zip(row, self.b, strict=True):
                self._multiply_add(total, b)

    def _multiply_add(self, total: Vector, b: Vector) -> None:
        """Add the products of a vector of B and the element of A, which is in the first spare register."""
        code, (x, product) = self.code, self.spare
        if self.floats:
            code.vector("vfmadd231ps", total, b, x)
        elif self.arithmetic is Arithmetic.INT8_ROWS:
            code.vector("vpdpbusd", total, x, b)  # unsigned by signed
        elif self.arithmetic is Arithmetic.INT8:
            code.vector("vpdpbusd", total, b, x)
        elif self.kind is AVX512:
            code.vector("vpdpwssd", total, b, x)
        else:
            code.vector("vpmaddwd", product, b, x)
            code.vector("vpaddd", total, total, product)

    def _advance(self, steps: int) -> None:
        """Move the pointers by some k."""
        for base in ROWS[: -(-len(self.sums) // 4)]:
            self.code.constant("add", base, 4 * steps)
        for panel in PANELS[: self.width // PANEL]:
            self.code.op("lea", panel, Memory(panel, 0, STEP, steps))
        if self.copies:
            self.code.constant("add", C, 8 * self.kind.lanes * steps)

    def _multiple(self, base: int, times: int, stride: int, three: int) -> Memory:
        """base + times * stride. times: up to 3; three: the register of three strides"""
        return Memory(base, 0, (None, stride, stride, three)[times], 2 if times == 2 else 1)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self, to: Vector, n: int, source: Memory) -> None:
        """Load what exists of the n-th vector of a row of C; 0 for other columns."""
        if self.kind is AVX2:
            self.code.vector("vmaskmovps", to, self.b[n], source)
        else:
            self.code.vector("vmovups", to.masked(n + 1), source)

    def _add_before(self) -> None:
        """Add what C has."""
        code, spare, add = self.code, self.spare[0], "vaddps" if self.floats else "vpaddd"
        code.op("mov", RAX, C)
        for row in self.sums:
            for n, total in enumerate(row):
                self._load(spare, n, Memory(RAX, 4 * self.kind.lanes * n))
                code.vector(add, total, total, spare)
            code.op("add", RAX, C_STRIDE)

    def _epilogue(self) -> None:
        """Add the bias and clip, in the last block of k."""
        code, spare, done = self.code, self.spare[0], self.code.label()
        code.test(SLOT["flags"], LAST)
        code.jump(done, "e")
        code.op("mov", RDI, SLOT["bias"])
        after = self._if(BY_ROW)
        code.op("mov", RAX, NOW["row"], wide=False)
        for r, row in enumerate(self.sums):
            code.vector("vbroadcastss", spare, Memory(RDI, 4 * r, RAX, 4))
            for total in row:
                code.vector("vaddps", total, total, spare)
        code.place(after)
        after = self._if(BY_COLUMN)
        code.op("mov", RAX, SLOT["col"], wide=False)
        for n in range(self.count):
            self._load(spare, n, Memory(RDI, 4 * self.kind.lanes * n, RAX, 4))
            for row in self.sums:
                code.vector("vaddps", row[n], row[n], spare)
        code.place(after)
        # If the sum is NaN, or equals the bound, the result is the second operand.
        for bit, name, bound in ((HAS_LOW, "vmaxps", "low"), (HAS_HIGH, "vminps", "high")):
            after = self._if(bit)
            code.vector("vbroadcastss", spare, SLOT[bound])
            for total in self._all():
                code.vector(name, total, spare, total)
            code.place(after)
        code.place(done)

    def _if(self, bit: int) -> Label:
        """Jump to the label, which the caller places, if the epilogue lacks a part."""
        label = self.code.label()
        self.code.test(SLOT["epilogue"], bit)
        self.code.jump(label, "e")
        return label

    def _store(self) -> None:
        code = self.code
        if self.kind is AVX512:
            self._store_rows(lambda n, total, to: code.vector("store", total.masked(n + 1), to))
            return
        partial, done = code.label(), code.label()
        code.constant("cmp", SLOT["cols"], self.width, wide=False)
        code.jump(partial, "l")
        self._store_rows(lambda n, total, to: code.vector("store", total, to))
        code.jump(done)
        code.place(partial)  # masked stores take many cycles on some processors
        self._store_rows(lambda n, total, to: code.vector("mask store", total, self.b[n], to))
        code.place(done)

    def _store_rows(self, store: Callable[[int, Vector, Memory], None]) -> None:
        for row in self.sums:
            for n, total in enumerate(row):
                store(n, total, Memory(C, 4 * self.kind.lanes * n))
            self.code.op("add", C, C_STRIDE)


class RowTile(Tile):
    """One row of floats times ROW_COLUMNS columns, all of which exist: enough sums to hide the latency of additions."""

    def __init__(self, code: Assembler) -> None:
        super().__init__(code, AVX2, Arithmetic.FUSED, 1, ROW_COLUMNS // PANEL)
        self.sums = [list(YMM[: self.count])]

    def _step(self, u: int) -> None:
        x = self.spare[0]
        self.code.vector("vbroadcastss", x, Memory(ROWS[0], 4 * u))
        for total, panel in zip(self.sums[0], PANELS, strict=True):
            self.code.vector("vfmadd231ps", total, x, self._multiple(panel, u, STEP, STEPS))

    def _load(self, to: Vector, n: int, source: Memory) -> None:
        self.code.vector("vmovups", to, source)

    def _mask(self) -> None:
        """No column needs one."""

    def _store(self) -> None:
        self._store_rows(lambda n, total, to: self.code.vector("store", total, to))
