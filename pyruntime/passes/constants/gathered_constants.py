"""Rows that are gathered of dequantised weights are dequantised when they are read: the table stays codes. So do, for
GPUs, weights of products, which routines do not see there."""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels, is_constant
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, is_view, rewrite, walk
from pyruntime.ir.kernel import Block, Map, Reduce, Tensor
from pyruntime.ir.packed_codes import LARGE
from pyruntime.passes.fusion.map_fusion import substitute

CHEAP = frozenset("at cast sub mul add div and shr xor const index dim".split())  # not a table of sines


def gather_codes(block: Block, products: bool = False) -> None:
    """In this block and its inner blocks, inline what makes more bytes of constants where values say what is read, and
    where matrices are multiplied if asked for."""
    for kernel in all_kernels(block):
        if isinstance(kernel, Map):
            kernel.expr = rewrite(kernel.expr, _made_at_reading)
        elif products and isinstance(kernel, Reduce) and kernel.op == "sum" and kernel.expr.op == "mul":
            kernel.expr = rewrite(kernel.expr, _made_in_products)


def _made_in_products(e: Expr) -> Expr | None:
    """An element of a matrix, also through a transpose."""
    if e.op != "at" or not isinstance(e.value.kernel, Map):
        return None
    t = e.value
    inner = substitute(t.kernel.expr, e.args)
    if t.rank == 2 and (t.dtype is F32 or t.dtype.bits < 8) and _grows(t):
        return rewrite(inner, _made_in_products)
    return _made_in_products(inner) if inner.op == "at" and is_view(t.kernel.expr) else None


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
