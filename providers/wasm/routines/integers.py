"""Integer products: operands that fit int16 are multiplied in pairs along k (`i32x4.dot_i16x8_s`), exactly.

An int8 product with a zero point has operands of nine bits, which no 8-bit instruction takes in full; int16 pairs do
8 products an instruction, twice what float32 does.
"""

from __future__ import annotations

from pyruntime import shape as sh
from pyruntime.dtype import BOOL, I16, I32, bounds
from pyruntime.expr import Expr, cast, const, dim, guard, index
from pyruntime.kernel import Call, Kernel, Map, Tensor

from ..tile import PANEL
from .base import made_map


def interval(e: Expr) -> tuple[int, int] | None:
    """Bounds of an integer expression as far as types and constants tell."""
    if e.op == "const" and e.dtype.is_int:
        return e.value, e.value
    if e.op == "cast" and e.dtype is I32:
        return interval(e.args[0])
    if e.op == "at" and isinstance(e.value.kernel, Map) and e.dtype is I32:
        return interval(e.value.kernel.expr)
    if e.op in ("sub", "add") and e.dtype is I32:
        a, b = interval(e.args[0]), interval(e.args[1])
        if a and b:
            return (a[0] - b[1], a[1] - b[0]) if e.op == "sub" else (a[0] + b[0], a[1] + b[1])
        return None
    if e.dtype is BOOL:
        return 0, 1
    return bounds(e.dtype) if e.dtype is not None and e.dtype.is_int and e.dtype.bits <= 16 else None


def is_short(t: Tensor) -> bool:
    """Whether all elements are known to fit int16."""
    found = interval(t.at(*[const(0, I32)] * t.rank))
    return found is not None and -(1 << 15) <= found[0] and found[1] < 1 << 15


def pairs_of(t: Tensor, node: str) -> Map:
    """Rows as int16, padded to an even number."""
    k = t.shape[-1]
    even = sh.ceildiv(k, 2) * 2
    place = [index(n) for n in range(t.rank)]
    e = cast(t.at(*place), I16)
    if even != k:
        e = guard(place[-1] < dim(k), e, const(0, I16))
    return made_map((*t.shape[:-1], even), e, node)


def panels_of(t: Tensor, node: str) -> Map:
    """[ceil(n / 8)][ceil(k / 2)][8][2] int16 of a matrix (1, …, 1, k, n), zero padded."""
    k, n = t.shape[-2:]
    row, column = index(1) * 2 + index(3), index(0) * PANEL + index(2)
    inside = (row < dim(k)) & (column < dim(n))
    e = guard(inside, cast(t.at(*[0] * (t.rank - 2), row, column), I16), const(0, I16))
    return made_map((sh.ceildiv(n, PANEL), sh.ceildiv(k, 2), PANEL, 2), e, node)


def prepare_product(call: Call) -> list[Kernel]:
    """Both operands of an int32 product, if they fit; the call then has the attribute "pairs" and k, n in it."""
    a, b = call.args[:2]
    if a is None or b is None or not (is_short(a) and is_short(b)) or any(d != 1 for d in b.shape[:-2]):
        return []
    rows, panels = pairs_of(a, call.node), panels_of(b, call.node)
    call.args = (rows.out, panels.out)
    call.attrs = {**call.attrs, "pairs": True, "packed1": True}
    return [rows, panels]


__all__ = ["interval", "is_short", "panels_of", "prepare_product"]
