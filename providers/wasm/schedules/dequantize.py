"""Weights of few bits: made floats a block at a time, a pack function for `gemm.matmul(kind="nbits4")`, or in registers
where few rows are multiplied.

Codes lie in panels of eight columns, [ceil(N / 8)][ceil(K / 4)] groups of four k:
    4 bits: 16 bytes, of which the low halves are k and k + 1, the high halves k + 2 and k + 3, eight columns each
    8 bits: 32 bytes, four k of eight columns
    16 bits: 64 bytes, the same; float16, without steps
Steps: [ceil(N / 8)][blocks][2][8] floats, the scale of each column and what is added: w = code * scale + added.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ..printer.assembler import Function, Module
from .arguments import minimum
from .arithmetic import Arithmetic
from .register_tile import PANEL, Epilogue, block_function, call_block, finish_tile, row_pointers, store_part

GROUP = 4  # k at a time
FEW = 2  # rows
# (args, b, steps, k0, k, K, cols, to, step): codes and steps of the first panel; a block of k0..k0+k of each panel;
# size: k in a block of one scale
PACK = ("codes", "steps", "k0", "k", "all", "size", "cols", "to", "step")


def groups_bytes(bits: int) -> int:
    return GROUP * PANEL * bits // 8


def pack_nbits(module: Module, bits: int, arithmetic: Arithmetic) -> Function:
    """The pack function for 4 or 8 bits. Writes whole groups: up to three rows past k."""

    def make() -> Function:
        f = module.function(f"pack_{bits}bits", ["i32"] * len(PACK), export=False)
        p = dict(zip(PACK, f.params, strict=True))
        code, steps, to, left, in_block, codes_step, steps_step = f.locals("i32", 7)
        scale, added = f.locals("v128", 2), f.locals("v128", 2)
        f.emit(p["all"]).i32(GROUP - 1).emit("i32.add").i32(2).emit("i32.shr_u").i32(groups_bytes(bits))
        f.emit("i32.mul").set(codes_step)
        f.emit(p["all"], p["size"], "i32.add").i32(1).emit("i32.sub", p["size"], "i32.div_u").i32(8 * PANEL)
        f.emit("i32.mul").set(steps_step)
        with f.loop() as panels:
            f.emit(p["codes"], p["k0"]).i32(2).emit("i32.shr_u").i32(groups_bytes(bits)).emit("i32.mul", "i32.add")
            f.set(code).emit(p["steps"], p["k0"], p["size"], "i32.div_u").i32(64).emit("i32.mul", "i32.add").set(steps)
            f.emit(p["to"]).set(to).emit(p["k"]).set(left)
            f.emit(p["size"], p["k0"], p["size"], "i32.rem_u", "i32.sub").set(in_block)
            _load_steps(f, bits, steps, scale, added)
            with f.block() as done, f.loop() as again:
                f.emit(left).i32(0).emit("i32.le_s").br_if(done)
                f.emit(in_block, "i32.eqz")
                with f.if_():
                    f.add(steps, 64).emit(p["size"]).set(in_block)
                    _load_steps(f, bits, steps, scale, added)

                def store(row: int, half: int, w: int) -> None:
                    f.emit(to, w).mem("v128.store", 32 * row + 16 * half)

                _group(f, bits, code, scale, added, arithmetic, store)
                f.add(code, groups_bytes(bits)).add(to, 4 * PANEL * GROUP).add(in_block, -GROUP).add(left, -GROUP)
                f.br(again)
            f.emit(p["codes"], codes_step, "i32.add").set(p["codes"])
            f.emit(p["steps"], steps_step, "i32.add").set(p["steps"])
            f.emit(p["to"], p["step"], "i32.add").set(p["to"])
            f.add(p["cols"], -PANEL).emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
        return f

    return module.once(("pack_nbits", bits, arithmetic), make)


def _load_steps(f: Function, bits: int, steps: int, scale: list[int], added: list[int]) -> None:
    """Of float16: constants that `_half_floats` names."""
    if bits == 16:
        for to, word in zip((*scale, *added), (0x77800000, 0x8FFFE000, 0x0F800000, 0x70000000), strict=True):
            f.v128(struct.pack("<I", word) * 4).set(to)
        return
    for half in (0, 1):
        f.emit(steps).mem("v128.load", 16 * half).set(scale[half])
        f.emit(steps).mem("v128.load", 32 + 16 * half).set(added[half])


def _group(
    f: Function, bits: int, code: int, scale: list[int], added: list[int], arithmetic: Arithmetic,
    use: Callable[[int, int, int], None], rows: int = GROUP,
) -> None:  # fmt: skip
    """The first rows of a group; use: of a row, a half of its columns, and the local that holds their weights."""
    if bits == 16:
        _half_floats(f, code, (*scale, *added), use, rows)
        return
    with f.scratch("v128", 4) as (both, short, value, w):
        for pair in range(-(-rows // 2)):
            if bits == 8:
                f.emit(code).mem("v128.load", 16 * pair).set(both)
            elif pair == 0:
                f.emit(code).mem("v128.load").v128(b"\x0f" * 16).emit("v128.and").set(both)
            else:
                f.emit(code).mem("v128.load").i32(4).emit("i8x16.shr_u").set(both)
            for row, wide in enumerate(("low", "high")[: rows - 2 * pair]):
                f.emit(both, f"i16x8.extend_{wide}_i8x16_u").set(short)
                for half, part in enumerate(("low", "high")):
                    f.emit(short, f"i32x4.extend_{part}_i16x8_u", "f32x4.convert_i32x4_s").set(value)
                    f.emit(added[half]).set(w)
                    arithmetic.multiply_add(f, w, value, scale[half])
                    use(2 * pair + row, half, w)


def _half_floats(
    f: Function, code: int, words: tuple[int, ...], use: Callable[[int, int, int], None], rows: int
) -> None:
    """words: 2^112, which rebiases exponents; a half's sign and magnitude once it is shifted; its exponent, all ones in
    infinities and NaN; what that lacks of a float's. Groups that have such are looked for first: weights have none."""
    rebias, kept, special, more = words
    with f.scratch("v128", rows + 1) as (w, *both):
        exponents = f.v128(struct.pack("<H", 0x7C00) * 8)
        for row, x in enumerate(both):
            exponents.emit(code).mem("v128.load", 16 * row).tee(x).v128(struct.pack("<H", 0x7C00) * 8).emit("v128.and")
            if row:
                f.emit("i16x8.max_s")
        f.emit("i16x8.eq", "v128.any_true")

        def floats(careful: bool) -> None:
            for row, x in enumerate(both):
                for half, part in enumerate(("low", "high")):
                    f.emit(x, f"i32x4.extend_{part}_i16x8_s").i32(13).emit("i32x4.shl", kept, "v128.and")
                    if careful:
                        f.tee(w).emit(special, "v128.and", special, "i32x4.eq", more, "v128.and", w, "v128.or")
                    f.emit(rebias, "f32x4.mul").set(w)
                    use(row, half, w)

        with f.if_():
            floats(careful=True)
            f.otherwise()
            floats(careful=False)


