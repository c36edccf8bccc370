"""The rules of Map, Reduce, Alias and Call."""

from __future__ import annotations

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, const, dim, index, select
from pyruntime.ir.kernel import Alias, Block, Call, Loops, Map, Reduce, Tensor
from pyruntime.training.derive import nbits_rule
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.derivative import axes_of, contributions, zero_like
from pyruntime.training.derive.routine_rules import ROUTINES


def _only(gs: OutputCotangents) -> Tensor:
    """The cotangent of a kernel's one output. The walk has checked that there is one."""
    assert gs[0] is not None
    return gs[0]


def _like(e: Expr, g: Expr) -> Expr:
    """The cotangent g of e in the type of e; that of codes remains a float."""
    return cast(g, e.dtype) if e.dtype.is_float else g


def of_alias(walk: Walk, kernel: Alias, gs: OutputCotangents) -> Cotangents:
    return [(kernel.base, walk.t.reshape(_only(gs), kernel.base.shape))]


def of_map(walk: Walk, kernel: Map, gs: OutputCotangents) -> Cotangents:
    e, out = kernel.expr, kernel.out
    g = _like(e, _only(gs).at(*axes_of(out)))
    made = out.at(*axes_of(out)) if out.dtype is e.dtype and e.op != "at" else None
    return walk.into_loads(contributions(e, g, walk.is_active, made), out.shape)


def of_reduce(walk: Walk, kernel: Reduce, gs: OutputCotangents) -> Cotangents:
    return _of_reduction(walk, kernel, kernel.out, _only(gs))


def _of_reduction(walk: Walk, kernel: Reduce, out: Tensor, cotangent: Tensor) -> Cotangents:
    e = kernel.expr
    g = _like(e, cotangent.at(*axes_of(out)))
    if kernel.op in ("max", "min"):
        chosen = _is_first_extreme(walk.t, kernel, out)
        parts = [(x, select(chosen, v, zero_like(v))) for x, v in contributions(e, g, walk.is_active)]
    elif kernel.op == "prod":
        parts = contributions(e, g * _product_of_others(walk.t, kernel, out), walk.is_active)
    elif kernel.op == "sum":
        parts = contributions(e, g, walk.is_active)
    else:
        raise NotDifferentiable(f"a reduction by {kernel.op} has no gradient")
    return walk.into_loads(parts, [*out.shape, *kernel.extents])


def _is_first_extreme(t: Tracer, kernel: Reduce, out: Tensor) -> Expr:
    """Whether an element of the nest is the first maximum or minimum."""
    best = t.add(Reduce(f"arg{kernel.op}", kernel.extents, kernel.expr), [(out.shape, I32)])[0]
    number: Expr = const(0, I32)
    for n, step in enumerate(sh.strides(kernel.extents)):
        number = number + index(out.rank + n) * dim(step)
    return best.at(*axes_of(out)) == number


def _product_of_others(t: Tracer, kernel: Reduce, out: Tensor) -> Expr:
    """The product of all elements but one, from the product of those that are not 0 and the number of zeros."""
    e = kernel.expr
    zero, one = const(0.0, e.dtype), const(1.0, e.dtype)
    product = t.reduce_compute("prod", out.shape, kernel.extents, lambda *_: select(e == zero, one, e))
    zeros = t.reduce_compute("sum", out.shape, kernel.extents, lambda *_: select(e == zero, one, zero))
    p, count = product.at(*axes_of(out)), zeros.at(*axes_of(out))
    at_zero = select((count == one) & (e == zero), p, zero)
    return select(count == zero, p / select(e == zero, one, e), at_zero)


def of_call(walk: Walk, kernel: Call, gs: OutputCotangents) -> Cotangents:
    """By the routine's own rule, else by its definition."""
    g = _only(gs)
    rule = nbits_rule.matmul_nbits if kernel.routine == "matmul_nbits" else ROUTINES.get(kernel.routine)
    found = rule(walk, kernel, g) if rule else None
    if found is not None:
        return found
    meaning = kernel.meaning
    assert not isinstance(meaning, Block)
    if isinstance(meaning, Reduce):
        return _of_reduction(walk, meaning, kernel.out, g)
    if isinstance(meaning, Loops):
        raise NotDifferentiable(f"the routine {kernel.routine} has no gradient")
    parts = contributions(meaning.expr, _like(meaning.expr, g.at(*axes_of(kernel.out))), walk.is_active)
    return walk.into_loads(parts, kernel.out.shape)
