"""The functions in machine code (native/) as WebAssembly sees them: imports of its modules, which pages do not have.
Each returns whether it has done the work; if not, the WebAssembly that follows the call does it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from .assembler import Function, Module
from .values import constant

# Of `block`, all i32: those of a block function (schedules/register_tile.py), less the ones that only its caller uses
#   epilogue   bits BY_ROW to HAS_HIGH
#   low, high  clip bounds, the bits of floats
#   memories   numbers of the linear memories of a, b, c and bias, a byte each (`memory_variants.py` sets them)
BLOCK = (
    "a", "lda", "b", "ldb", "k", "c", "ldc", "cols", "rows", "flags", "bias", "row", "col",
    "epilogue", "low", "high", "memories",
)  # fmt: skip
ADDRESSES = ("a", "b", "c", "bias")
BY_ROW, BY_COLUMN, HAS_LOW, HAS_HIGH = 1, 2, 4, 8


def import_into(module: Module) -> None:
    """Add the imports to a module that has no functions yet."""
    module.imported("block", ["i32"] * len(BLOCK), ["i32"])


def call_block(f: Function, p: Mapping[str, Any], bias: str, low: float | None, high: float | None) -> None:
    """Call `block` and leave its result on the stack. p: the operands by name; bias, low, high: of the epilogue"""
    word = {"": 0, "row": BY_ROW, "col": BY_COLUMN}[bias]
    word |= (low is not None) * HAS_LOW | (high is not None) * HAS_HIGH
    bounds = [struct.unpack("<I", struct.pack("<f", bound or 0.0))[0] for bound in (low, high)]
    operands = [p[name] for name in BLOCK[: BLOCK.index("epilogue")]]
    f.call(f.module.imports["block"], *operands, *map(constant, (word, *bounds, 0)))


def memories_word(kinds: tuple[int, ...]) -> int:
    """The operand `memories`, given the number of the memory of each operand, 0 for numbers."""
    return sum(kinds[BLOCK.index(name)] << 8 * n for n, name in enumerate(ADDRESSES))
