"""Machine code of products of few rows by quantised weights of 4 and 8 bits, in integers (schedules/gemv_integers.py).

A vector has the products of a panel's eight columns. Codes become int16 as they are loaded, two k of a column side by
side, and are multiplied by the same two k of a row's record; several rows by tiles (codes_tiles.py). The integer sums
of a block of k are exact, and floats are added in the same order for any number of rows: a row of a batch has the bits
that it has alone. They are also those of WebAssembly, unless a block of a row has floats instead of codes (its step is
0).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ..schedules.gemv_integers import CODE, HEADER, HIGH, INITIAL_SUMS, LARGEST_BLOCK
from ..schedules.register_tile import PANEL
from ..schedules.weight_codes import ROUND
from .codes_tiles import (
    BLOCKS_LEFT,
    CODES,
    DIGITS,
    LOW,
    MASK,
    MIDDLE,
    PRODUCT,
    RECORD,
    RECORD_BYTES,
    RIGHT,
    ROUNDS,
    STEP_BYTES,
    STEPS,
    TOTAL,
    WEIGHT,
    C,
    CodesTiles,
    X,
)
from .function import Function
from .kinds import AVX512, Kind
from .x86 import R8, R9, R15, RAX, RCX, YMM, Memory, Vector

EXTENT, BLOCKS, WORK = 1 << 13, 1 << 16, 1 << 26  # most rows or columns, most blocks of k, most rounds of a call


class CodesFunction(Function):
    """bits: of a code; digits: of an element of A. With AVX-512 it uses VNNI, in vectors of 256 bits."""

    def __init__(self, kind: Kind, windows: bool, bits: int, digits: int) -> None:
        self.bits, self.digits, self.name = bits, digits, f"codes{bits}x{digits}"
        super().__init__(kind, windows)
        self.constants = self.code.label()
        first = 16 if kind is AVX512 else 8  # from 16 on, instructions are AVX-512's
        self.sums = [YMM[first + 4 * digit :][:4] for digit in range(digits)]
        self.tiles = CodesTiles(self)

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        code, slot = self.code, self.slot
        for name, least, most in (
            ("rows", 1, EXTENT), ("cols", 1, EXTENT), ("blocks", 1, BLOCKS), ("rounds", 1, LARGEST_BLOCK // ROUND),
            ("last", 1, LARGEST_BLOCK // ROUND), ("lda", 0, (1 << 31) - 1), ("ldb", 0, (1 << 31) - 1),
            ("ldc", 0, (1 << 31) - 1), ("zeros", 0, 1),
        ):  # fmt: skip
            self.between(name, least, most)
        self._sizes()
        self._rows_before("rows", "lda")
        code.op("mov", RAX, slot["blocks"], wide=False)
        code.op("imul", RAX, RECORD_BYTES)
        self.address("a")
        code.op("mov", RCX, R15)
        code.constant("sub", RCX, 1)
        code.op("mov", RAX, slot["ldb"], wide=False)
        code.op("imul", RCX, RAX)
        code.op("mov", RAX, slot["blocks"], wide=False)
        code.constant("sub", RAX, 1)
        code.op("imul", RAX, R8)
        code.op("mov", R9, slot["last"], wide=False)
        code.op("add", RAX, R9)
        code.shift("shl", RAX, (ROUND * self.bits).bit_length() - 1)
        self.address("b")
        code.op("mov", RCX, slot["blocks"], wide=False)
        code.op("imul", RCX, STEP_BYTES)
        code.op("imul", RCX, R15)
        code.constant("mov", RAX, 0, wide=False)
        self.address("steps")
        self._rows_before("rows", "ldc")
        code.op("mov", RAX, slot["cols"], wide=False)
        code.shift("shl", RAX, 2)
        self.address("c")

    def _sizes(self) -> None:
        """Set the bytes of a record, and of the steps of a panel's block; r15 = the number of panels, r8 = the rounds
        of a block. Decline if the work is too much."""
        code, slot = self.code, self.slot
        code.op("mov", R8, slot["rounds"], wide=False)
        code.op("cmp", R8, slot["last"], wide=False)
        code.jump(self.declined, "b")
        code.op("mov", RECORD_BYTES, R8)
        code.shift("shl", RECORD_BYTES, (ROUND * CODE * self.digits).bit_length() - 1)
        code.constant("add", RECORD_BYTES, HEADER)
        code.op("mov", STEP_BYTES, slot["zeros"], wide=False)
        code.constant("add", STEP_BYTES, 1)
        code.shift("shl", STEP_BYTES, (4 * PANEL).bit_length() - 1)
        code.op("mov", R15, slot["cols"], wide=False)
        code.constant("add", R15, PANEL - 1)
        code.shift("shr", R15, 3)
        code.op("mov", RCX, R8)
        code.op("imul", RCX, R15)
        for name in ("rows", "blocks"):
            code.op("mov", RAX, slot[name], wide=False)
            code.op("imul", RCX, RAX)
        code.constant("cmp", RCX, WORK)
        code.jump(self.declined, "a")

    def _rows_before(self, rows: str, stride: str) -> None:
        """rcx = the bytes from the first to the last row."""
        code = self.code
        code.op("mov", RCX, self.slot[rows], wide=False)
        code.constant("sub", RCX, 1)
        code.op("mov", RAX, self.slot[stride], wide=False)
        code.op("imul", RCX, RAX)

    # ── products ─────────────────────────────────────────────────────────────────────────────────────────────────

    def body(self) -> None:
        """Multiply one row by each panel of the weights, or several rows in tiles (codes_tiles.py)."""
        code = self.code
        several, done = code.label(), code.label()
        code.address(RAX, self.constants)
        for n, register in enumerate((MASK, WEIGHT, MIDDLE)):
            code.vector("vbroadcastss", self.kind.vectors[register.number], Memory(RAX, 4 * n))
        code.constant("cmp", self.slot["rows"], 1, wide=False)
        code.jump(several, "ne")
        self._one_row()
        code.jump(done)
        code.place(several)
        self.tiles.write()
        code.place(done)

    def _one_row(self) -> None:
        code, slot = self.code, self.slot
        code.op("mov", R15, slot["blocks"], wide=False)
        code.op("imul", R15, STEP_BYTES)
        code.op("mov", C, slot["c"])
        panels = code.here()
        self._blocks()
        self.store()
        code.op("mov", RAX, slot["ldb"], wide=False)
        code.op("add", RAX, slot["b"])
        code.op("store", RAX, slot["b"])
        code.op("mov", RAX, slot["steps"])
        code.op("add", RAX, R15)
        code.op("store", RAX, slot["steps"])
        code.constant("add", C, 4 * PANEL)
        code.constant("sub", slot["cols"], PANEL, wide=False)
        code.jump(panels, "g")

    def _blocks(self) -> None:
        """The sums of a row and a panel."""
        code, slot = self.code, self.slot
        code.op("mov", CODES, slot["b"])
        code.op("mov", STEPS, slot["steps"])
        code.op("mov", RECORD, slot["a"])
        code.op("mov", BLOCKS_LEFT, slot["blocks"], wide=False)
        code.vector("vxorps", TOTAL, TOTAL, TOTAL)
        blocks = code.here()
        self.load_rounds()
        self.add_block()
        code.op("add", RECORD, RECORD_BYTES)
        code.op("add", STEPS, STEP_BYTES)
        code.constant("sub", BLOCKS_LEFT, 1)
        code.jump(blocks, "ne")

    def load_rounds(self) -> None:
        """The number of rounds of the next block."""
        code, slot = self.code, self.slot
        code.op("mov", ROUNDS, slot["rounds"], wide=False)
        code.constant("cmp", BLOCKS_LEFT, 1)
        code.op("cmovle", ROUNDS, slot["last"], wide=False)

    def add_block(self) -> None:
        """Add the products of a block to TOTAL. Changes CODES, DIGITS, ROUNDS, and vectors but the constants."""
        code = self.code
        code.op("mov", DIGITS, RECORD)
        for digit, sums in enumerate(self.sums):
            for n, total in enumerate(sums):
                if self.bits == 4 and n == 0:
                    code.vector("vbroadcastss", total, Memory(RECORD, INITIAL_SUMS + 4 * digit))
                else:
                    code.vector("vpxord" if self.kind is AVX512 else "vxorps", total, total, total)
        floats, added = code.label(), code.label()
        if self.digits == 2:
            code.constant("cmp", Memory(RECORD), 0, wide=False)
            code.jump(floats, "e")
        self._rounds(self._group)
        self._add_block()
        if self.digits == 2:
            code.jump(added)
            code.place(floats)
            self._add_floats()
            code.place(added)

    def _rounds(self, group: Callable[[int], None]) -> None:
        """The rounds of a block; `group` writes the code for four k."""
        code = self.code
        again = code.here()
        for n in range(4):
            group(n)
        code.constant("add", CODES, ROUND * self.bits)
        code.constant("add", DIGITS, ROUND * CODE * self.digits)
        code.constant("sub", ROUNDS, 1)
        code.jump(again, "ne")

    def _load(self, group: int) -> None:
        """Load the codes of four k: two pairs a column."""
        code, at = self.code, self.bits * 4 * group
        if self.bits == 4:
            code.vector("vpmovzxbw", LOW, Memory(CODES, at))
            code.shift_lanes("vpsrlw", RIGHT, LOW, 4)
            code.vector("vpand", LOW, LOW, MASK)
        else:
            code.vector("vpmovsxbw", LOW, Memory(CODES, at))
            code.vector("vpmovsxbw", RIGHT, Memory(CODES, at + 16))

    def _group(self, group: int) -> None:
        """Add the products of four k."""
        code = self.code
        self._load(group)
        for digit, sums in enumerate(self.sums):
            for n, weights in enumerate((LOW, RIGHT)):
                pair = 2 * group + n
                total = sums[pair % len(sums)]
                x = Memory(DIGITS, HEADER + ROUND * CODE * digit + 2 * CODE * pair)
                code.vector("vbroadcastss", X, x)
                if self.kind is AVX512:
                    code.vector("vpdpwssd", total, weights, X)
                else:
                    code.vector("vpmaddwd", PRODUCT, weights, X)
                    code.vector("vpaddd", total, total, PRODUCT)

    def _add_block(self) -> None:
        """Add a block's sums, scaled, and the part of the zero points."""
        code = self.code
        for whole, (s, t, u, v) in zip((X, PRODUCT), self.sums, strict=False):
            code.vector("vpaddd", s, s, t)
            code.vector("vpaddd", u, u, v)
            code.vector("vpaddd", s, s, u)
            code.vector("vcvtdq2ps", whole, s)
        if self.digits == 2:
            code.vector("vfmadd231ps", X, PRODUCT, WEIGHT)
        code.vector("vmulps", X, X, Memory(STEPS))
        code.vector("vbroadcastss", LOW, Memory(RECORD))
        code.vector("vfmadd231ps", TOTAL, X, LOW)
        code.vector("vbroadcastss", LOW, Memory(RECORD, 4))
        self._add_zeros(LOW)

    def _add_zeros(self, of_row: Vector) -> None:
        """Add the part of the zero points. of_row: the sum of the row's block"""
        code, done = self.code, self.code.label()
        code.test(self.slot["zeros"], 1)
        code.jump(done, "e")
        code.vector("vfmadd231ps", TOTAL, of_row, Memory(STEPS, 4 * PANEL))
        code.place(done)

    def _add_floats(self) -> None:
        """Add the products of a block of a row that has floats."""
        code, sums, of_row = self.code, self.sums[0], YMM[8 if self.kind is AVX512 else 12]
        for total in (*sums, of_row):
            code.vector("vpxord" if total.number > 15 else "vxorps", total, total, total)

        def group(n: int) -> None:
            self._load(n)
            for k, total in enumerate(sums):
                pair, x = (LOW, RIGHT)[k // 2], PRODUCT
                if k % 2 == 0:
                    code.shift_lanes("vpslld", X, pair, 16)
                code.shift_lanes("vpsrad", X, pair if k % 2 else X, 16)
                code.vector("vcvtdq2ps", X, X)
                if self.bits == 4:
                    code.vector("vaddps", X, X, MIDDLE)
                code.vector("vbroadcastss", x, Memory(DIGITS, HEADER + 4 * (4 * n + k)))
                code.vector("vfmadd231ps", total, X, x)
                code.vector("vaddps", of_row, of_row, x)

        self._rounds(group)
        for total in sums[1:]:
            code.vector("vaddps", sums[0], sums[0], total)
        code.vector("vfmadd231ps", TOTAL, sums[0], Memory(STEPS))
        self._add_zeros(of_row)

    def store(self) -> None:
        """Store the columns of TOTAL that exist."""
        code = self.code
        partial, done = code.label(), code.label()
        code.constant("cmp", self.slot["cols"], PANEL, wide=False)
        code.jump(partial, "l")
        code.vector("store", TOTAL, Memory(C))
        code.jump(done)
        code.place(partial)
        code.address(RAX, self.constants)
        code.op("mov", RCX, self.slot["cols"], wide=False)
        code.shift("shl", RCX, 2)
        code.op("sub", RAX, RCX)
        code.vector("vmovups", X, Memory(RAX, 12 + 4 * PANEL))
        code.vector("mask store", TOTAL, X, Memory(C))
        code.place(done)

    def data(self) -> None:
        if self.digits == 2:
            self.tiles.write_mixed()
        self.code.place(self.constants)
        self.code.data(struct.pack("<Iff16i", 0x000F000F, HIGH, -8.0, *[-1] * PANEL, *[0] * PANEL))
