"""The transpose of a matrix of codes (weight_codes.py) as a right operand: a forward product's column is a row here.
A block of rows becomes panels of floats in scratch."""

from __future__ import annotations

from typing import Any

from ..printer.assembler import Function, Module, once
from ..printer.values import ceil_div
from .arithmetic import Arithmetic
from .dequantise import load_steps
from .pack_panels import transpose4
from .panel_order import StepWords
from .register_tile import PANEL
from .right_operand import DenseOperand, Matrix
from .weight_codes import GROUP, ROUND, WeightCodes, value_constants, values

# codes, steps: their addresses in the panel of the first row; rows: a block's; col: the first column; cols: how many;
# size: columns that share a scale; to, step: address of the panels, bytes between them; codes_step, steps_step: bytes
# between panels of codes, and between their steps
PACK = ("codes", "steps", "rows", "col", "cols", "size", "to", "step", "codes_step", "steps_step")


class TransposedOperand(DenseOperand):
    """Blocks begin at multiples of PANEL rows. The argument ldb is the number of columns that share a step, which
    panels do not cross."""

    def __init__(self, module: Module, codes: WeightCodes, arithmetic: Arithmetic, words: StepWords) -> None:
        super().__init__(None, 0, _pack(module, codes, arithmetic))
        self.codes, self.words = codes, words

    def panels(self, at: Matrix) -> None:
        f, p = at.f, at.block
        f.set(p.ldb, (p.k + (PANEL - 1) & -PANEL) << 5).set(p.b, at.scratch)
        with f.if_(at.reuse.eqz()):
            self.pack(at)

    def pack(self, at: Matrix) -> None:
        f, p = at.f, at.block
        codes_step, steps_step = f.integers(2)
        columns = p.args.i32(4 * self.words.columns)
        f.set(codes_step, (columns + (ROUND - 1) & -ROUND) * self.codes.k_bytes)
        f.set(steps_step, ceil_div(columns, at.ldb) * self.codes.step_bytes)
        first = at.k0 >> 3
        f.call(
            self.packer, at.b + first * codes_step, p.args.pointer(4 * self.words.address) + first * steps_step, p.k,
            p.col, p.cols, at.ldb, at.scratch, p.ldb, codes_step, steps_step,
        )  # fmt: skip
        f.release(codes_step, steps_step)


@once
def _pack(module: Module, layout: WeightCodes, arithmetic: Arithmetic) -> Function:
    """Return a function of signature PACK. It writes whole panels of codes: up to seven rows past the last."""
    f, p = module.internal(f"pack_transposed_{layout.name}", PACK)
    code, steps, to, left = f.locals("i32", 4)
    scale, added = f.locals("v128", 2), f.locals("v128", 2)
    constants = value_constants(f, layout)
    with f.loop() as panels:
        f.emit(p["codes"], p["col"]).i32(layout.k_bytes).emit("i32.mul", "i32.add").set(code)
        f.emit(p["steps"], p["col"], p["size"], "i32.div_u").i32(layout.step_bytes).emit("i32.mul", "i32.add")
        f.set(steps).emit(p["to"]).set(to).emit(p["rows"]).set(left)
        with f.loop() as again:
            load_steps(f, layout, steps, scale, added)
            for group in range(PANEL // GROUP):
                if group:
                    f.add(code, layout.group_bytes)
                _pack_group(f, layout, code, constants, (scale, added), (to, 4 * GROUP * group), arithmetic)
            f.emit(code, p["codes_step"], "i32.add").i32(layout.group_bytes).emit("i32.sub").set(code)
            f.emit(steps, p["steps_step"], "i32.add").set(steps)
            f.add(to, 4 * PANEL * PANEL).add(left, -PANEL).emit(left).i32(0).emit("i32.gt_s").br_if(again)
        f.emit(p["to"], p["step"], "i32.add").set(p["to"])
        f.add(p["col"], PANEL).add(p["cols"], -PANEL).emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
    return f


def _pack_group(
    f: Function, layout: WeightCodes, code: int, constants: list[Any], steps: tuple[list[Any], list[Any]],
    to: tuple[int, int], arithmetic: Arithmetic,
) -> None:  # fmt: skip
    """Write four columns of eight rows. to: the address of the panel's rows, and the offset of the columns"""
    (scale, added), (at, offset) = steps, to
    quarters = [f.locals("v128", GROUP) for _ in range(2)]

    def weight(column: int, half: int, value: Any) -> None:
        w = quarters[half][column]
        if layout.zeros:
            f.emit(added[half]).set(w)
            arithmetic.multiply_add(f, w, value, scale[half])
        else:
            f.emit(value, scale[half], "f32x4.mul").set(w)

    values(f, layout, code, constants, weight, arithmetic is Arithmetic.FUSED)
    for half, four in enumerate(quarters):
        transpose4(f, four)
        for row, w in enumerate(four):
            f.emit(at, w).mem("v128.store", 4 * PANEL * (GROUP * half + row) + offset)
        f.release(*four)
