"""Tiles of quantised rows (gemv_integers.py) for few_rows.py: codes become int16 once for all rows of a tile.

The integer sums of a block of k are exact, and its floats are added in the order of one row: a row of a batch has the
bits that it has alone. Float sums are in memory, for registers hold the integer sums only.
"""

from __future__ import annotations

from ..printer.assembler import Function, Module, once
from ..printer.values import ZERO, minimum
from .arithmetic import Arithmetic
from .few_rows import TileWords
from .gemv_integers import CODE, HEADER, IntegerBlock
from .register_tile import AHEAD, clamped_row, load_ahead
from .weight_codes import WeightCodes


@once
def integer_tile(module: Module, height: int, layout: WeightCodes, arithmetic: Arithmetic) -> Function:
    """A function of TileWords, with one digit; a: the first row's records, lda: the bytes between those of two rows."""
    f, p = module.inner(f"few_integers{layout.bits}_{height}", TileWords)
    a, (left,) = f.pointers(height), f.integers(1)
    for row, address in enumerate(a):
        f.set(address, p.a + clamped_row(f, p.rows, row) * p.lda)
    block = IntegerBlock(f, layout, arithmetic, a)
    for n in range(2 * height):
        f.store(p.sums, ZERO, 16 * n)
    with f.if_(p.k), f.loop() as again:
        f.set(left, minimum(p.k, p.size)).set(p.k, p.k - left)
        with f.if_((p.b & AHEAD - 1).lt_u(p.size * layout.k_bytes)):
            load_ahead(f, p.b, p.ldb, AHEAD)
        block.multiply(p.b, left)
        totals = [f.vectors(2) for _ in a]
        places = [(s, 16 * n) for n, s in enumerate(s for pair in totals for s in pair)]
        for s, offset in places:
            f.set(s, p.sums.load(offset))
        block.add_to(totals, p.steps)
        for s, offset in places:
            f.store(p.sums, s, offset)
        for address in a:
            f.add(address, p.size * (CODE * layout.digits) + HEADER)
        f.add(p.steps, layout.step_bytes).br_if(again, p.k)
    return f
