"""Weights of few bits (weight_codes.py) made floats: in panels, a block at a time, for gemm.py, or in registers where
few rows are multiplied."""

from __future__ import annotations

from ..printer.assembler import Function, Module
from .arguments import minimum
from .arithmetic import Arithmetic
from .panel_order import Lying, ask_ahead, float_bytes, in_streams, part_function
from .register_tile import PANEL, Epilogue, add_tile, finish_tile, row_pointers, store_part
from .weight_codes import GROUP, HALF_STEP, ROUND, FewBits, constants, values

# (codes, steps, k0, k, K, size, cols, to, step): codes and steps of the first panel; a block of k0..k0+k of each panel;
# size: k in a block of one scale
PACK = ("codes", "steps", "k0", "k", "all", "size", "cols", "to", "step")


def pack_nbits(module: Module, few: FewBits, arithmetic: Arithmetic) -> Function:
    """The pack function. Writes whole groups: up to three rows past k."""

    def make() -> Function:
        f = module.function(f"pack_{few.bits}bits", ["i32"] * len(PACK), export=False)
        p = dict(zip(PACK, f.params, strict=True))
        code, steps, to, left, in_block, codes_step, steps_step = f.locals("i32", 7)
        scale, added = f.locals("v128", 2), f.locals("v128", 2)
        kept = constants(f, few)
        if few.bits == 16:
            f.emit(p["steps"]).mem("i32.load8_u").set(kept[-1])
        f.emit(p["all"]).i32(ROUND - 1).emit("i32.add").i32(-ROUND).emit("i32.and").i32(few.group // GROUP)
        f.emit("i32.mul").set(codes_step)
        f.emit(p["all"], p["size"], "i32.add").i32(1).emit("i32.sub", p["size"], "i32.div_u").i32(few.steps)
        f.emit("i32.mul").set(steps_step)
        with f.loop() as panels:
            f.emit(p["codes"], p["k0"]).i32(2).emit("i32.shr_u").i32(few.group).emit("i32.mul", "i32.add").set(code)
            f.emit(p["steps"], p["k0"], p["size"], "i32.div_u").i32(few.steps).emit("i32.mul", "i32.add").set(steps)
            f.emit(p["to"]).set(to).emit(p["k"]).set(left)
            f.emit(p["size"], p["k0"], p["size"], "i32.rem_u", "i32.sub").set(in_block)
            _load_steps(f, few, steps, scale, added)
            with f.block() as done, f.loop() as again:
                f.emit(left).i32(0).emit("i32.le_s").br_if(done)
                f.emit(in_block, "i32.eqz")
                with f.if_():
                    f.add(steps, few.steps).emit(p["size"]).set(in_block)
                    _load_steps(f, few, steps, scale, added)
                _pack_group(f, few, code, kept, (scale, added), to, arithmetic)
                f.add(code, few.group).add(to, 4 * PANEL * GROUP).add(in_block, -GROUP).add(left, -GROUP)
                f.br(again)
            f.emit(p["codes"], codes_step, "i32.add").set(p["codes"])
            f.emit(p["steps"], steps_step, "i32.add").set(p["steps"])
            f.emit(p["to"], p["step"], "i32.add").set(p["to"])
            f.add(p["cols"], -PANEL).emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
        return f

    return module.once(("pack_nbits", few, arithmetic), make)


def _pack_group(
    f: Function, few: FewBits, code: int, kept: list[int], steps: tuple[list[int], list[int]], to: int,
    arithmetic: Arithmetic,
) -> None:  # fmt: skip
    """Write a group's weights."""
    scale, added = steps

    def store(row: int, half: int, value: int) -> None:
        with f.scratch("v128", 1) as (w,):
            if few.zeros:
                f.emit(added[half]).set(w)
                arithmetic.multiply_add(f, w, value, scale[half])
            else:
                f.emit(value, scale[half], "f32x4.mul").set(w)
            f.emit(to, w).mem("v128.store", 4 * PANEL * row + 16 * half)

    values(f, few, code, kept, store, arithmetic is Arithmetic.FUSED)


def _load_steps(f: Function, few: FewBits, steps: int, scale: list[int], added: list[int]) -> None:
    for half in (0, 1):
        if few.bits == 16:
            f.f32x4(HALF_STEP).set(scale[half])
        else:
            f.emit(steps).mem("v128.load", 16 * half).set(scale[half])
        if few.zeros:
            f.emit(steps).mem("v128.load", 4 * PANEL + 16 * half).set(added[half])


# ── few rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def few_rows_nbits(
    module: Module, few: FewBits, arithmetic: Arithmetic, epilogue: Epilogue, words: tuple[int, int]
) -> Function:
    """A block function over codes for up to FEW rows, whose weights are made in registers; b, ldb: codes, bytes between
    panels.

    words: of the argument block, the steps and how many k one has
    """

    key = ("few_rows_nbits", few, arithmetic, epilogue.key(), words)
    return in_streams(
        module, key, Lying.of(few), words, float_bytes, lambda height: _part(module, height, few, arithmetic, epilogue)
    )


