"""Tiles of machine code for several rows by codes (codes_function.py): codes become int16 once for all rows of a tile.

A tile has up to eight rows, and with AVX-512 two panels. Rows beyond are cut into tiles of nearly equal height. The
float sums of a tile are on the stack, a cache line a row; its integer sums of a block of k are in registers. If a row
has floats in a block, each row's products of that block are added as if the row were alone.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..printer.native_imports import CODES as OPERANDS
from ..schedules.gemv_integers import CODE, HEADER, INITIAL_SUMS
from ..schedules.register_tile import PANEL
from ..schedules.weight_codes import ROUND
from .function import slots
from .kinds import AVX512, Kind
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
    RSP,
    XMM,
    YMM,
    Assembler,
    Memory,
    Vector,
)

CODES, RECORD, DIGITS, STEPS = RSI, R8, R9, R11  # what a block reads; DIGITS: of a round of the record
ROUNDS, BLOCKS_LEFT = RCX, R10
C, RECORD_BYTES, STEP_BYTES = R13, RBP, R14  # of one row
LOW, RIGHT, X, PRODUCT, MASK, TOTAL, WEIGHT, MIDDLE = YMM[:8]
LDA, LDA3, LDA5, LDA7 = RBX, RBP, R12, R13  # multiples of the bytes between records of two rows
NEXT_CODES, NEXT_STEPS = R14, R15  # bytes from a panel to the second one of a tile
BEHIND = slots(OPERANDS, 1)
# What is in them: of the next tile, and the bytes of a record, of a block's steps and of a panel's
A, TO, ROWS, HEIGHT, STACK = (BEHIND[name] for name in ("a", "c", "rows", "cols", "memories"))
OF_RECORD, OF_STEPS, OF_PANEL, LEFT = (BEHIND[name] for name in ("lda", "ldb", "blocks", "last"))
HIGHEST, LINE = 8, 64


class OneRow(Protocol):
    """What tiles need of `CodesFunction`."""

    code: Assembler
    kind: Kind
    slot: dict[str, Memory]
    bits: int
    digits: int

    def load_rounds(self) -> None: ...
    def add_block(self) -> None: ...
    def store(self) -> None: ...


class CodesTiles:
    def __init__(self, of: OneRow) -> None:
        self.of, self.code, self.slot, self.bits, self.digits = of, of.code, of.slot, of.bits, of.digits
        self.is_wide = of.kind is AVX512
        self.panels = 2 if self.is_wide else 1
        self.most = HIGHEST if self.is_wide else HIGHEST // self.digits
        self.mixed, self.block, self.stored = (self.code.label() for _ in range(3))
        self.vectors = of.kind.vectors

    def wide(self, vector: Vector) -> Vector:
        """The register with a tile's columns."""
        return self.vectors[vector.number]

    # ── loops over tiles ─────────────────────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        """For each panel, or two, all rows. The slots of b, steps, c and cols advance."""
        code, slot = self.code, self.slot
        code.op("store", RECORD_BYTES, OF_RECORD)
        code.op("store", STEP_BYTES, OF_STEPS)
        code.op("mov", RAX, slot["blocks"], wide=False)
        code.op("imul", RAX, STEP_BYTES)
        code.op("store", RAX, OF_PANEL)
        code.op("store", RSP, STACK)
        code.constant("sub", RSP, LINE * HIGHEST)
        code.constant("and", RSP, -LINE)
        panels = code.here()
        self._columns()
        self._rows()
        for name, step in (("b", slot["ldb"]), ("steps", OF_PANEL)):
            code.op("mov", RAX, step, wide=False)
            code.shift("shl", RAX, self.panels - 1)
            code.op("add", RAX, slot[name])
            code.op("store", RAX, slot[name])
        code.constant("add", slot["c"], 4 * PANEL * self.panels)
        code.constant("sub", slot["cols"], PANEL * self.panels, wide=False)
        code.jump(panels, "g")
        code.op("mov", RSP, STACK)

    def _columns(self) -> None:
        """Prepare the tiles of these columns."""
        code, slot = self.code, self.slot
        for name, to in (("a", A), ("c", TO)):
            code.op("mov", RAX, slot[name])
            code.op("store", RAX, to)
        code.op("mov", RAX, slot["rows"], wide=False)
        code.op("store", RAX, ROWS)
        if not self.is_wide:
            return
        code.constant("mov", RCX, 2 * PANEL)
        code.op("mov", RAX, slot["cols"], wide=False)
        code.op("cmp", RCX, RAX, wide=False)
        code.op("cmova", RCX, RAX, wide=False)
        code.constant("mov", RAX, -1)
        code.bzhi(RAX, RAX, RCX)
        code.mask(1, RAX)

    def _rows(self) -> None:
        """Cut the rows into tiles."""
        code, slot = self.code, self.slot
        cut, again = code.label(), code.here()
        code.op("mov", RAX, ROWS)
        code.constant("cmp", RAX, self.most)
        code.jump(cut, "be")
        code.constant("add", RAX, 1)
        code.shift("shr", RAX, 1)
        code.constant("mov", RCX, self.most)
        code.op("cmp", RAX, RCX)
        code.op("cmova", RAX, RCX)
        code.place(cut)
        code.op("store", RAX, HEIGHT)
        tiles = {height: code.label() for height in range(2, self.most + 1)}
        for height, tile in tiles.items():
            code.constant("cmp", RAX, height)
            code.jump(tile, "e")
        for height, tile in tiles.items():
            code.place(tile)
            self._tile(height)
            if height != self.most:
                code.jump(self.stored)
        code.place(self.stored)
        code.op("mov", RAX, HEIGHT)
        for at, stride in ((A, slot["lda"]), (TO, slot["ldc"])):
            code.op("mov", RCX, stride, wide=False)
            code.op("imul", RCX, RAX)
            code.op("add", RCX, at)
            code.op("store", RCX, at)
        code.op("mov", RCX, ROWS)
        code.op("sub", RCX, RAX)
        code.op("store", RCX, ROWS)
        code.jump(again, "ne")

    # ── a tile ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tile(self, height: int) -> None:
        code, slot = self.code, self.slot
        self._load_registers(height)
        blocks, mixed, added = code.here(), code.label(), code.label()
        self.of.load_rounds()
        for row in range(height if self.digits == 2 else 0):
            code.constant("cmp", _of_row(RECORD, row), 0, wide=False)
            code.jump(mixed, "e")
        sums = self._sums(height)
        self._multiply(sums)
        self._add(sums)
        code.jump(added)
        if self.digits == 2:
            code.place(mixed)
            code.call(self.mixed)
        code.place(added)
        code.op("add", RECORD, OF_RECORD)
        code.op("add", STEPS, OF_STEPS)
        code.constant("sub", BLOCKS_LEFT, 1)
        code.jump(blocks, "ne")
        code.op("mov", C, TO)
        for row in range(height):
            total = self.wide(TOTAL)
            code.vector("vmovups", total, Memory(RSP, LINE * row))
            if self.is_wide:
                code.vector("store", total.masked(1), Memory(C))
            else:
                self.of.store()
            if row + 1 < height:
                code.op("mov", RAX, slot["ldc"], wide=False)
                code.op("add", C, RAX)

    def _load_registers(self, height: int) -> None:
        code, slot, total = self.code, self.slot, self.wide(TOTAL)
        code.op("mov", CODES, slot["b"])
        code.op("mov", STEPS, slot["steps"])
        code.op("mov", RECORD, A)
        code.op("mov", BLOCKS_LEFT, slot["blocks"], wide=False)
        code.op("mov", LDA, slot["lda"], wide=False)
        code.op("lea", LDA3, Memory(LDA, 0, LDA, 2))
        code.op("lea", LDA5, Memory(LDA, 0, LDA, 4))
        code.op("lea", LDA7, Memory(LDA3, 0, LDA, 4))
        code.vector("vxorps" if not self.is_wide else "vpxord", total, total, total)
        for row in range(height):
            code.vector("store", total, Memory(RSP, LINE * row))
        if self.is_wide:  # the last panel may be alone
            code.constant("mov", RAX, 0)
            code.op("mov", NEXT_CODES, slot["ldb"], wide=False)
            code.op("mov", NEXT_STEPS, OF_PANEL)
            code.constant("cmp", slot["cols"], PANEL, wide=False)
            code.op("cmovle", NEXT_CODES, RAX)
            code.op("cmovle", NEXT_STEPS, RAX)

    def _sums(self, height: int) -> list[list[tuple[Vector, ...]]]:
        """Initialise the integer sums of a block: [row][digit], of several vectors if these are few, which hides the
        latency of dot products."""
        code, all_ = self.code, height * self.digits
        chains = 1 if not self.is_wide or all_ > HIGHEST else 2 if all_ > 3 else 4
        free = iter(self.vectors[16 if self.is_wide else 8 :])
        sums = [[tuple(next(free) for _ in range(chains)) for _ in range(self.digits)] for _ in range(height)]
        for row, digits in enumerate(sums):
            for digit, (first, *more) in enumerate(digits):
                if self.bits == 4:
                    code.vector("vbroadcastss", first, _of_row(RECORD, row, INITIAL_SUMS + 4 * digit))
                for s in more if self.bits == 4 else (first, *more):
                    code.vector("vpxord" if self.is_wide else "vxorps", s, s, s)
        return sums

    def _multiply(self, sums: list[list[tuple[Vector, ...]]]) -> None:
        """Add the products of a block."""
        code = self.code
        code.op("mov", DIGITS, RECORD)
        again = code.here()
        for group in range(4):
            self._load(group)
            for digit in range(self.digits):
                for n, weights in enumerate((LOW, RIGHT)):
                    pair = 2 * group + n
                    for row, digits in enumerate(sums):
                        s = digits[digit][pair % len(digits[digit])]
                        self._dot(s, weights, row, HEADER + ROUND * CODE * digit + 2 * CODE * pair)
        code.constant("add", CODES, ROUND * self.bits)
        code.constant("add", DIGITS, ROUND * CODE * self.digits)
        code.constant("sub", ROUNDS, 1)
        code.jump(again, "ne")

    def _load(self, group: int) -> None:
        """Load the codes of four k: two pairs a column."""
        code, at, low, right = self.code, self.bits * 4 * group, self.wide(LOW), self.wide(RIGHT)
        widen = "vpmovzxbw" if self.bits == 4 else "vpmovsxbw"
        for n, to in enumerate((low, right)[: self.bits // 4]):
            if self.is_wide:
                code.vector("vmovups", XMM[to.number], Memory(CODES, at + 16 * n))
                second = Memory(CODES, at + 16 * n, NEXT_CODES)
                code.vector("vinserti128", YMM[to.number], YMM[to.number], second, number=1)
                code.vector(widen, to, YMM[to.number])
            else:
                code.vector(widen, to, Memory(CODES, at + 16 * n))
        if self.bits == 4:
            code.shift_lanes("vpsrlw", right, low, 4)
            code.vector("vpand", low, low, self.wide(MASK))

    def _dot(self, total: Vector, weights: Vector, row: int, offset: int) -> None:
        code = self.code
        if self.is_wide:
            code.vector("vpdpwssd", total, self.wide(weights), _of_row(DIGITS, row, offset, splat=True))
            return
        code.vector("vbroadcastss", X, _of_row(DIGITS, row, offset))
        code.vector("vpmaddwd", PRODUCT, weights, X)
        code.vector("vpaddd", total, total, PRODUCT)

    def _add(self, sums: list[list[tuple[Vector, ...]]]) -> None:
        """Add a block's sums, scaled, and the parts of the zero points, in the order of one row."""
        code, without, done = self.code, self.code.label(), self.code.label()
        self._load_steps(LOW, 0)
        for digits in sums:
            for first, *more in digits:
                for s in more:
                    code.vector("vpaddd", first, first, s)
        code.test(self.slot["zeros"], 1)
        code.jump(without, "e")
        self._load_steps(RIGHT, 4 * PANEL)
        self._add_rows(sums, zeros=True)
        code.jump(done)
        code.place(without)
        self._add_rows(sums, zeros=False)
        code.place(done)

    def _load_steps(self, to: Vector, offset: int) -> None:
        code, vector = self.code, self.wide(to)
        code.vector("vmovups", to, Memory(STEPS, offset))
        if self.is_wide:
            code.vector("vinsertf64x4", vector, vector, Memory(STEPS, offset, NEXT_STEPS), number=1)

    def _add_rows(self, sums: list[list[tuple[Vector, ...]]], zeros: bool) -> None:
        code = self.code
        x, product, total = map(self.wide, (X, PRODUCT, TOTAL))
        for row, digits in enumerate(sums):
            for whole, s in zip((x, product), digits, strict=False):
                code.vector("vcvtdq2ps", whole, s[0])
            if self.digits == 2:
                code.vector("vfmadd231ps", x, product, self.wide(WEIGHT))
            code.vector("vmulps", x, x, self.wide(LOW))
            code.vector("vmovups", total, Memory(RSP, LINE * row))
            self._add_scaled(total, x, row, 0)
            if zeros:
                self._add_scaled(total, self.wide(RIGHT), row, 4)
            code.vector("store", total, Memory(RSP, LINE * row))

    def _add_scaled(self, total: Vector, by: Vector, row: int, offset: int) -> None:
        """total += by * the number in the header of a row's record."""
        code = self.code
        if self.is_wide:
            code.vector("vfmadd231ps", total, by, _of_row(RECORD, row, offset, splat=True))
        else:
            code.vector("vbroadcastss", PRODUCT, _of_row(RECORD, row, offset))
            code.vector("vfmadd231ps", total, by, PRODUCT)

    # ── blocks with floats ───────────────────────────────────────────────────────────────────────────────────────

    def write_mixed(self) -> None:
        """The function `mixed`, which adds a block row by row."""
        code, sums = self.code, RDI
        code.place(self.mixed)
        code.op("mov", RAX, HEIGHT)
        code.op("store", RAX, LEFT)
        code.push(RECORD)
        code.op("lea", sums, Memory(RSP, 16))
        again = code.here()
        for panel in range(self.panels):
            for register in (CODES, STEPS, ROUNDS):
                code.push(register)
            if panel:
                code.op("add", CODES, NEXT_CODES)
                code.op("add", STEPS, NEXT_STEPS)
            code.vector("vmovups", TOTAL, Memory(sums, 4 * PANEL * panel))
            code.call(self.block)
            code.vector("store", TOTAL, Memory(sums, 4 * PANEL * panel))
            for register in (ROUNDS, STEPS, CODES):
                code.pop(register)
        code.op("add", RECORD, LDA)
        code.constant("add", sums, LINE)
        code.constant("sub", LEFT, 1)
        code.jump(again, "ne")
        code.pop(RECORD)
        code.shift("shl", ROUNDS, (ROUND * self.bits).bit_length() - 1)
        code.op("add", CODES, ROUNDS)
        code.ret()
        code.place(self.block)
        self.of.add_block()
        code.ret()


def _of_row(base: int, row: int, offset: int = 0, **more: Any) -> Memory:
    """The bytes at an offset from `base`, of a row of the tile."""
    if row == 0:
        return Memory(base, offset, **more)
    by, scale = {1: (LDA, 1), 2: (LDA, 2), 3: (LDA3, 1), 4: (LDA, 4), 5: (LDA5, 1), 6: (LDA3, 2), 7: (LDA7, 1)}[row]
    return Memory(base, offset, by, scale, **more)
