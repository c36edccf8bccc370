"""Dequantises gathered rows of quantised tables at each read, so that an embedding table stays quantised in memory.

For GPUs it treats weights of matrix products in the same way, because GPUs have no routine that dequantises them.
"""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels, is_constant
from pyruntime.ir.dtype import F32, I8, I32, U8
from pyruntime.ir.expr import Expr, is_view, rewrite, substitute, walk
from pyruntime.ir.kernel import Block, Map, Reduce, Tensor
from pyruntime.ir.packed_codes import LARGE

# cheap to repeat, unlike a table of sines
CODES = frozenset("at cast sub const index".split())
CHEAP = frozenset("at cast sub mul add div and shr xor const index dim".split())


def dequantise_at_reads(block: Block, products: bool = False) -> None:
    """Inline dequantisation of constants where other values select the rows to read, in this block and its inner
    blocks. products: also into sums of products."""
    for kernel in all_kernels(block):
        if isinstance(kernel, Map) and any(_enlarges(t) for t in kernel.inputs):
            kernel.expr = rewrite(kernel.expr, _inline_in_gather)
        elif products and isinstance(kernel, Reduce) and kernel.op == "sum" and kernel.expr.op == "mul":
            kernel.expr = rewrite(kernel.expr, _inline_in_product)


def _inline_in_product(e: Expr) -> Expr | None:
    """An element of a dequantised matrix, also through a transpose, computed from its codes."""
    if e.op != "at" or not isinstance(e.value.kernel, Map):
        return None
    t = e.value
    inner = substitute(t.kernel.expr, e.args)
    if t.rank == 2 and (t.dtype in (F32, I32) or t.dtype.bits < 8) and _enlarges(t) or _is_code(t):
        return rewrite(inner, _inline_in_product)
    return _inline_in_product(inner) if inner.op == "at" and is_view(t.kernel.expr) else None


def _is_code(t: Tensor) -> bool:
    """Whether this is an 8-bit code less a zero point, as integer products read it."""
    e = t.kernel.expr if isinstance(t.kernel, Map) else None
    if e is None or t.dtype is not I32 or e.op not in ("sub", "cast"):
        return False
    loads = [x for x in walk(e) if x.op == "at"]
    return {x.op for x in walk(e)} <= CODES and all(x.dtype in (I8, U8) for x in loads)


def _inline_in_gather(e: Expr) -> Expr | None:
    if e.op != "at" or not _enlarges(e.value) or not any(x.op == "at" for c in e.args for x in walk(c)):
        return None
    return rewrite(substitute(e.value.kernel.expr, e.args), _inline_in_gather)


def _enlarges(t: Tensor) -> bool:
    """Whether this large tensor is a cheap map of constants, and takes more bytes than these constants."""
    if not isinstance(t.kernel, Map) or not sh.is_static(t.shape) or sh.size(t.shape) < LARGE or not is_constant(t):
        return False
    read = sum(sh.size(x.shape) * x.dtype.size for x in t.kernel.inputs)
    return read < sh.size(t.shape) * t.dtype.size and {x.op for x in walk(t.kernel.expr)} <= CHEAP