class FloatBlock:
    """The sums of one block of k, unscaled, and those of A where codes have zero points. Of one row two sets take
    turns, to hide latency. With tables these are too many registers: there a group is summed by itself first, and only
    an addition waits for the group before (wasmtime: 1.6 ms became 1.35, by hand)."""

    def __init__(self, f: Function, few: FewBits, arithmetic: Arithmetic, a: list[int]) -> None:
        self.f, self.few, self.arithmetic, self.a = f, few, arithmetic, a
        self.kept = constants(f, few)
        self.apart = few.looked_up
        self.sums = [self.pairs() for _ in range(2 if len(a) == 1 and not self.apart else 1)]
        self.of_a = f.locals("v128", len(a)) if few.zeros else []
        self.root = f.local("v128")  # of half floats' step, once for A and once for sums: between them all are floats
        f.f32x4(HALF_STEP**0.5).set(self.root)

    def pairs(self) -> list[list[int]]:
        return [self.f.locals("v128", 2) for _ in self.a]

    def clear(self) -> None:
        for total in (*self.of_a, *[total for turn in self.sums for pair in turn for total in pair]):
            self.f.f32x4(0).set(total)

    def groups(self, code: int, left: int, count: int, p: dict[str, int]) -> None:
        """So many k of each group while there are. Half floats of which some are special have a loop of their own: with
        that asked within wasmtime spilled sums (3.5 weights a nanosecond became 3.9, by hand)."""
        if self.few.bits < 16 or count < GROUP:
            self._loop(code, left, count, p)
            return
        self.f.emit(self.kept[-1])
        with self.f.if_():
            self._loop(code, left, count, p, careful=True)
            self.f.otherwise()
            self._loop(code, left, count, p, careful=False)

    def _loop(self, code: int, left: int, count: int, p: dict[str, int], careful: bool | None = None) -> None:
        """Of half floats, whose blocks are long, what comes is asked for here."""
        f = self.f
        with f.block() as out, f.loop() as again:
            f.emit(left).i32(count).emit("i32.lt_s").br_if(out)
            if self.few.bits == 16 and count == GROUP:
                with f.scratch("i32", 1) as (step,):
                    ask_ahead(f.i32(self.few.group).set(step), p, self.few, code, left, step)
            self.group(code, count, careful)
            f.add(code, self.few.group).add(left, -count)
            for pointer in self.a:
                f.add(pointer, 4 * count)
            f.br(again)

    def group(self, code: int, count: int, careful: bool | None) -> None:
        f, height = self.f, len(self.a)
        fours, xs = f.locals("v128", height), f.locals("v128", height)
        turns = [self.pairs()] if self.apart else self.sums
        for pointer, four in zip(self.a, fours, strict=True):
            f.emit(pointer).mem("v128.load")
            if self.few.bits == 16:
                f.emit(self.root, "f32x4.mul")
            f.set(four)

        def multiply(row: int, half: int, value: int) -> None:
            for n, (four, x, s) in enumerate(zip(fours, xs, turns[row % len(turns)], strict=True)):
                if half == 0:
                    if self.few.bits == 8:
                        f.emit(self.a[n]).mem("v128.load32_splat", 4 * row).set(x)
                    else:  # for a load of one wasmtime takes three instructions
                        f.emit(four, four).shuffle32(row, row, row, row).set(x)
                    if self.of_a:
                        f.emit(self.of_a[n], x, "f32x4.add").set(self.of_a[n])
                if row or not self.apart:
                    self.arithmetic.multiply_add(f, s[half], x, value)
                else:
                    f.emit(x, value, "f32x4.mul").set(s[half])

        values(f, self.few, code, self.kept, multiply, self.arithmetic is Arithmetic.FUSED, count, careful)
        if self.apart:
            self.add_pairs(self.sums[0], turns[0])
            f.release(*[x for pair in turns[0] for x in pair])
        f.release(*fours, *xs)

    def add_pairs(self, to: list[list[int]], pairs: list[list[int]]) -> None:
        for s, t in zip(to, pairs, strict=True):
            for half in (0, 1):
                self.f.emit(s[half], t[half], "f32x4.add").set(s[half])

    def add_to(self, totals: list[list[int]], steps: int) -> None:
        """Add the block, scaled; half floats by what `root` takes of them."""
        f = self.f
        for turn in self.sums[1:]:
            self.add_pairs(self.sums[0], turn)
        if self.few.bits == 16:
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


def _part(module: Module, height: int, few: FewBits, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    store_part(module)
    f, p = part_function(module, f"part{height}_{few.bits}bits")
    a, c, rows = row_pointers(f, p, height)
    block = FloatBlock(f, few, arithmetic, a)
    totals = [f.locals("v128", 2) for _ in a]
    code, k, left, step = f.locals("i32", 4)
    f.emit(p["size"]).i32(few.bits).emit("i32.mul").set(step).emit(p["b"]).set(code).emit(p["k"]).set(k)
    if few.bits == 16:
        f.emit(p["steps"]).mem("i32.load8_u").set(block.kept[-1])
    add_tile(f, p, c, totals, "")
    with f.block() as done, f.loop() as again:
        f.emit(k).i32(0).emit("i32.le_s").br_if(done)
        minimum(f, left, k, p["size"])
        if few.bits < 16:
            ask_ahead(f, p, few, code, k, step)
        f.emit(k, p["size"], "i32.sub").set(k)
        block.clear()
        for count in (GROUP, 3, 2, 1):
            block.groups(code, left, count, p)
        block.add_to(totals, p["steps"])
        f.add(p["steps"], few.steps).br(again)
    finish_tile(f, p, c, rows, totals, epilogue)
    return f


__all__ = ["PACK", "FloatBlock", "few_rows_nbits", "pack_nbits"]
