"""Reductions of the body in the forms that nests know: sums, products, extremes and logical ones, of several terms."""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, I64
from pyruntime.ir.expr import Expr, affine, cast, const, dim, index, rebuild, rewrite, select, walk
from pyruntime.ir.kernel import Map, Reduce
from pyruntime.ir.shape import AnyDim, Shape

LAST = (1 << 31) - 1


def plain_reductions(r: Reduce, alone: bool) -> list[Map | Reduce]:
    """The reduction as members in order, the last of which makes its result. A reduction of one term is a map, so that
    it needs no loop of its own. An epilogue that loads is a map: perhaps its loads do not fit vectors. alone: so is
    any other. ArgMax and ArgMin are the extreme, and then the least or largest number of an element that equals it, or
    is NaN."""
    if all(d == 1 for d in r.extents):
        zeros = {r.out.rank + n: const(0, I32) for n in range(len(r.extents))}
        one = rewrite(r.expr, lambda x: zeros.get(x.value) if x.op == "index" else None)
        return [_result(r, const(0, I64) if r.op.startswith("arg") else one)]
    shape, out = (*r.out.shape, *r.extents), list[Map | Reduce]()
    if not r.op.startswith("arg"):
        terms = _with_padding(r.expr, shape, out, r)
        parts = r.epilogue is not None and (alone or any(x.op == "at" for x in walk(r.epilogue)))
        if not parts and terms is r.expr:
            return [r]
        total = Reduce(r.op, r.extents, terms, None if parts else r.epilogue)
        if parts:
            total.making(r.out.shape, terms.dtype, r.node)
            return [*out, total, _result(r, total.out.at(*[index(n) for n in range(r.out.rank)]))]
        total.replaces(r, r.outputs)
        return [*out, total]
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


def _with_padding(e: Expr, shape: Shape, out: list[Map | Reduce], r: Reduce) -> Expr:
    """The terms of a sum over windows, with loads of padded tensors instead of guards, which would be tested for each
    term. shape: the extents of all axes of e; out: gets the maps that pad"""

    def visit(x: Expr) -> Expr | None:
        if x.op != "guard":
            return None
        axes = sorted(_axes(x, shape), key=lambda a: a.op == "add")  # windows last, where vectors run
        used = [i.value for a in axes for i in walk(a) if i.op == "index"]
        if not axes or axes[-1].op != "add" or len(used) > len(set(used)):
            return None
        made = Map(_over(x, {a.key(): index(n) for n, a in enumerate(axes)}))
        made.making([_extent(a, shape) or 1 for a in axes], made.expr.dtype, r.node)
        out.append(made)
        return made.out.at(*axes)

    return rewrite(e, visit)


def _axes(x: Expr, shape: Shape) -> list[Expr]:
    """The different indices, and sums of two indices as in windows, from which an expression is computed."""
    if _extent(x, shape) is not None:
        return [x]
    found = {a.key(): a for part in x.args for a in _axes(part, shape)}
    return list(found.values())


def _over(x: Expr, axes: dict[object, Expr]) -> Expr:
    """The expression with other expressions in place of those with these keys."""
    if (found := axes.get(x.key())) is not None:
        return found
    return rebuild(x, [_over(a, axes) for a in x.args]) if x.args else x


def _extent(c: Expr, shape: Shape) -> AnyDim | None:
    """How many values a coordinate has: an index, or the sum a · i + b · j of a window, where a and b are constants
    above 0. None for other expressions."""
    if c.op == "index":
        return shape[c.value]
    form = affine(c) if c.op == "add" else None
    if form is None or form[0] != 0 or len(form[1]) != 2:
        return None
    total: AnyDim = 1
    for (kind, axis), step in form[1].items():
        if kind != "index" or not isinstance(step, int) or step < 1:
            return None
        total = total + step * (shape[axis] - 1)
    return total
