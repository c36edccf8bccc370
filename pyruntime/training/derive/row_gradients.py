"""Gradients of weights of which a step reads few rows, such as embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, const, dim, index, minimum, substitute, uses_index
from pyruntime.ir.kernel import Alias, Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.training.derive.scatter import SCATTER_ADD, nest, scattered, when

LEAST = 1 << 16  # elements of weights for which this pays
LEAST_ROW = 16
CHUNK = 4096  # rows of a work unit


@dataclass(frozen=True, slots=True)
class RowGradient:
    """values: the gradients of rows that the batch has read; entry: for each row of the weight, its place in values, or
    -1 if its gradient is 0. Other rows of values are 0."""

    values: Tensor
    entry: Tensor


def row_gradient(t: Tracer, gradient: Tensor) -> RowGradient | None:
    """A gradient in this form, if it is a sum of rows at indices from data."""
    shape = gradient.shape
    while isinstance(gradient.kernel, Alias):
        gradient = gradient.kernel.base
    rule, args = t.own_gradients.get(gradient.uid, (None, ()))
    size = sh.size(shape)
    if rule is not SCATTER_ADD or gradient.shape != shape or not isinstance(size, int) or size < LEAST:
        return None
    value, coords, extents, inside = args
    rows, *row = shape
    if not row or rows == 0 or size // rows < LEAST_ROW:
        return None
    first, *rest = coords
    own = [c.value if c.op == "index" and extents[c.value] == d else -1 for c, d in zip(rest, row, strict=True)]
    found = set(own)
    if -1 in found or len(found) < len(own) or not first.tensors() or _uses((first, *inside), found):
        return None
    axes = [n for n in range(len(extents)) if n not in found]
    entry = _entries(t, rows, first, axes, extents, inside)
    count = sh.size([extents[n] for n in axes])
    return RowGradient(scattered(t, (count, *row), [entry.at(first), *rest], value, extents, inside), entry)


def _uses(exprs: Sequence[Expr], axes: set[int]) -> bool:
    return any(uses_index(e, n) for e in exprs for n in axes)


def _entries(
    t: Tracer, rows: AnyDim, row: Expr, axes: Sequence[int], extents: Sequence[AnyDim], inside: Sequence[Expr]
) -> Tensor:  # fmt: skip
    """For each row the number of the last entry that reads it, or -1. axes: those of the entries"""
    number: Expr = const(0, I32)
    for n in axes:
        number = number * dim(extents[n]) + index(n)

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(sh.ceildiv(rows, CHUNK))) as block:
            low = k.let(block * CHUNK)
            high = k.let(minimum(low + CHUNK, dim(rows)))
            with k.loop(high - low, "vector") as i:
                k.store(out, (low + i,), -1)
            with nest(k, axes, extents) as at, when(k, [substitute(c, at) for c in inside]):
                place = k.let(substitute(row, at))
                with k.when(reduce(and_, [place >= low, place < high])):
                    k.store(out, (place,), substitute(number, at))

    args = dict.fromkeys([x for e in (row, *inside) for x in e.tensors()])
    return t.loops("entries_of_rows", list(args), [((rows,), I32)], body)[0]
