"""Few rows times packed panels of float32, or of codes that lie four bytes to an element (gemm.py): large blocks in
three streams (panel_order.py), small ones, which a cache holds, panel by panel."""

from __future__ import annotations

from ..printer.assembler import Function, Module
from .arithmetic import Arithmetic
from .panel_order import Lying, float_bytes, in_streams
from .register_tile import BLOCK, Epilogue, block_function, call_block, first_panel, panels_block

ELEMENTS = Lying(bits=32, turn=2048, takes=BLOCK)
NEAR = 1 << 18  # elements: a block that a cache may hold from the last run on is read as before


def few_panels(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """The block function. More rows than one compute with a panel for longer than it takes to come."""
    block = panels_block(module, arithmetic, epilogue)
    if module.cranelift:
        return block

    def make() -> Function:
        key = ("few_panels_in_streams", arithmetic, epilogue.key())
        part = first_panel(module, arithmetic, epilogue)
        large = in_streams(module, key, ELEMENTS, None, float_bytes, lambda _: part)
        f, p = block_function(module, "few_panels")
        f.emit(p["cols"], p["k"], "i32.mul").i32(NEAR).emit("i32.gt_u", p["rows"]).i32(1).emit("i32.eq", "i32.and")
        with f.if_():
            call_block(f, large, p)
            f.otherwise()
            call_block(f, block, p)
        return f

    return module.once(("few_panels", arithmetic, epilogue.key()), make)


__all__ = ["few_panels"]
