"""Reductions of the body in the forms that nests know: sums, products, extremes and logical ones, of several terms."""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, I64
from pyruntime.ir.expr import Expr, cast, const, dim, index, rewrite, select, walk
from pyruntime.ir.kernel import Map, Reduce

LAST = (1 << 31) - 1


def plain_reductions(r: Reduce) -> list[Map | Reduce]:
    """The reduction as members in order, the last of which makes its result. A reduction of one term is a map, so that
    it needs no loop of its own. An epilogue that loads is a map: perhaps its loads do not fit vectors. ArgMax and
    ArgMin are the extreme, and then the least or largest number of an element that equals it, or is NaN."""
    if all(d == 1 for d in r.extents):
        zeros = {r.out.rank + n: const(0, I32) for n in range(len(r.extents))}
        one = rewrite(r.expr, lambda x: zeros.get(x.value) if x.op == "index" else None)
        return [_result(r, const(0, I64) if r.op.startswith("arg") else one)]
    if not r.op.startswith("arg"):
        if r.epilogue is None or not any(x.op == "at" for x in walk(r.epilogue)):
            return [r]
        total = Reduce(r.op, r.extents, r.expr).making(r.out.shape, r.expr.dtype, r.node)
        return [total, _result(r, total.out.at(*[index(n) for n in range(r.out.rank)]))]
    shape, out = (*r.out.shape, *r.extents), list[Map | Reduce]()
    value = r.expr
    if any(x.args and x.op != "at" and x.dtype is not I32 for x in walk(value)):
        out.append(Map(value).making(shape, value.dtype, r.node))
        value = out[0].out.at(*[index(n) for n in range(len(shape))])
    best = Reduce(r.op[3:6], r.extents, value).making(r.out.shape, value.dtype, r.node)
    is_best = value == best.out.at(*[index(n) for n in range(r.out.rank)])
    if value.dtype.is_float:
        is_best = is_best | (value != value)
    number: Expr = const(0, I32)
    for n, stride in enumerate(sh.strides(r.extents)):
        number = number + index(r.out.rank + n) * dim(stride)
    is_last = r.op.endswith("_last")
    place = Reduce("max" if is_last else "min", r.extents, select(is_best, number, const(0 if is_last else LAST, I32)))
    found = place.making(r.out.shape, I32, r.node).out.at(*[index(n) for n in range(r.out.rank)])
    return [*out, best, place, _result(r, cast(found, I64))]


def _result(r: Reduce, value: Expr) -> Map:
    """The map that makes the reduction's result from the reduced value."""
    if r.epilogue is not None:
        value = rewrite(r.epilogue, lambda x: cast(value, x.dtype) if x.op == "arg" else None)
    made = Map(value)
    made.replaces(r, r.outputs)
    return made
