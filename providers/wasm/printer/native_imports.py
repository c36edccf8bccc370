"""The functions in machine code (native/) as WebAssembly sees them: imports of its modules, which pages do not have.
Each returns whether it has done the work; if not, the WebAssembly that follows the call does it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from .assembler import Function, Module
from .native_words import LANES, Import, operands_of
from .values import V128, constant, i32x4, shuffle32

UNUSED = "unused"  # the name of imports that a module does not call, so that the host need not write their code
# Operands of block functions (schedules/register_tile.py), all i32, less the ones that only their caller uses
#   step       bytes between the k of B. Panels have 32; with 32 for ldb, B is a matrix in rows
#   scratch    the address of k * 128 bytes of the first memory, or 0: rows after the first tile read B from a copy
#   epilogue   bits BY_ROW to HAS_HIGH
#   low, high  clip bounds, the bits of floats
#   memories   numbers of the linear memories of a, b, c and bias, a byte each (`memory_variants.py` sets them)
BLOCK = (
    "a", "lda", "b", "ldb", "k", "c", "ldc", "cols", "rows", "flags", "bias", "row", "col",
    "step", "scratch", "epilogue", "low", "high", "memories",
)  # fmt: skip
# Of `depthwise`, for consecutive planes of y, each of its own channel and filter:
#   x, w, y    the first plane's; bias: its filter's
#   ih to pw   as in schedules/depthwise.py
#   epilogue   BY_ROW or 0; low, high: clip bounds, infinite where there are none
DEPTHWISE = (
    "x", "w", "y", "bias", "planes", "ih", "iw", "oh", "ow", "kh", "kw", "sh", "sw", "dh", "dw", "ph", "pw",
    "epilogue", "low", "high", "memories",
)  # fmt: skip
# Of `windows`, which gathers the right operand of a convolution for up to WINDOW_COLUMNS positions of y:
#   x         the first of `channels` planes
#   ih to pw  as in schedules/depthwise.py
#   oy, ox    the first position
#   to        rows [channels * kh * kw] that are WINDOW_STEP bytes apart, of which all bytes may be written
WINDOWS = (
    "x", "channels", "ih", "iw", "ow", "kh", "kw", "sh", "sw", "dh", "dw", "ph", "pw", "oy", "ox", "cols", "to",
    "memories",
)  # fmt: skip
WINDOW_COLUMNS, WINDOW_STEP = 32, 160
# Of products of quantised rows by codes (schedules/gemv_integers.py):
#   a, lda, b, ldb  records of the first row, codes of the first panel, and the bytes between them
#   steps           of the first panel's first block of k; zeros: 1 if they have addends
#   blocks, rounds  of a row; of ROUND k in a block; last: in the last block
CODES = (
    "a", "lda", "b", "ldb", "steps", "c", "ldc", "rows", "cols", "blocks", "rounds", "last", "zeros", "memories",
)  # fmt: skip
BY_ROW, BY_COLUMN, HAS_LOW, HAS_HIGH = 1, 2, 4, 8
# Block functions by arithmetic (schedules/arithmetic.py). Those of bytes multiply unsigned codes of activations by
# signed weights; those of integers ignore the epilogue
BLOCKS = {"FUSED": "block", "INT16": "block_int16", "INT8": "block_int8", "INT8_ROWS": "block_int8_rows"}


SPARE = 48  # imports of a module that functions of elementwise loops may take (native_lanes.py)


FUNCTIONS = {
    **dict.fromkeys(BLOCKS.values(), Import(BLOCK, ("a", "b", "c", "bias"))),
    **dict.fromkeys(("codes4x1", "codes4x2", "codes8x1", "codes8x2"), Import(CODES, ("a", "b", "steps", "c"))),
    "depthwise": Import(DEPTHWISE, ("x", "w", "y", "bias")),
    "windows": Import(WINDOWS, ("x", "to")),
}


def import_of(name: str) -> Import | None:
    """The operands of a function, or None if there is none of this name."""
    return operands_of(name) if name.startswith(LANES) else FUNCTIONS.get(name)


def import_into(module: Module, names: Iterable[str]) -> None:
    """Add imports of functions to a module that has no functions yet. Until they are called they have no operands."""
    for name in [*names, *[f"{LANES}{n}" for n in range(SPARE)]]:
        module.imported(name, ()).name = UNUSED


def function(module: Module, name: str) -> Function:
    """An import, to be called."""
    f = module.imports[name]
    if f.name == UNUSED:
        f = Function(module, f.index, name, ["i32"] * len(FUNCTIONS[name].operands), ["i32"])
        module.functions[f.index] = module.imports[name] = f
    return f


def elementwise_function(module: Module, name: str) -> Function | None:
    """The import of a function of elementwise loops, to be called, or None if the module has no spare one."""
    if name not in module.memo:
        spare = [key for key, f in module.imports.items() if key.startswith(LANES) and f.name == UNUSED]
        found = import_of(name)
        if not spare or found is None:
            return None
        index = module.imports[spare[0]].index
        f = Function(module, index, name, ["i32"] * len(found.operands), ["i32"])
        module.functions[index] = module.imports[spare[0]] = module.memo[name] = f
    return module.memo[name]


def call_block(
    f: Function, name: str, p: Mapping[str, Any], bias: str, low: float | None, high: float | None
) -> None:  # fmt: skip
    """Call a block function and leave its result on the stack. p: the operands by name; bias, low, high: of the
    epilogue. B are panels, unless p has `step` and `scratch`"""
    p = {"step": constant(32), "scratch": constant(0), **p}
    word = {"": 0, "row": BY_ROW, "col": BY_COLUMN}[bias]
    word |= (low is not None) * HAS_LOW | (high is not None) * HAS_HIGH
    operands = [p[name] for name in BLOCK[: BLOCK.index("epilogue")]]
    f.call(function(f.module, name), *operands, *map(constant, (word, bits_of(low or 0.0), bits_of(high or 0.0), 0)))


def call_depthwise(f: Function, p: Mapping[str, Any], bias: bool, low: float | None, high: float | None) -> None:
    """Call `depthwise` and leave its result on the stack. p: the operands before the epilogue by name"""
    operands = [p[name] for name in DEPTHWISE[: DEPTHWISE.index("epilogue")]]
    bounds = bits_of(-math.inf if low is None else low), bits_of(math.inf if high is None else high)
    f.call(function(f.module, "depthwise"), *operands, *map(constant, (bias * BY_ROW, *bounds, 0)))


def call_function(f: Function, name: str, p: Mapping[str, Any]) -> None:
    """Call a function and leave its result on the stack. p: the operands by name"""
    f.call(function(f.module, name), *[p[each] for each in FUNCTIONS[name].operands[:-1]], constant(0))


def bits_of(value: float) -> int:
    """The bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def multiply_bytes(f: Function, total: V128, signed: V128, unsigned: V128) -> None:
    """total += products of bytes, the sum of four a lane, exactly: what replaces machine code that has done nothing.
    wasmtime's dot product saturates."""
    with f.scratch("v128", 2) as halves:
        for half, part in zip(halves, ("low", "high"), strict=True):
            f.emit(signed, f"i16x8.extend_{part}_i8x16_s", unsigned, f"i16x8.extend_{part}_i8x16_u")
            f.emit("i32x4.dot_i16x8_s").set(half)
        low, high = halves
        f.set(total, i32x4.add(total, i32x4.add(shuffle32(low, high, 0, 2, 4, 6), shuffle32(low, high, 1, 3, 5, 7))))


def memories_word(name: str, kinds: tuple[int, ...]) -> int:
    """The operand `memories` of a function, given the number of the memory of each operand, 0 for numbers. If it has no
    byte for one, -1: the last memory, which does not exist, so that the function declines."""
    found = import_of(name)
    assert found is not None
    operands, addresses = found
    if any(kind and each not in addresses for each, kind in zip(operands, kinds, strict=True)):
        return -1
    return sum(kinds[operands.index(each)] << 8 * n for n, each in enumerate(addresses))
