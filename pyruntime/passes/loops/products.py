"""Sums of products of vectors by matrices from outside the loop, which machine code computes on CPUs."""

from __future__ import annotations

from collections.abc import Collection

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, affine, walk
from pyruntime.ir.kernel import Loops, Map, Reduce

LARGE = 1 << 8  # elements of a matrix that is packed for the loop, or whose loads rows share
COLUMNS = range(16, (1 << 13) + 1)  # of a product: a call of machine code takes 30 ns, and computes no more
MOST_TERMS = 1 << 20  # of a product in a step: threads share larger ones


def is_product(m: Map | Reduce | Loops, inside: Collection[int]) -> bool:
    """Whether a member sums x[…, k] · matrix[…, k, j], or matrix[…, j, k], over k, where j is the last axis of its
    result. inside: uids of the tensors of the loop's body, which are no such matrices"""
    if not isinstance(m, Reduce) or m.op != "sum" or m.epilogue is not None or m.expr.op != "mul":
        return False
    terms = [m.out.rank + n for n, d in enumerate(m.extents) if d != 1]
    columns = [n for n, d in enumerate(m.out.shape) if d != 1]
    if len(terms) != 1 or not columns or sh.estimate(m.out.shape[columns[-1]]) not in COLUMNS:
        return False
    if sh.estimate(sh.size((*m.out.shape, *m.extents))) > MOST_TERMS:
        return False
    a, b = m.expr.args
    axes = terms[0], columns[-1]
    return any(_is_vector(x, *axes) and _is_matrix(y, *axes, inside) for x, y in ((a, b), (b, a)))


def first_column(c: Expr) -> int | None:
    """The constant that is added to an index; None if the coordinate is no such sum."""
    form = affine(c)
    if form is None or not isinstance(form[0], int) or list(form[1].values()) != [1]:
        return None
    return form[0]


def _is_vector(x: Expr, k: int, j: int) -> bool:
    """Whether a load is of adjacent elements along k alone."""
    if x.op != "at" or x.dtype is not F32:
        return False
    axes = [n for n, d in enumerate(x.value.shape) if d != 1]
    return bool(axes) and _uses(x, j) == [] and _uses(x, k) == axes[-1:] and x.args[axes[-1]].op == "index"


def _is_matrix(x: Expr, k: int, j: int, inside: Collection[int]) -> bool:
    if x.op != "at" or x.dtype is not F32 or x.value.uid in inside or x.value.rank < 2:
        return False
    rows, columns = _uses(x, k), _uses(x, j)
    if sorted(rows + columns) != [x.value.rank - 2, x.value.rank - 1] or len(rows) != 1:
        return False
    is_row, first = x.args[rows[0]].op == "index", first_column(x.args[columns[0]])
    return is_row and first is not None and sh.estimate(sh.size(x.value.shape)) >= LARGE


def _uses(load: Expr, axis: int) -> list[int]:
    """The axes of a load whose coordinates depend on an index."""
    return [n for n, c in enumerate(load.args) if any(i.op == "index" and i.value == axis for i in walk(c))]
