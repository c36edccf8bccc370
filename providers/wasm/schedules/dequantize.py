"""Weights of few bits, made floats a block at a time: a pack function for `gemm.matmul(kind="nbits")`.

Codes lie in panels of eight columns, [ceil(N / 8)][ceil(K / 4)] groups of four k:
    4 bits: 16 bytes, of which the low halves are k and k + 1, the high halves k + 2 and k + 3, eight columns each
    8 bits: 32 bytes, four k of eight columns
Steps: [ceil(N / 8)][blocks][2][8] floats, the scale of each column and what is added: w = code * scale + added.
"""

from __future__ import annotations

from ..printer.assembler import Function, Module
from .arithmetic import Arithmetic
from .register_tile import PANEL

GROUP = 4  # k at a time
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
            _load_steps(f, steps, scale, added)
            with f.block() as done, f.loop() as again:
                f.emit(left).i32(0).emit("i32.le_s").br_if(done)
                f.emit(in_block, "i32.eqz")
                with f.if_():
                    f.add(steps, 64).emit(p["size"]).set(in_block)
                    _load_steps(f, steps, scale, added)
                _group(f, bits, code, to, scale, added, arithmetic)
                f.add(code, groups_bytes(bits)).add(to, 4 * PANEL * GROUP).add(in_block, -GROUP).add(left, -GROUP)
                f.br(again)
            f.emit(p["codes"], codes_step, "i32.add").set(p["codes"])
            f.emit(p["steps"], steps_step, "i32.add").set(p["steps"])
            f.emit(p["to"], p["step"], "i32.add").set(p["to"])
            f.add(p["cols"], -PANEL).emit(p["cols"]).i32(0).emit("i32.gt_s").br_if(panels)
        return f

    return module.once(("pack_nbits", bits, arithmetic), make)


def _load_steps(f: Function, steps: int, scale: list[int], added: list[int]) -> None:
    for half in (0, 1):
        f.emit(steps).mem("v128.load", 16 * half).set(scale[half])
        f.emit(steps).mem("v128.load", 32 + 16 * half).set(added[half])


def _group(
    f: Function, bits: int, code: int, to: int, scale: list[int], added: list[int], arithmetic: Arithmetic
) -> None:
    """Four rows of a panel."""
    with f.scratch("v128", 3) as (both, short, total):
        for pair in (0, 1):
            if bits == 8:
                f.emit(code).mem("v128.load", 16 * pair).set(both)
            elif pair == 0:
                f.emit(code).mem("v128.load").tee(total).v128(b"\x0f" * 16).emit("v128.and").set(both)
            else:
                f.emit(code).mem("v128.load").i32(4).emit("i8x16.shr_u").set(both)
            for row, wide in enumerate(("low", "high")):
                f.emit(both, f"i16x8.extend_{wide}_i8x16_u").set(short)
                for half, part in enumerate(("low", "high")):
                    f.emit(added[half]).set(total)
                    with f.scratch("v128", 1) as (value,):
                        f.emit(short, f"i32x4.extend_{part}_i16x8_u", "f32x4.convert_i32x4_s").set(value)
                        arithmetic.multiply_add(f, total, value, scale[half])
                    f.emit(to, total).mem("v128.store", 32 * (2 * pair + row) + 16 * half)


__all__ = ["GROUP", "PACK", "groups_bytes", "pack_nbits"]
