"""The right operand B of a product (layouts.py) for gemm.py: a block of k at a time as panels, or read in place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyruntime.codegen.linear_memory import PREFETCH

from ..printer.assembler import Function, Module
from .arguments import ceil_div, element
from .arithmetic import Arithmetic
from .dequantise import gemv_dequantised, pack_codes
from .few_rows import HEIGHT, copy_rows, few_panel, multiply_few_rows, row_step
from .gemv_integers import gemv_integers, integer_rows, row_bytes
from .gemv_panels import gemv_panels
from .gemv_unpacked import cols_block, rows_block
from .layouts import Dense, Layout, Packed
from .pack_panels import pack_cols, pack_rows
from .panel_order import StepWords, count_codes, order_has
from .register_tile import PANEL, Epilogue, call_block, pick_rows, set_flags
from .weight_codes import GROUP, ROUND, WeightCodes


@dataclass(frozen=True, slots=True)
class Block:
    """The function being written and its locals: arguments by name, the block of C (BLOCK, and the batch as high and
    low), the first k of the block, memory for panels, and whether it contains the panels already."""

    f: Function
    arguments: dict[str, int]
    block: dict[str, int]
    k0: int
    scratch: int
    reuse: int


class PackedOperand:
    """B in panels. `gemv` is the block function that reads B in place for up to `few` rows, or None; `by_panel` the one
    for up to FEW_ROWS rows (few_rows.py), or None."""

    def __init__(self, gemv: Function | None, few: int, by_panel: Function | None = None) -> None:
        self.gemv, self.few, self.by_panel = gemv, few, by_panel

    def address(self, at: Block) -> Function:
        """Push the address of B[batch][k0][col] in place."""
        f = _matrix(at)  # col is a multiple of 8: panel col / 8 starts at col * K
        f.emit(at.block["col"], at.arguments["k"], "i32.mul", at.k0).i32(3).emit("i32.shl", "i32.add")
        return f.i32(2).emit("i32.shl", "i32.add")

    def stride(self, at: Block) -> Function:
        """Push the number of bytes between panels, or between rows of a dense matrix."""
        return at.f.emit(at.arguments["k"]).i32(5).emit("i32.shl")

    def multiply_few(self, at: Block) -> None:
        """Multiply all k by `gemv`."""
        assert self.gemv is not None
        call_block(at.f, self.gemv, at.block)

    def multiply_by_panel(self, at: Block) -> None:
        """Multiply all k by `by_panel`."""
        assert self.by_panel is not None
        f, w, names = at.f, at.arguments, ("a", "lda", "c", "col", "cols", "steps", "size", "sums")
        own = dict(zip(names, f.locals("i32", len(names)), strict=True))  # the epilogue needs those of the block
        p = at.block | own
        for name in ("c", "col", "cols"):
            f.emit(at.block[name]).set(own[name])
        f.emit(w["k"]).set(p["k"]).emit(w["ldb"]).set(p["size"])
        set_flags(f, p["flags"], at.k0, p["k"], w["k"])
        row_step(f, w["k"]).set(p["lda"]).emit(at.scratch).set(p["a"])
        f.emit(at.block["a"], at.block["lda"], p["rows"], w["k"], at.scratch).call(copy_rows(f.module, self.half))
        f.emit(at.scratch, p["lda"], p["rows"]).i32(HEIGHT - 1).emit("i32.add").i32(-HEIGHT).emit("i32.and")
        f.emit("i32.mul", "i32.add").set(p["sums"])
        with f.scratch("i32", 2) as (step, steps):
            self.address(at).set(p["b"])
            self.stride(at).set(step)
            f.emit(p["b"], step, p["cols"]).i32(PANEL - 1).emit("i32.add").i32(3).emit("i32.shr_u", "i32.mul")
            f.emit("i32.add").set(p["ldb"])
            self.steps_of(at, p, steps)
            multiply_few_rows(f, p, self.by_panel, step, steps)
        f.release(*own.values())

    half = False

    def steps_of(self, at: Block, p: dict[str, int], step: int) -> None:
        """Set the address of the steps of the block's first panel, and the number of bytes between panels."""

    def panels(self, at: Block) -> None:
        """Point the block's b and ldb to panels of its k and columns."""
        self.address(at).set(at.block["b"])
        self.stride(at).set(at.block["ldb"])


class DenseOperand(PackedOperand):
    """A matrix of elements of `size` bytes, packed into scratch by a pack function."""

    def __init__(self, gemv: Function | None, few: int, packer: Function, transposed: bool, size: int = 4) -> None:
        super().__init__(gemv, few)
        self.packer, self.transposed, self.size = packer, transposed, size

    def address(self, at: Block) -> Function:
        slow, fast = (at.block["col"], at.k0) if self.transposed else (at.k0, at.block["col"])
        f = _matrix(at, self.size).emit(slow, at.arguments["ldb"], "i32.mul", fast, "i32.add")
        return f.i32(self.size).emit("i32.mul", "i32.add")

    def stride(self, at: Block) -> Function:
        return at.f.emit(at.arguments["ldb"]).i32(self.size).emit("i32.mul")

    def panels(self, at: Block) -> None:
        f, p = at.f, at.block
        f.emit(p["k"]).i32(GROUP - 1).emit("i32.add").i32(-GROUP).emit("i32.and").i32(5).emit("i32.shl").set(p["ldb"])
        f.emit(at.scratch).set(p["b"]).emit(at.reuse, "i32.eqz")
        with f.if_():
            self.pack(at)

    def pack(self, at: Block) -> None:
        """Write the panels to scratch."""
        self.address(at)
        self.stride(at).emit(at.block["k"], at.block["cols"], at.scratch, at.block["ldb"]).call(self.packer)


