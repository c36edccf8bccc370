"""Dequantises weights (weight_codes.py): into panels, a block at a time, for gemm.py, or in registers, for GEMV."""

from __future__ import annotations

from typing import Any

from ..printer.assembler import Function, Module, once
from .arithmetic import Arithmetic
from .panel_order import PanelFormat, StepWords, blocks_of_k, float_bytes, in_panel_order, part_function, prefetch
from .register_tile import PANEL, Epilogue, add_tile, block_of, finish_tile, row_pointers, store_part
from .weight_codes import GROUP, HALF_STEP, ROUND, WeightCodes, value_constants, values

# codes, steps: their addresses in the first panel; k0, k: first k to write and count, of `all` in a panel; size: k that
# share a scale; cols: columns left; to, step: address of the panels, bytes between them
PACK = ("codes", "steps", "k0", "k", "all", "size", "cols", "to", "step")


@once
def pack_codes(module: Module, layout: WeightCodes, arithmetic: Arithmetic) -> Function:
    """Return a function of signature PACK. It writes whole groups: up to three rows past k."""
    f, p = module.internal(f"pack_{layout.bits}bits", PACK)
    code, steps, to, left, in_block, codes_step, steps_step = f.locals("i32", 7)
    scale, added = f.locals("v128", 2), f.locals("v128", 2)
    constants = value_constants(f, layout)
    if layout.bits == 16:
        f.emit(p["steps"]).mem("i32.load8_u").set(constants[-1])
    f.emit(p["all"]).i32(ROUND - 1).emit("i32.add").i32(-ROUND).emit("i32.and").i32(layout.group_bytes // GROUP)
    f.emit("i32.mul").set(codes_step)
    f.emit(p["all"], p["size"], "i32.add").i32(1).emit("i32.sub", p["size"], "i32.div_u").i32(layout.step_bytes)
    f.emit("i32.mul").set(steps_step)
    with f.loop() as panels:
        f.emit(p["codes"], p["k0"]).i32(2).emit("i32.shr_u").i32(layout.group_bytes).emit("i32.mul", "i32.add")
        f.set(code).emit(p["steps"], p["k0"], p["size"], "i32.div_u").i32(layout.step_bytes)
        f.emit("i32.mul", "i32.add").set(steps)
        f.emit(p["to"]).set(to).emit(p["k"]).set(left)
        f.emit(p["size"], p["k0"], p["size"], "i32.rem_u", "i32.sub").set(in_block)
        load_steps(f, layout, steps, scale, added)
        with f.block() as done, f.loop() as again:
            f.emit(left).i32(0).emit("i32.le_s").br_if(done)
            f.emit(in_block, "i32.eqz")
            with f.if_():
                f.add(steps, layout.step_bytes).emit(p["size"]).set(in_block)
                load_steps(f, layout, steps, scale, added)
            _pack_group(f, layout, code, constants, (scale, added), to, arithmetic)
            f.add(code, layout.group_bytes).add(to, 4 * PANEL * GROUP).add(in_block, -GROUP).add(left, -GROUP)
            f.br(again)
        f.emit(p["codes"], codes_step, "i32.add").set(p["codes"])
        f.emit(p["steps"], steps_step, "i32.add").set(p["steps"])
        f.emit(p["to"], p["step"], "i32.add").set(p["to"])
        f.add(p["cols"], -PANEL).emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
    return f


def _pack_group(
    f: Function, layout: WeightCodes, code: int, constants: list[Any], steps: tuple[list[Any], list[Any]], to: int,
    arithmetic: Arithmetic,
) -> None:  # fmt: skip
    """Write the weights of one group."""
    scale, added = steps

    def store(row: int, half: int, value: Any) -> None:
        with f.scratch("v128", 1) as (w,):
            if layout.zeros:
                f.emit(added[half]).set(w)
                arithmetic.multiply_add(f, w, value, scale[half])
            else:
                f.emit(value, scale[half], "f32x4.mul").set(w)
            f.emit(to, w).mem("v128.store", 4 * PANEL * row + 16 * half)

    values(f, layout, code, constants, store, arithmetic is Arithmetic.FUSED)


def load_steps(f: Function, layout: WeightCodes, steps: int, scale: list[Any], added: list[Any]) -> None:
    for half in (0, 1):
        if layout.bits == 16:
            f.f32x4(HALF_STEP).set(scale[half])
        else:
            f.emit(steps).mem("v128.load", 16 * half).set(scale[half])
        if layout.zeros:
            f.emit(steps).mem("v128.load", 4 * PANEL + 16 * half).set(added[half])


# ── GEMV ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@once
def gemv_dequantised(
    module: Module, layout: WeightCodes, arithmetic: Arithmetic, epilogue: Epilogue, words: StepWords
) -> Function:
    """Return a block function for one row; b, ldb: address of codes, bytes between panels."""

    def part(height: int) -> Function:
        return _part(module, height, layout, arithmetic, epilogue)

    return in_panel_order(module, "gemv_dequantised", PanelFormat.of(layout), words, float_bytes, part)


class FloatBlock:
    """Sum one block of k, unscaled, and the elements of A if codes have zero points.

    One row alternates between two sets of sums, which hides latency. With tables that takes too many registers: each
    group is summed separately, and only one addition depends on the group before (wasmtime: 1.6 ms became 1.35, by
    hand)."""

    def __init__(self, f: Function, layout: WeightCodes, arithmetic: Arithmetic, a: list[Any]) -> None:
        self.f, self.layout, self.arithmetic, self.a = f, layout, arithmetic, a
        self.constants = value_constants(f, layout)
        self.sums_groups = layout.uses_tables
        self.sums = [self.pairs() for _ in range(2 if len(a) == 1 and not self.sums_groups else 1)]
        self.of_a = f.locals("v128", len(a)) if layout.zeros else []
        self.root = f.local("v128")  # A and the sums of half floats are multiplied by it, lest they overflow
        f.f32x4(HALF_STEP**0.5).set(self.root)

    def pairs(self) -> list[list[Any]]:
        return [self.f.locals("v128", 2) for _ in self.a]

    def clear(self) -> None:
        for total in (*self.of_a, *[total for turn in self.sums for pair in turn for total in pair]):
            self.f.f32x4(0).set(total)

    def groups(self, code: int, left: int, count: int, p: dict[str, Any]) -> None:
        """Multiply `count` k of each group until fewer are left. Half floats have a second loop for infinities and
        NaN: with the condition inside the loop wasmtime spilled sums (3.5 weights a nanosecond became 3.9, by hand)."""
        if self.layout.bits < 16 or count < GROUP:
            self._loop(code, left, count, p)
            return
        self.f.emit(self.constants[-1])
        with self.f.if_():
            self._loop(code, left, count, p, careful=True)
            self.f.otherwise()
            self._loop(code, left, count, p, careful=False)

    def _loop(self, code: int, left: int, count: int, p: dict[str, Any], careful: bool | None = None) -> None:
        """Half floats have long blocks, so prefetch in this loop."""
        f = self.f
        with f.block() as out, f.loop() as again:
            f.emit(left).i32(count).emit("i32.lt_s").br_if(out)
            if self.layout.bits == 16 and count == GROUP:
                with f.scratch("i32", 1) as (step,):
                    prefetch(f.i32(self.layout.group_bytes).set(step), p, self.layout, code, left, step)
            self.group(code, count, careful)
            f.add(code, self.layout.group_bytes).add(left, -count)
            for pointer in self.a:
                f.add(pointer, 4 * count)
            f.br(again)

    def group(self, code: int, count: int, careful: bool | None) -> None:
        f, height = self.f, len(self.a)
        fours, xs = f.locals("v128", height), f.locals("v128", height)
        turns = [self.pairs()] if self.sums_groups else self.sums
        for pointer, four in zip(self.a, fours, strict=True):
            f.emit(pointer).mem("v128.load")
            if self.layout.bits == 16:
                f.emit(self.root, "f32x4.mul")
            f.set(four)

        def multiply(row: int, half: int, value: Any) -> None:
            for n, (four, x, s) in enumerate(zip(fours, xs, turns[row % len(turns)], strict=True)):
                if half == 0:
                    if self.layout.bits == 8:
                        f.emit(self.a[n]).mem("v128.load32_splat", 4 * row).set(x)
                    else:  # a load with splat is three instructions in wasmtime
                        f.emit(four, four).shuffle32(row, row, row, row).set(x)
                    if self.of_a:
                        f.emit(self.of_a[n], x, "f32x4.add").set(self.of_a[n])
                if row or not self.sums_groups:
                    self.arithmetic.multiply_add(f, s[half], x, value)
                else:
                    f.emit(x, value, "f32x4.mul").set(s[half])

        values(f, self.layout, code, self.constants, multiply, self.arithmetic is Arithmetic.FUSED, count, careful)
        if self.sums_groups:
            self.add_pairs(self.sums[0], turns[0])
            f.release(*[x for pair in turns[0] for x in pair])
        f.release(*fours, *xs)

    def add_pairs(self, to: list[list[Any]], pairs: list[list[Any]]) -> None:
        for s, t in zip(to, pairs, strict=True):
            for half in (0, 1):
                self.f.emit(s[half], t[half], "f32x4.add").set(s[half])

    def add_to(self, totals: list[list[Any]], steps: int) -> None:
        """totals += the sums, scaled; of half floats by `root`, the other half of their scale."""
        f = self.f
        for turn in self.sums[1:]:
            self.add_pairs(self.sums[0], turn)
        if self.layout.bits == 16:
            for total, s in zip(totals, self.sums[0], strict=True):
                for half in (0, 1):
                    self.arithmetic.multiply_add(f, total[half], s[half], self.root)
            return
        with f.scratch("v128", 1) as (step,):
            for half in (0, 1):
                f.emit(steps).mem("v128.load", 16 * half).set(step)
                for total, s in zip(totals, self.sums[0], strict=True):
                    self.arithmetic.multiply_add(f, total[half], s[half], step)
                if self.of_a:
                    f.emit(steps).mem("v128.load", 4 * PANEL + 16 * half).set(step)
                for total, x in zip(totals if self.of_a else [], self.of_a, strict=True):
                    self.arithmetic.multiply_add(f, total[half], x, step)


def _part(module: Module, height: int, layout: WeightCodes, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    store_part(module)
    f, p = part_function(module, f"part{height}_{layout.bits}bits")
    a, c, rows = row_pointers(f, block_of(p), height)
    block = FloatBlock(f, layout, arithmetic, a)
    totals = [f.locals("v128", 2) for _ in a]
    code, k, left, step = f.locals("i32", 4)
    f.emit(p["size"]).i32(layout.bits).emit("i32.mul").set(step).emit(p["b"]).set(code).emit(p["k"]).set(k)
    if layout.bits == 16:
        f.emit(p["steps"]).mem("i32.load8_u").set(block.constants[-1])
    add_tile(f, block_of(p), c, totals, None)
    with blocks_of_k(f, p, layout, code, k, left, step):
        block.clear()
        for count in (GROUP, 3, 2, 1):
            block.groups(code, left, count, p)
        block.add_to(totals, p["steps"])
    finish_tile(f, block_of(p), c, rows, totals, epilogue)
    return f
