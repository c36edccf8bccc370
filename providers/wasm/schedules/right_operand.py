"""The right operand B of a product (layouts.py) for gemm.py: a block of k at a time as panels, or read in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pyruntime.codegen.linear_memory import PREFETCH

from ..printer.assembler import Function, Module
from ..printer.values import I32, Ptr, ceil_div, constant, select
from .arithmetic import Arithmetic
from .dequantise import gemv_dequantised, pack_codes
from .few_integers import integer_tile
from .few_rows import HEIGHT, Few, copy_rows, few_panel, multiply_few_rows, row_step
from .gemv_integers import gemv_integers, gemv_rows, integer_rows, row_bytes
from .gemv_panels import gemv_panels
from .gemv_unpacked import cols_block, rows_block
from .layouts import Dense, Layout, Packed
from .pack_panels import pack_cols, pack_rows
from .panel_order import FEW_ROWS, StepWords, count_codes, order_has
from .register_tile import PANEL, Block, Epilogue, call_block, flags_of, has_native_block, pick_rows
from .weight_codes import GROUP, ROUND, WeightCodes

FEW_CODES = 3  # rows that are multiplied by codes where machine code multiplies more by panels of floats


@dataclass(frozen=True, slots=True)
class Matrix:
    """The function being written, the block of C, and B: its address, arguments, and offsets of the batch in elements;
    the first k of the block, memory for panels, and whether it contains the panels already."""

    f: Function
    block: Block
    b: Ptr
    k: I32
    ldb: I32
    offsets: tuple[I32, I32]
    k0: I32
    scratch: Ptr
    reuse: I32

    def address(self, size: int = 4) -> Ptr:
        """The address of the batch's matrix, of elements of `size` bytes."""
        high, low = self.offsets
        return self.b + high * size + low * size


class PackedOperand:
    """B in panels. `gemv` is the block function that reads B in place for up to `few` rows, or None; `by_panel` the one
    for up to FEW_ROWS rows (few_rows.py), or None."""

    half = False

    def __init__(self, gemv: Function | None, few: int, by_panel: Function | None = None) -> None:
        self.gemv, self.few, self.by_panel = gemv, few, by_panel

    def address(self, at: Matrix) -> Ptr:
        """The address of B[batch][k0][col] in place: panel col / 8 starts at col * K."""
        return at.address() + ((at.block.col * at.k + (at.k0 << 3)) << 2)

    def stride(self, at: Matrix) -> I32:
        """The number of bytes between panels, or between rows of a dense matrix."""
        return at.k << 5

    def multiply_few(self, at: Matrix) -> None:
        """Multiply all k by `gemv`."""
        assert self.gemv is not None
        call_block(at.f, self.gemv, at.block)

    def multiply_by_panel(self, at: Matrix) -> None:
        """Multiply all k by `by_panel`."""
        assert self.by_panel is not None
        f, block = at.f, at.block
        # the epilogue needs those of the block
        (a,), (lda,), (c,), (col, cols) = f.pointers(1), f.integers(1), f.pointers(1), f.integers(2)
        p, few = block._replace(a=a, lda=lda, c=c, col=col, cols=cols), f.fields(Few)
        f.set(c, block.c).set(col, block.col).set(cols, block.cols)
        f.set(p.k, at.k).set(few.size, at.ldb)
        f.set(p.flags, flags_of(at.k0, p.k, at.k))
        f.set(a, at.scratch)
        self.copy_rows(at, lda)
        f.set(few.sums, at.scratch + lda * (p.rows + (HEIGHT - 1) & -HEIGHT))
        with f.scratch("i32", 2) as (step, steps):
            f.set(p.b, self.address(at)).set(step, self.stride(at))
            f.set(p.ldb, p.b + step * (cols + (PANEL - 1) >> 3))
            self.steps_of(at, p, few, steps)
            multiply_few_rows(f, p, few, self.by_panel, step, steps)
        f.release(a, lda, c, col, cols, *few)

    def copy_rows(self, at: Matrix, step: I32) -> None:
        """Copy A to scratch. step: becomes the bytes between rows of the copy"""
        block = at.block
        at.f.set(step, row_step(at.k))
        at.f.call(copy_rows(at.f.module, self.half), block.a, block.lda, block.rows, at.k, at.scratch)

    def steps_of(self, at: Matrix, p: Block, few: Few, step: I32) -> None:
        """Set the address of the steps of the block's first panel, and the number of bytes between panels."""

    def multiply(self, at: Matrix, block: Function, tile: Epilogue) -> None:
        """Multiply by a block function. tile: its epilogue"""
        self.panels(at)
        call_block(at.f, block, at.block)

    def panels(self, at: Matrix) -> None:
        """Point the block's b and ldb to panels of its k and columns."""
        at.f.set(at.block.b, self.address(at)).set(at.block.ldb, self.stride(at))