class QuantisedOperand(DenseOperand):
    """Codes in panels. The argument ldb is the number of k that share a step."""

    def __init__(self, gemv: Function, by_panel: Function, packer: Function, layout: WeightCodes, steps: int) -> None:
        super().__init__(gemv, integer_rows(gemv.module, layout) if layout.digits else 1, packer, transposed=False)
        self.by_panel, self.layout, self.steps = by_panel, layout, steps
        self.half = layout.bits == 16

    def address(self, at: Block) -> Function:
        at.f.emit(at.arguments["b"])
        return self.column(at).emit(at.block["col"], "i32.mul", "i32.add")

    def stride(self, at: Block) -> Function:
        return self.column(at).i32(PANEL).emit("i32.mul")

    def column(self, at: Block) -> Function:
        """Push the number of bytes of a column."""
        f = at.f.emit(at.arguments["k"]).i32(ROUND - 1).emit("i32.add").i32(-ROUND).emit("i32.and")
        return f.i32(self.layout.bits).emit("i32.mul").i32(3).emit("i32.shr_u")

    def multiply_few(self, at: Block) -> None:
        if self.layout.digits:
            row = at.f.local("i32")
            row_bytes(at.f, at.arguments["k"], at.arguments["ldb"], self.layout.digits).set(row)
            at = replace(at, block=at.block | {"a": at.scratch, "lda": row})
        super().multiply_few(at)

    def steps_of(self, at: Block, p: dict[str, int], step: int) -> None:
        f, w = at.f, at.arguments
        count_codes(f, p, self.layout.bits)
        f.emit(p["ldb"]).i32(0)
        order_has(f, PREFETCH).emit("select").set(p["ldb"])
        ceil_div(f, w["k"], w["ldb"]).i32(self.layout.step_bytes).emit("i32.mul").set(step)
        f.emit(p["args"]).mem("i32.load", 4 * self.steps).emit(step, p["col"]).i32(3).emit("i32.shr_u", "i32.mul")
        f.emit("i32.add").set(p["steps"])

    def pack(self, at: Block) -> None:
        f, w, p = at.f, at.arguments, at.block
        self.address(at).emit(p["args"]).mem("i32.load", 4 * self.steps)
        ceil_div(f, w["k"], w["ldb"]).emit(p["col"], "i32.mul").i32(self.layout.step_bytes // PANEL)
        f.emit("i32.mul", "i32.add")
        f.emit(at.k0, p["k"], w["k"], w["ldb"], p["cols"], at.scratch, p["ldb"]).call(self.packer)


def right_operand(
    module: Module, layout: Layout, arithmetic: Arithmetic, tile: Epilogue, words: StepWords
) -> PackedOperand:
    """words: positions in the argument block, for quantised weights"""
    few = few_rows(arithmetic)
    if isinstance(layout, Packed):
        return PackedOperand(gemv_panels(module, arithmetic, tile), 1, few_panel(module, arithmetic, tile, None))
    if isinstance(layout, Dense):
        in_place, pack = (cols_block, pack_cols) if layout.transposed else (rows_block, pack_rows)
        block = in_place(module, arithmetic, tile, layout.half) if arithmetic.codes == 1 else None
        return DenseOperand(block, few, pack(module, layout.half), layout.transposed, layout.size)
    gemv = (gemv_integers if layout.digits else gemv_dequantised)(module, layout, arithmetic, tile, words)
    by_panel, pack_ = few_panel(module, arithmetic, tile, layout), pack_codes(module, layout, arithmetic)
    return QuantisedOperand(gemv, by_panel, pack_, layout, words.address)


def few_rows(arithmetic: Arithmetic = Arithmetic.FUSED) -> int:
    """Up to this many rows, B is not packed.

    Chromium 156, relaxed, row-major, K = N = 1024, GFLOP/s packed and not: 2 rows 13, 39; 4 rows 23, 39; 6 rows 33, 40;
    12 rows 44, 32; 24 rows 49, 36. With K = N = 256 they meet at 6 to 8 rows. One row: 30 to 35 (70 GB/s).
    """
    return pick_rows(arithmetic)


def _matrix(at: Block, size: int = 4) -> Function:
    """Push the address of the batch's matrix, of elements of `size` bytes."""
    w, p = at.arguments, at.block
    return element(at.f, w["b"], (p["high"], w["outer_b"]), (p["low"], w["stride_b"]), size=size)