# ── few rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def few_rows_nbits(
    module: Module, bits: int, arithmetic: Arithmetic, epilogue: Epilogue, words: tuple[int, int]
) -> Function:
    """A block function over codes for up to FEW rows, whose weights are made in registers.

    words: of the argument block, the steps and how many k one has
    """

    def make() -> Function:
        f, p = block_function(module, "few_rows_nbits")
        f.emit(p["rows"]).i32(1).emit("i32.eq")
        with f.if_():
            call_block(f, _strip(module, 1, bits, arithmetic, epilogue, words), p)
            f.otherwise()
            call_block(f, _strip(module, FEW, bits, arithmetic, epilogue, words), p)
        return f

    return module.once(("few_rows_nbits", bits, arithmetic, epilogue.key(), words), make)


def _strip(
    module: Module, height: int, bits: int, arithmetic: Arithmetic, epilogue: Epilogue, words: tuple[int, int]
) -> Function:
    store_part(module)
    f, p = block_function(module, f"strip{height}_{bits}bits")
    a, c, rows = row_pointers(f, p, height)
    steps, size, k, left = f.locals("i32", 4)
    turns = 2 if height == 1 else 1  # sums that take turns, to hide latency
    sums = [[f.locals("v128", 2) for _ in range(height)] for _ in range(turns)]
    scale, added = f.locals("v128", 2), f.locals("v128", 2)

    def groups(count: int) -> None:
        """So many k of each group while there are."""
        xs = f.locals("v128", height)

        def multiply(row: int, half: int, w: int) -> None:
            for pointer, x, s in zip(a, xs, sums[row % turns], strict=True):
                if half == 0:
                    f.emit(pointer).mem("v128.load32_splat", 4 * row).set(x)
                arithmetic.multiply_add(f, s[half], x, w)

        with f.block() as out, f.loop() as again:
            f.emit(left).i32(count).emit("i32.lt_s").br_if(out)
            _group(f, bits, p["b"], scale, added, arithmetic, multiply, count)
            f.add(p["b"], groups_bytes(bits)).add(left, -count)
            for pointer in a:
                f.add(pointer, 4 * count)
            f.br(again)
        f.release(*xs)

    f.emit(p["args"]).mem("i32.load", 4 * words[1]).set(size)
    f.emit(p["k"], size, "i32.add").i32(1).emit("i32.sub", size, "i32.div_u", p["col"], "i32.mul").i32(8)
    f.emit("i32.mul", p["args"]).mem("i32.load", 4 * words[0]).emit("i32.add").set(steps)
    with f.loop() as panels:
        for total in (total for turn in sums for pair in turn for total in pair):
            f.f32x4(0).set(total)
        f.emit(p["k"]).set(k)
        with f.block() as done, f.loop() as again:
            f.emit(k).i32(0).emit("i32.le_s").br_if(done)
            minimum(f, left, k, size)
            f.emit(k, size, "i32.sub").set(k)
            _load_steps(f, bits, steps, scale, added)
            f.add(steps, 8 * PANEL)
            for count in (GROUP, 3, 2, 1):
                groups(count)
            f.br(again)
        for pointer in a:
            f.emit(pointer, p["k"]).i32(2).emit("i32.shl", "i32.sub").set(pointer)
        for turn in sums[1:]:
            for s, t in zip(sums[0], turn, strict=True):
                for half in (0, 1):
                    f.emit(s[half], t[half], "f32x4.add").set(s[half])
        finish_tile(f, p, c, rows, sums[0], epilogue, "f32x4.add")
        f.add(p["col"], PANEL)
        for address in c:
            f.add(address, 4 * PANEL)
        f.emit(p["cols"]).i32(PANEL).emit("i32.sub").tee(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
    return f


__all__ = ["FEW", "GROUP", "PACK", "few_rows_nbits", "groups_bytes", "pack_nbits"]
