"""Loads and stores of vec4: four contiguous elements at an offset divisible by 4.

In the loop form `load4` (value: buffer, args: element offset) loads four elements, `lane` (value: 0 … 3) selects one of
them, and a store of `vec` (args: four values) writes four.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.codegen.addressing import split
from pyruntime.codegen.schedule import Group
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, rewrite, walk
from pyruntime.ir.kernel import root
from pyruntime.ir.shape import AnyDim

from ..printer.storage import is_packed

WIDTH = 4


def divisible(d: AnyDim) -> bool:
    """Whether a dim is divisible by 4 for all values of its symbols."""
    return d % WIDTH == 0 if isinstance(d, int) else all(c % WIDTH == 0 for _, c in d.terms)


def aligned(at: Expr, groups: Iterable[Group], axis: int, f16: bool) -> bool:
    """Whether an access reads an aligned vec4 when the index of the group with this axis takes four consecutive values
    from a multiple of 4."""
    t = at.value
    base, coefficients, opaque = split(t, at.args)
    if is_packed(t.dtype, f16) or not divisible(base) or not divisible(sh.size(root(t).shape)):
        return False
    if not all(divisible(stride) and _is_fixed(e, axis) for e, stride in opaque):
        return False
    for g in groups:
        stride = coefficients.get(("index", g.axis), 0)
        if not (stride == 1 and divisible(g.extent) if g.axis == axis else divisible(stride)):
            return False
    return True


def _is_fixed(coordinate: Expr, axis: int) -> bool:
    """Whether a coordinate does not depend on an axis, and loads nothing."""
    return not any(x.op == "at" or x.op == "index" and x.value == axis for x in walk(coordinate))


def load4_of(e: Expr) -> Expr:
    """A lowered expression of one load, with a load of the vec4 that starts there."""
    return rewrite(e, lambda x: Expr("load4", x.args, x.dtype, x.value) if x.op == "load" else None)


def lane(four: Expr, n: int) -> Expr:
    return Expr("lane", (four,), four.dtype, n)