class DenseOperand(PackedOperand):
    """A matrix of elements of `size` bytes, packed into scratch by a pack function."""

    def __init__(
        self, gemv: Function | None, few: int, packer: Function, layout: Dense | None = None,
        native: Arithmetic | None = None,
    ) -> None:  # fmt: skip
        super().__init__(gemv, few)
        self.packer, self.native = packer, native
        self.transposed, self.size = (layout.transposed, layout.size) if layout else (False, 4)

    def address(self, at: Matrix) -> Ptr:
        slow, fast = (at.block.col, at.k0) if self.transposed else (at.k0, at.block.col)
        return at.address(self.size) + (slow * at.ldb + fast) * self.size

    def stride(self, at: Matrix) -> I32:
        return at.ldb * self.size

    def multiply(self, at: Matrix, block: Function, tile: Epilogue) -> None:
        """The host's machine code reads rows in place."""
        f = at.f
        if not self.native:
            return super().multiply(at, block, tile)
        from ..printer.native_imports import BLOCKS  # pages do not have it
        from ..printer.native_imports import call_block as call_native

        with f.block() as done:
            b = {"b": self.address(at), "ldb": constant(4 * PANEL), "step": self.stride(at), "scratch": at.scratch}
            call_native(f, BLOCKS[self.native.name], at.block._asdict() | b, tile.bias, tile.low, tile.high)
            f.br_if(done).set(at.reuse, 0)
            super().multiply(at, block, tile)

    def panels(self, at: Matrix) -> None:
        f, p = at.f, at.block
        f.set(p.ldb, (p.k + (GROUP - 1) & -GROUP) << 5).set(p.b, at.scratch)
        with f.if_(at.reuse.eqz()):
            self.pack(at)

    def pack(self, at: Matrix) -> None:
        """Write the panels to scratch."""
        p = at.block
        at.f.call(self.packer, self.address(at), self.stride(at), p.k, p.cols, at.scratch, p.ldb)


