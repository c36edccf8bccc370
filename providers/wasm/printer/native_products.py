"""Calls machine code for vector loops that sum products: y[j] = Σk x[k] · matrix[k, j]."""

from __future__ import annotations

from typing import NamedTuple

from pyruntime.codegen.loop_ir import LoopCode
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Accum, For, Let, Store

from .native_imports import BLOCK, BLOCKS, function
from .scalar import Scalar
from .vector import ONE, ZERO, growth

FIRST_AND_LAST = 3  # flags of a block of all k


class _Product(NamedTuple):
    """The loop over k, the loads, the elements between rows of the matrix, and the store of a sum."""

    terms: For
    x: Expr
    matrix: Expr
    step: Expr
    store: Store


def call_product(scalar: Scalar, code: LoopCode, loop: For, columns: int) -> bool:
    """Leave on the stack whether machine code has done the work of a vector loop. Returns whether there is such code.
    columns: the local of the loop's extent; its counter is 0"""
    p = _product(loop, code)
    if p is None:
        return False
    f = scalar.f
    if p.terms.var not in scalar.variables:
        scalar.variables[p.terms.var] = f.local("i32")
    f.i32(0).set(scalar.variables[p.terms.var])
    places = {"a": (p.x.value, p.x.args[0]), "b": (p.matrix.value, p.matrix.args[0])}
    places["c"] = (p.store.target, p.store.coords[0])
    numbers = {"ldb": 32, "rows": 1, "flags": FIRST_AND_LAST}
    for name in BLOCK:
        if name in places:
            scalar.begin(places[name][1])
            scalar.address(*places[name], F32)
            scalar.end()
        elif name == "k":
            scalar.root(p.terms.extent)
        elif name == "cols":
            f.emit(columns)
        elif name == "step":
            scalar.root(p.step)
            f.i32(4).emit("i32.mul")
        else:
            f.i32(numbers.get(name, 0))
    f.call(function(f.module, BLOCKS["FUSED"]))
    return True


def _product(loop: For, code: LoopCode) -> _Product | None:
    """A vector loop as a product, or None if it is none."""
    match loop.body:
        case [Let(mutable=True) as total, For(body=[Accum(op="sum") as sum_]) as terms, Let() as made, Store() as store]:
            pass
        case _:
            return None
    zero, is_stored = total.value, made.value.op == store.value.op == "var"
    if zero.op != "const" or zero.value != 0 or sum_.var != total.var or not is_stored:
        return None
    if made.value.value != total.var or store.value.value != made.var or sum_.value.op != "mul":
        return None
    a, b = sum_.value.args
    if any(e.op != "load" or e.dtype is not F32 or e.value == store.target for e in (a, b)):
        return None
    if code.buffers[store.target][0] is not F32 or not _grows(store.coords[0], loop.var, ONE):
        return None
    for x, matrix in ((a, b), (b, a)):
        step = growth(matrix.args[0], terms.var)
        is_row = _grows(x.args[0], terms.var, ONE) and _grows(x.args[0], loop.var, ZERO)
        if is_row and step is not None and _grows(matrix.args[0], loop.var, ONE):
            return _Product(terms, x, matrix, step, store)
    return None


def _grows(offset: Expr, var: int, by: Expr) -> bool:
    rate = growth(offset, var)
    return rate is not None and rate.key() == by.key()
