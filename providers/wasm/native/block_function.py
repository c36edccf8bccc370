"""Machine code of block functions over packed panels (schedules/register_tile.py), for AVX2 and AVX-512."""

from __future__ import annotations

import struct

from ..printer.native_imports import BLOCKS, BY_COLUMN, BY_ROW
from ..schedules.arithmetic import Arithmetic
from ..schedules.register_tile import PANEL
from .function import Function
from .kinds import AVX2, AVX512, Kind
from .tiles import C_STRIDE, COUNT, NOW, PANELS, ROW_COLUMNS, ROWS, SLOT, STRIDE, STRIDES, C, RowTile, Tile
from .x86 import R8, RAX, RBX, RCX, RDI, Label, Memory

EXTENT, LENGTH, WORK = 1 << 13, 1 << 20, 1 << 30  # most rows or columns, most k, and most products of a call
# With AVX2, two vectors of one or two rows are too few sums to hide the latency of additions.
WIDE_ROWS, WIDE = 2, 4


class BlockFunction(Function):
    """Writes the function of an arithmetic: checks, loops, tiles."""

    def __init__(self, kind: Kind, windows: bool, arithmetic: Arithmetic = Arithmetic.FUSED) -> None:
        self.arithmetic, self.name = arithmetic, BLOCKS[arithmetic.name]
        super().__init__(kind, windows)
        self.masks, self.row, self.wide, self.dispatch, self.copying = (self.code.label() for _ in range(5))

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Replace addresses of operands by those of the host, if all of an operand's bytes are in its memory."""
        code = self.code
        self._check_extents()
        self._rows_before("rows", "lda")
        self._bytes(2, "k")
        self.address("a")
        code.op("mov", RCX, SLOT["cols"], wide=False)
        code.constant("add", RCX, PANEL - 1)
        code.shift("shr", RCX, 3)
        self._rows_before("", "ldb")
        code.op("mov", R8, RCX)
        self._rows_before("k", "step")
        code.op("add", RCX, R8)
        code.constant("mov", RAX, 4 * PANEL)
        self.address("b")
        self._rows_before("rows", "ldc")
        self._bytes(2, "cols")
        self.address("c")
        without = code.label()
        code.op("mov", RAX, SLOT["scratch"], wide=False)
        code.op("store", RAX, SLOT["scratch"])  # all 64 bits
        code.constant("cmp", RAX, 0, wide=False)
        code.jump(without, "e")
        code.constant("mov", RCX, 0, wide=False)
        self._bytes((8 * self.kind.lanes).bit_length() - 1, "k")
        self.address("scratch")
        code.place(without)
        done, by_column = code.label(), code.label()
        code.op("mov", RBX, SLOT["epilogue"], wide=False)
        code.constant("and", RBX, BY_ROW | BY_COLUMN, wide=False)
        code.jump(done, "e")
        code.constant("mov", RCX, 0, wide=False)
        self._bytes(2, "row", "rows")
        code.constant("cmp", RBX, BY_ROW, wide=False)
        code.jump(by_column, "e")
        self._bytes(2, "col", "cols")
        code.constant("cmp", RBX, BY_COLUMN, wide=False)
        code.jump(self.declined, "ne")
        code.place(by_column)
        self.address("bias")
        code.place(done)

    def _check_extents(self) -> None:
        """Numbers of 32 bits, not negative, and few enough: sums and products below do not overflow in 64 bits."""
        code = self.code
        code.op("mov", RAX, SLOT["lda"], wide=False)
        for name in ("ldb", "ldc", "row", "col", "step"):
            code.op("or", RAX, SLOT[name], wide=False)
        code.constant("cmp", RAX, 0, wide=False)
        code.jump(self.declined, "l")
        code.op("mov", RCX, SLOT["k"], wide=False)
        code.constant("cmp", RCX, LENGTH, wide=False)
        code.jump(self.declined, "a")
        for name in ("rows", "cols"):
            code.op("mov", RAX, SLOT[name], wide=False)
            code.op("imul", RCX, RAX)
            code.constant("sub", RAX, 1, wide=False)
            code.constant("cmp", RAX, EXTENT, wide=False)
            code.jump(self.declined, "ae")
        code.constant("cmp", RCX, WORK)
        code.jump(self.declined, "a")

    def _rows_before(self, rows: str, stride: str) -> None:
        """rcx = the bytes from the first to the last row. rows: their number, "" if rcx has it"""
        code = self.code
        if rows:
            code.op("mov", RCX, SLOT[rows], wide=False)
        code.constant("sub", RCX, 1)
        code.op("mov", RAX, SLOT[stride], wide=False)
        code.op("imul", RCX, RAX)

    def _bytes(self, shift: int, *names: str) -> None:
        """rax = the sum of operands, shifted."""
        code = self.code
        code.op("mov", RAX, SLOT[names[0]], wide=False)
        for name in names[1:]:
            code.op("add", RAX, SLOT[name], wide=False)  # below 2**31 + EXTENT
        code.shift("shl", RAX, shift)

    # ── loops over tiles ─────────────────────────────────────────────────────────────────────────────────────────

    def body(self) -> None:
        """For each two vectors of columns, all rows. First the tiles of one row of floats, while enough columns are
        left, and with AVX2 four vectors of few rows, while more than two are left. The slots of b, c, cols and col
        advance."""
        code = self.code
        code.op("mov", STRIDE, SLOT["lda"], wide=False)
        code.op("lea", STRIDES, Memory(STRIDE, 0, STRIDE, 2))
        code.op("mov", C_STRIDE, SLOT["ldc"], wide=False)
        usual, done = code.label(), code.label()
        if self.arithmetic is Arithmetic.FUSED:
            several = code.label()
            code.constant("cmp", SLOT["rows"], 1, wide=False)
            code.jump(several, "ne")
            again = code.here()
            code.constant("cmp", SLOT["cols"], ROW_COLUMNS, wide=False)
            code.jump(several, "l")
            self._columns(ROW_COLUMNS, self.row)
            code.jump(again, "g")
            code.jump(done)
            code.place(several)
        if self.kind is AVX2:
            code.constant("cmp", SLOT["rows"], WIDE_ROWS, wide=False)
            code.jump(usual, "a")
            again = code.here()
            code.constant("cmp", SLOT["cols"], 2 * self.kind.lanes, wide=False)
            code.jump(usual, "le")
            self._columns(WIDE * self.kind.lanes, self.wide)
            code.jump(again, "g")
            code.jump(done)
        code.place(usual)
        again = code.here()
        self._columns(2 * self.kind.lanes)
        code.jump(again, "g")
        code.place(done)

    def _columns(self, width: int, function: Label | None = None) -> None:
        """Compute some columns, by a function of all rows if there is one, and advance; the flags say whether columns
        are left."""
        code = self.code
        self._mask_columns(width)
        for name in ("a", "c", "rows", "row", "b", "ldb", "step"):
            code.op("mov", RAX, SLOT[name])
            code.op("store", RAX, NOW[name])
        if function is not None:
            self._load_registers(width)
            code.op("mov", RAX, SLOT["rows"], wide=False)
            code.call(function)
        else:
            self._rows()
        code.op("mov", RAX, SLOT["ldb"], wide=False)
        code.shift("shl", RAX, (width // PANEL).bit_length() - 1)
        code.op("add", RAX, SLOT["b"])
        code.op("store", RAX, SLOT["b"])
        code.constant("add", SLOT["c"], 4 * width)
        code.constant("add", SLOT["col"], width, wide=False)
        code.constant("sub", SLOT["cols"], width, wide=False)

    def _mask_columns(self, width: int) -> None:
        """Prepare the masks of columns that exist: of AVX-512 in k1 and k2, else the address of vectors."""
        code = self.code
        code.op("mov", RCX, SLOT["cols"], wide=False)
        code.constant("mov", RAX, width, wide=False)
        code.op("cmp", RCX, RAX, wide=False)
        code.op("cmova", RCX, RAX, wide=False)
        if self.kind is AVX512:
            code.constant("mov", RAX, -1, wide=False)
            code.bzhi(RAX, RAX, RCX)
            code.mask(1, RAX)
            code.shift("shr", RAX, self.kind.lanes, wide=False)
            code.mask(2, RAX)
        else:
            code.op("sub", RAX, RCX)
            code.address(RCX, self.masks)
            code.op("lea", RAX, Memory(RCX, 4 * (WIDE * self.kind.lanes - width), RAX, 4))
            code.op("store", RAX, NOW["cols"])

    def _rows(self) -> None:
        """Cut the rows into full tiles and two equal ones, and compute these for two vectors of columns."""
        code, full = self.code, self.kind.rows
        again, cut, advance = code.label(), code.label(), code.label()
        code.constant("cmp", SLOT["scratch"], 0)
        code.jump(again, "e")
        code.constant("cmp", NOW["rows"], full, wide=False)
        code.jump(again, "le")
        code.constant("mov", NOW["k"], full)
        self._load_registers(2 * self.kind.lanes)
        code.constant("mov", RAX, full, wide=False)
        code.call(self.copying)
        code.op("mov", RAX, SLOT["scratch"])
        code.op("store", RAX, NOW["b"])
        code.constant("mov", NOW["ldb"], 4 * PANEL)
        code.constant("mov", NOW["step"], 8 * self.kind.lanes)
        code.jump(advance)
        code.place(again)
        code.op("mov", RAX, NOW["rows"], wide=False)
        code.constant("cmp", RAX, full, wide=False)
        code.jump(cut, "be")
        code.constant("add", RAX, 1, wide=False)
        code.shift("shr", RAX, 1, wide=False)
        code.constant("mov", RCX, full, wide=False)
        code.op("cmp", RAX, RCX, wide=False)
        code.op("cmova", RAX, RCX, wide=False)
        code.place(cut)
        code.op("store", RAX, NOW["k"])
        self._load_registers(2 * self.kind.lanes)
        code.call(self.dispatch)
        code.place(advance)
        code.op("mov", RAX, NOW["k"])
        for name, stride in (("a", STRIDE), ("c", C_STRIDE)):
            code.op("mov", RCX, RAX)
            code.op("imul", RCX, stride)
            code.op("add", RCX, NOW[name])
            code.op("store", RCX, NOW[name])
        code.op("mov", RCX, NOW["row"], wide=False)
        code.op("add", RCX, RAX, wide=False)
        code.op("store", RCX, NOW["row"], wide=False)
        code.op("mov", RCX, NOW["rows"], wide=False)
        code.op("sub", RCX, RAX, wide=False)
        code.op("store", RCX, NOW["rows"], wide=False)
        code.jump(again, "ne")

    def _load_registers(self, width: int) -> None:
        """Set the registers of a tile of some columns, but not rax, its number of rows."""
        code = self.code
        code.op("mov", ROWS[0], NOW["a"])
        for n in (1, 2):
            code.op("lea", ROWS[n], Memory(ROWS[0], 0, STRIDE, 4 * n))
        code.op("mov", C, NOW["c"])
        code.op("mov", COUNT, SLOT["k"], wide=False)
        code.op("mov", PANELS[0], NOW["b"])
        code.op("mov", RDI, NOW["ldb"], wide=False)
        for n in range(1, width // PANEL):
            code.op("mov", PANELS[n], PANELS[n - 1])
            code.op("add", PANELS[n], RDI)
            code.constant("cmp", SLOT["cols"], PANEL * n, wide=False)
            code.op("cmovle", PANELS[n], PANELS[n - 1])

    def data(self) -> None:
        """The functions `row`, `wide`, `dispatch` and `copying`, and their tiles; all but the first jump to one of rax
        rows."""
        code, full, lanes = self.code, self.kind.rows, self.kind.lanes
        if self.arithmetic is Arithmetic.FUSED:
            code.place(self.row)
            RowTile(code).write()
        if self.kind is AVX2:
            self._tiles(self.wide, range(WIDE_ROWS, 0, -1), (WIDE,))
        self._tiles(self.dispatch, range(full, 0, -1), (2, 1))
        self._tiles(self.copying, range(full, full + 1), (2, 1))
        code.place(self.masks)
        code.data(struct.pack(f"<{2 * WIDE * lanes}i", *[-1] * WIDE * lanes, *[0] * WIDE * lanes))

    def _tiles(self, label: Label, rows: range, counts: tuple[int, ...]) -> None:
        """Place a function and its tiles, of each number of vectors, the last of them for columns of one vector."""
        code = self.code
        tiles = {(r, n): code.label() for n in counts for r in rows}
        narrow = code.label()
        code.place(label)
        if 1 in counts:
            code.constant("cmp", SLOT["cols"], self.kind.lanes, wide=False)
            code.jump(narrow, "le")
        for n in counts:
            if n == 1:
                code.place(narrow)
            for r in rows:
                code.constant("cmp", RAX, r, wide=False)
                code.jump(tiles[r, n], "e")
        code.ret()
        for (r, n), tile in tiles.items():
            code.place(tile)
            Tile(code, self.kind, self.arithmetic, r, n, copies=label is self.copying).write()
