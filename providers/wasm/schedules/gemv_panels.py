"""GEMV over packed panels of float32, or of codes of four bytes an element: large blocks in panel order, small ones,
which stay in a cache, panel by panel."""

from __future__ import annotations

from ..printer.assembler import Function, Module, once
from .arithmetic import Arithmetic
from .panel_order import PanelFormat, float_bytes, in_panel_order
from .register_tile import BLOCK, Block, Epilogue, call_block, panel_strip, panels_block

FLOATS = PanelFormat(bits=32, turn_bytes=2048, takes=BLOCK)
IN_CACHE = 1 << 18  # elements of a block that a cache may still contain from the last run


@once
def gemv_panels(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """Return the block function. With several rows, computing with a panel takes longer than loading the next one."""
    block = panels_block(module, arithmetic, epilogue)
    if module.cranelift:
        return block
    part = panel_strip(module, 1, arithmetic, epilogue)
    large = in_panel_order(module, "panels_in_order", FLOATS, None, float_bytes, lambda _: part)
    f, p = module.inner("gemv_panels", Block)
    with f.if_((p.cols * p.k).gt_u(IN_CACHE) & p.rows.eq(1)):
        call_block(f, large, p)
        f.otherwise()
        call_block(f, block, p)
    return f
