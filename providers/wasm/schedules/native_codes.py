"""Calls of machine code (native/codes_function.py) for few rows by quantised weights, which pages do not have."""

from __future__ import annotations

from ..printer.assembler import Function, Module, once
from ..printer.native_imports import call_function
from ..printer.values import ceil_div, constant
from .gemv_unpacked import finish_call
from .panel_order import StepWords
from .register_tile import PANEL, Block, Epilogue, call_block
from .weight_codes import ROUND, WeightCodes


def name_of(layout: WeightCodes) -> str:
    """The name of the import."""
    return f"codes{layout.bits}x{layout.digits}"


@once
def with_code(
    module: Module, layout: WeightCodes, epilogue: Epilogue, words: StepWords, otherwise: Function
) -> Function:  # fmt: skip
    """The block function of gemv_integers.py for any number of rows: machine code, then `otherwise` row by row where
    it declines."""
    f, p = module.inner("gemv_codes", Block)
    size, blocks, rows = f.integers(3)
    f.set(size, p.args.i32(4 * words.block)).set(blocks, ceil_div(p.k, size))
    with f.block() as out:
        with f.block() as declined:
            call_function(f, name_of(layout), {
                **p._asdict(), "blocks": blocks, "rounds": size // ROUND, "zeros": constant(int(layout.zeros)),
                "last": p.k - (blocks - 1) * size + (ROUND - 1) >> 4,
                "steps": p.args.pointer(4 * words.address) + (p.col // PANEL) * blocks * layout.step_bytes,
            })  # fmt: skip
            f.emit("i32.eqz").br_if(declined)
            finish_call(f, p, epilogue)
            f.br(out)
        f.set(rows, p.rows).set(p.rows, 1)
        with f.loop() as again:
            call_block(f, otherwise, p)
            f.add(p.a, p.lda).add(p.c, p.ldc).add(p.row, 1).br_if(again, rows.tee(rows - 1))
    return f
