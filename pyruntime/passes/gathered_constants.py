"""Rows that are gathered of dequantised weights are dequantised when they are read: the table stays codes."""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels, is_constant
from pyruntime.ir.expr import Expr, rewrite, walk
from pyruntime.ir.kernel import Block, Map, Tensor
from pyruntime.passes.map_fusion import substitute

LARGE = 1 << 16  # elements; smaller tables are made once
CHEAP = frozenset("at cast sub mul add div const index dim".split())  # not a table of sines


def gather_codes(block: Block) -> None:
    """In this block and its inner blocks, inline what makes more bytes of constants where values say what is read."""
    for kernel in all_kernels(block):
        if isinstance(kernel, Map):
            kernel.expr = rewrite(kernel.expr, _made_at_reading)


def _made_at_reading(e: Expr) -> Expr | None:
    if e.op != "at" or not any(x.op == "at" for c in e.args for x in walk(c)) or not _grows(e.value):
        return None
    return rewrite(substitute(e.value.kernel.expr, e.args), _made_at_reading)


def _grows(t: Tensor) -> bool:
    if not isinstance(t.kernel, Map) or not sh.is_static(t.shape) or sh.size(t.shape) < LARGE or not is_constant(t):
        return False
    given = sum(sh.size(x.shape) * x.dtype.size for x in t.kernel.inputs)
    return given < sh.size(t.shape) * t.dtype.size and {x.op for x in walk(t.kernel.expr)} <= CHEAP


__all__ = ["gather_codes"]