class QuantisedOperand(DenseOperand):
    """Codes in panels. The argument ldb is the number of k that share a step."""

    def __init__(
        self, gemv: Function, by_panel: Function | None, packer: Function, layout: WeightCodes, steps: int
    ) -> None:  # fmt: skip
        super().__init__(gemv, gemv_rows(gemv.module, layout) if layout.digits else 1, packer)
        self.by_panel, self.layout, self.steps = by_panel, layout, steps
        self.half = layout.bits == 16

    def address(self, at: Matrix) -> Ptr:
        return at.b + self.column(at) * at.block.col

    def stride(self, at: Matrix) -> I32:
        return self.column(at) * PANEL

    def column(self, at: Matrix) -> I32:
        """The number of bytes of a column."""
        return (at.k + (ROUND - 1) & -ROUND) * self.layout.bits >> 3

    def multiply_few(self, at: Matrix) -> None:
        if self.layout.digits:
            (row,) = at.f.integers(1)
            row_bytes(at.f, at.k, at.ldb, self.layout.digits).set(row)
            at = replace(at, block=at.block._replace(a=at.scratch, lda=row))
        super().multiply_few(at)

    def copy_rows(self, at: Matrix, step: I32) -> None:
        if self.layout.digits == 1:  # scratch has the quantised rows
            row_bytes(at.f, at.k, at.ldb, 1).set(step)
        else:
            super().copy_rows(at, step)

    def steps_of(self, at: Matrix, p: Block, few: Few, step: I32) -> None:
        f = at.f
        count_codes(f, p.cols, p.k, self.layout.bits)
        f.set(p.ldb, select(p.ldb, 0, order_has(PREFETCH)))
        f.set(step, ceil_div(at.k, at.ldb) * self.layout.step_bytes)
        f.set(few.steps, p.args.pointer(4 * self.steps) + step * (p.col >> 3))

    def pack(self, at: Matrix) -> None:
        f, p = at.f, at.block
        steps = ceil_div(at.k, at.ldb) * p.col * (self.layout.step_bytes // PANEL)
        f.call(
            self.packer, self.address(at), p.args.pointer(4 * self.steps) + steps, at.k0, p.k, at.k, at.ldb, p.cols,
            at.scratch, p.ldb,
        )  # fmt: skip


def right_operand(
    module: Module, layout: Layout, arithmetic: Arithmetic, tile: Epilogue, words: StepWords
) -> PackedOperand:
    """words: positions in the argument block, for quantised weights"""
    few = few_rows(arithmetic)
    if isinstance(layout, Packed):
        if has_native_block(module, arithmetic):  # faster for any number of rows
            return PackedOperand(None, 0)
        return PackedOperand(gemv_panels(module, arithmetic, tile), 1, few_panel(module, arithmetic, tile, None))
    if isinstance(layout, Dense):
        in_place, pack = (cols_block, pack_cols) if layout.transposed else (rows_block, pack_rows)
        block = in_place(module, arithmetic, tile, layout.half) if arithmetic.codes == 1 else None
        in_rows = not layout.transposed and not layout.half
        native = arithmetic if in_rows and has_native_block(module, arithmetic) else None
        return DenseOperand(block, few, pack(module, layout.half), layout, native)
    assert isinstance(layout, WeightCodes)
    gemv = (gemv_integers if layout.digits else gemv_dequantised)(module, layout, arithmetic, tile, words)
    pack_ = pack_codes(module, layout, arithmetic)
    return QuantisedOperand(gemv, _by_panel(module, layout, arithmetic, tile), pack_, layout, words.address)


def _by_panel(module: Module, layout: WeightCodes, arithmetic: Arithmetic, tile: Epilogue) -> Function | None:
    """The function `by_panel` of codes; None if machine code multiplies as many rows."""
    if layout.digits and module.imports:
        return None
    make = partial(integer_tile, layout=layout) if layout.digits == 1 else None
    return few_panel(module, arithmetic, tile, layout, make)


def rows_in_place(module: Module, layout: Layout) -> int:
    """Up to this many rows, panels and codes are read in place."""
    if not isinstance(layout, WeightCodes) or not module.imports:
        return FEW_ROWS
    return quantised_rows(module, layout) or FEW_CODES


def quantised_rows(module: Module, layout: Layout) -> int:
    """Up to this many rows of A are quantised."""
    return integer_rows(module, layout) if isinstance(layout, WeightCodes) and layout.digits else 0


def few_rows(arithmetic: Arithmetic = Arithmetic.FUSED) -> int:
    """Up to this many rows, B is not packed.

    Chromium 156, relaxed, row-major, K = N = 1024, GFLOP/s packed and not: 2 rows 13, 39; 4 rows 23, 39; 6 rows 33, 40;
    12 rows 44, 32; 24 rows 49, 36. With K = N = 256 they meet at 6 to 8 rows. One row: 30 to 35 (70 GB/s).
    """
    return pick_rows(arithmetic)
