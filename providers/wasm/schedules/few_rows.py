"""Products of 2 to FEW_ROWS rows by a B in panels: each panel is read once for all rows, some k at a time, which stay
in the first-level cache. Codes are dequantised into such a panel.

Panels follow one another in memory and are read in this order. With several rows, the instructions between two cache
lines of B are so many that the processor's window holds few lines. The first tile therefore loads from the lines of B
that come next, AHEAD bytes at a time, which memory delivers together
(docs/design/weight-bandwidth.md#few-rows).
"""

from __future__ import annotations

from collections.abc import Callable

from ..printer.assembler import Function, Module, once
from .arguments import minimum
from .arithmetic import Arithmetic
from .register_tile import BLOCK, PANEL, Epilogue, call_block, panel_strip, set_flags

FEW_ROWS = 16
HEIGHT, HALF = 4, 2  # rows of a register tile, and of the last one if so few are left
SOME_K = 128
FEW_BYTES = 4 * PANEL * SOME_K  # of scratch, for each thread


@once
def few_panel(module: Module, arithmetic: Arithmetic, epilogue: Epilogue, ahead: bool) -> Function:
    """A block function for all rows and the first panel. ahead: whether it loads ahead, up to the address ldb."""
    tiles = {height: panel_strip(module, height, arithmetic, epilogue) for height in (HALF, HEIGHT)}
    first = {h: panel_strip(module, h, arithmetic, epilogue, True) for h in tiles} if ahead else tiles
    f, p = module.internal("few_panel", BLOCK)

    def tile(of: dict[int, Function]) -> None:
        f.emit(p["rows"]).i32(HALF).emit("i32.le_s")
        with f.if_():
            call_block(f, of[HALF], p)
            f.otherwise()
            call_block(f, of[HEIGHT], p)

    def next_tile() -> Function:
        for pointer, step in (("a", "lda"), ("c", "ldc")):
            f.emit(p[pointer], p[step]).i32(HEIGHT).emit("i32.mul", "i32.add").set(p[pointer])
        return f.add(p["row"], HEIGHT).add(p["rows"], -HEIGHT).emit(p["rows"]).i32(0).emit("i32.gt_s")

    tile(first)
    next_tile()
    with f.if_(), f.loop() as again:
        tile(tiles)
        next_tile().br_if(again)
    return f


def multiply_few_rows(
    f: Function, p: dict[str, int], k: int, k0: int, block: Function, panel: Callable[[], None]
) -> None:
    """Multiply a block of C (`p`: BLOCK, locals by name). k: the local of the sum's length; k0: a local that gets the
    first k of each part; block: `few_panel`; panel: emits code that sets b to the block's first panel, from k0 on."""
    some, a = f.locals("i32", 2)
    f.i32(SOME_K).set(some).emit(p["a"]).set(a)
    with f.loop() as panels:
        f.i32(0).set(k0).emit(a).set(p["a"])
        with f.loop() as parts:
            f.emit(k, k0, "i32.sub").set(p["k"])
            minimum(f, p["k"], p["k"], some)
            set_flags(f, p["flags"], k0, p["k"], k)
            panel()
            call_block(f, block, p)
            f.emit(p["a"], p["k"]).i32(2).emit("i32.shl", "i32.add").set(p["a"])
            f.emit(k0, p["k"], "i32.add").tee(k0).emit(k, "i32.lt_u").br_if(parts)
        f.add(p["c"], 4 * PANEL).add(p["col"], PANEL).add(p["cols"], -PANEL)
        f.emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
    f.release(some, a)
