"""Calls machine code for loops that sum products: y[j] = Σk x[k] · matrix[k, j], also for several rows of x and y."""

from __future__ import annotations

from pyruntime.codegen.loop_ir import LoopCode
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, rewrite
from pyruntime.ir.kernel import Accum, For, Let, Store

from . import native_imports
from .native_imports import BLOCK, BLOCKS
from .scalar import Scalar
from .vector import ONE, ZERO, growth

FIRST_AND_LAST = 3  # flags of a block of all k
Place = tuple[int, Expr]  # a buffer and an offset


def call_product(scalar: Scalar, code: LoopCode, loop: For, rows: For | None = None) -> bool:
    """Leave on the stack whether machine code has done the work of a vector loop, or of a loop over rows around it.
    Returns whether there is such code."""
    values: dict[int, Expr] = {}
    for s in () if rows is None else rows.body[:-1]:
        if not isinstance(s, Let) or s.mutable:
            return False
        values[s.var] = _with(s.value, values)
    found = _product(loop, code)
    if found is None:
        return False
    terms, *places = found
    a, b, y = [(buffer, _with(offset, values)) for buffer, offset in places]
    operands = _operands(a, b, y, terms, loop, rows) or _operands(b, a, y, terms, loop, rows)
    if operands is None:
        return False
    counters = dict.fromkeys([terms.var, loop.var, *([] if rows is None else [rows.var])], ZERO)
    for name in BLOCK:
        operand = operands.get(name, ZERO)
        if isinstance(operand, Expr):
            scalar.root(_with(operand, values))
        else:
            offset = _with(operand[1], counters)
            scalar.begin(offset)
            scalar.address(operand[0], offset, F32)
            scalar.end()
    scalar.f.call(native_imports.function(scalar.f.module, BLOCKS["FUSED"]))
    return True


def _product(loop: For, code: LoopCode) -> tuple[For, Place, Place, Place] | None:
    """The loop over terms, the factors and the result of a vector loop that only stores sums of products."""
    match loop.body:
        case [
            Let(mutable=True) as total,
            For(body=[Accum(op="sum") as sum_]) as terms,
            Let() as made,
            Store() as store,
        ]:
            pass
        case _:
            return None
    zero, is_stored = total.value, made.value.op == store.value.op == "var"
    if zero.op != "const" or zero.value != 0 or sum_.var != total.var or not is_stored:
        return None
    if made.value.value != total.var or store.value.value != made.var or sum_.value.op != "mul":
        return None
    a, b = sum_.value.args
    if code.buffers[store.target][0] is not F32:
        return None
    if any(e.op != "load" or e.dtype is not F32 or e.value == store.target for e in (a, b)):
        return None
    return terms, (a.value, a.args[0]), (b.value, b.args[0]), (store.target, store.coords[0])


def _operands(
    x: Place, matrix: Place, y: Place, terms: For, loop: For, rows: For | None
) -> dict[str, Expr | Place] | None:  # fmt: skip
    """Operands of the block function that are not 0; None if the factors are no such row and matrix."""
    k, j, r = terms.var, loop.var, -1 if rows is None else rows.var
    step, lda, ldc = growth(matrix[1], k), growth(x[1], r), growth(y[1], r)
    fixed = [(x[1], k, ONE), (x[1], j, ZERO), (matrix[1], j, ONE), (matrix[1], r, ZERO), (y[1], j, ONE)]
    rates = [(growth(offset, var), rate) for offset, var, rate in fixed]
    if step is None or lda is None or ldc is None or any(g is None or g.key() != rate.key() for g, rate in rates):
        return None
    strides = {"step": step * 4, "lda": lda * 4, "ldc": ldc * 4, "ldb": ONE * 32, "flags": ONE * FIRST_AND_LAST}
    extents = {"k": terms.extent, "cols": loop.extent, "rows": ONE if rows is None else rows.extent}
    return {"a": x, "b": matrix, "c": y, **strides, **extents}


def _with(e: Expr, values: dict[int, Expr]) -> Expr:
    """The expression with values in place of variables."""
    return rewrite(e, lambda v: values.get(v.value) if v.op == "var" else None)
