"""The gradients of procedures: sorting, scattering, running sums and products, determinants and inverses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, X, Y, Z, binary, const, dim, guard, index, select, substitute
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib import matrices
from pyruntime.ops.standard import cumulative, pool, sort
from pyruntime.ops.standard import index as tensor_index
from pyruntime.ops.standard.matmul import product
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.derivative import axes_of, contributions, zero_like
from pyruntime.training.derive.routine_rules import swapped
from pyruntime.training.derive.scatter import SCATTER_ADD, nest


@SCATTER_ADD.function
def scatter_add(
    walk: Walk, g: Tensor, value: Expr, coords: Sequence[Expr], extents: Sequence[AnyDim], inside: Sequence[Expr]
) -> Cotangents:
    """A gather."""
    g_value = g.at(*coords)
    if inside:
        g_value = guard(reduce(and_, inside), g_value, zero_like(g_value))
    return walk.into_loads(contributions(value, g_value, walk.is_active), extents)


@sort.TOP_K.function
def top_k(walk: Walk, gs: OutputCotangents, rows: Tensor, places: Tensor) -> Cotangents:
    """The cotangents of the values are those of the elements that were found."""
    g = gs[0]
    if g is None:
        return []
    a, b, c = index(0), index(1), index(2)
    load = rows.at(a, walk.t.checked_index(places.at(a, b, c), rows.shape[1]), c)
    return walk.into_loads([(load, g.at(a, b, c))], g.shape)


# ── scatter ───────────────────────────────────────────────────────────────────────────────────────────────────────


@tensor_index.SCATTER_ELEMENTS.function
def scatter_elements(
    walk: Walk, g: Tensor, out: Tensor, data: Tensor, indices: Tensor, updates: Tensor, axis: int, reduction: str
) -> Cotangents:
    here = axes_of(data)
    place = walk.t.checked_index(indices.at(*here), data.shape[axis], from_end=True)
    coords = [place if n == axis else c for n, c in enumerate(here)]
    return _scatter(walk.t, g, out, data, updates, coords, reduction)


@tensor_index.SCATTER_ND.function
def scatter_nd(
    walk: Walk, g: Tensor, out: Tensor, data: Tensor, rows: Tensor, updates: Tensor, reduction: str
) -> Cotangents:
    row, count = index(0), data.rank - 1
    place = [walk.t.checked_index(rows.at(row, n), data.shape[n], from_end=True) for n in range(count)]
    return _scatter(walk.t, g, out, data, updates, [*place, index(1)], reduction)


@pool.MAX_UNPOOL.function
def max_unpool(walk: Walk, g: Tensor, out: Tensor, places: Tensor, values: Tensor) -> Cotangents:
    place = walk.t.checked_index(places.at(index(0)), out.shape[0])
    return _scatter(walk.t, g, out, None, values, [place], "none")


def _scatter(
    t: Tracer, g: Tensor, out: Tensor, data: Tensor | None, updates: Tensor, coords: Sequence[Expr], reduction: str
) -> Cotangents:
    """Of a copy of data (None: zeros) in which update i replaces, or is combined with, the element at coords(i).

    An element of the result that one operand decides (the last one written, or the first extreme) gives its gradient
    to that operand; for a product it is the product of the other factors."""
    if reduction == "add":
        into_data, into_update = (None if data is None else g), g.at(*coords)
    elif reduction == "mul":
        assert data is not None
        others = _other_factors(t, data, updates, coords)
        into_data = t.compute(data.shape, lambda *i: g.at(*i) * others(data.at(*i), i))
        into_update = g.at(*coords) * others(updates.at(*axes_of(updates)), coords)
    else:
        winner = _winners(t, out, data, updates, coords, reduction)
        into_data = None if data is None else t.map(select(Y < 0, X, 0.0), g, winner)
        own = _number(updates)
        into_update = select(winner.at(*coords) == own, g.at(*coords), zero_like(g.at(*coords)))
    found = [(updates, t.compute(updates.shape, lambda *_: into_update))]
    return found if data is None or into_data is None else [*found, (data, into_data)]


def _number(x: Tensor) -> Expr:
    """The row-major number of an element."""
    number: Expr = const(0, I32)
    for n, step in enumerate(sh.strides(x.shape)):
        number = number + index(n) * dim(step)
    return number


def _winners(
    t: Tracer, out: Tensor, data: Tensor | None, updates: Tensor, coords: Sequence[Expr], reduction: str
) -> Tensor:
    """For each element of the result, the number of the update that decides it; -1 if data does."""
    if reduction == "none":
        nobody = t.fill(out.shape, -1, I32)
        return _combined(t, nobody, t.compute(updates.shape, lambda *_: _number(updates)), coords, "")
    assert data is not None
    most = (1 << 31) - 1
    first = t.map(select(binary("eq", X, Y), const(-1, I32), const(most, I32)), data, out)
    hits = binary("eq", updates.at(*axes_of(updates)), out.at(*coords))
    numbers = t.compute(updates.shape, lambda *_: select(hits, _number(updates), const(most, I32)))
    return _combined(t, first, numbers, coords, "min")


def _other_factors(
    t: Tracer, data: Tensor, updates: Tensor, coords: Sequence[Expr]
) -> Callable[[Expr, Sequence[Expr]], Expr]:
    """A function (factor, place) -> the product of the other factors at that place."""
    zero, one = const(0.0, data.dtype), const(1.0, data.dtype)
    not_zero, is_zero = select(binary("eq", X, zero), one, X), select(binary("eq", X, zero), one, zero)
    factors = _combined(t, t.map(not_zero, data), t.map(not_zero, updates), coords, "mul")
    zeros = _combined(t, t.map(is_zero, data), t.map(is_zero, updates), coords, "add")

    def others(factor: Expr, place: Sequence[Expr]) -> Expr:
        p, count = factors.at(*place), zeros.at(*place)
        at_zero = select((count == 1.0) & (factor == zero), p, zero)
        return select(count == 0.0, p / select(factor == zero, one, factor), at_zero)

    return others


def _combined(t: Tracer, data: Tensor, updates: Tensor, coords: Sequence[Expr], op: str) -> Tensor:
    """A copy of data in which each update in turn replaces, or is combined by `op` with, the element at coords."""
    args = dict.fromkeys([data, updates, *[x for c in coords for x in c.tensors()]])

    def body(k: Builder, out: Tensor) -> None:
        with nest(k, range(data.rank), data.shape) as at:
            where = [at[n] for n in range(data.rank)]
            k.store(out, where, data.at(*where))
        with nest(k, range(updates.rank), updates.shape) as at:
            place = [k.let(substitute(c, at)) for c in coords]
            value = updates.at(*[at[n] for n in range(updates.rank)])
            k.store(out, place, binary(op, out.at(*place), value) if op else value)

    return t.loops("scatter_in_order", tuple(args), [(data.shape, data.dtype)], body)[0]


# ── running sums and products ─────────────────────────────────────────────────────────────────────────────────────


@cumulative.CUM_SUM.function
def cum_sum(walk: Walk, g: Tensor, rows: Tensor, reverse: int, exclusive: int) -> Cotangents:
    """The sum from the other end."""
    return [(rows, cumulative.running(walk.t, g, int(not reverse), exclusive, "add"))]


@cumulative.CUM_PROD.function
def cum_prod(walk: Walk, g: Tensor, rows: Tensor, reverse: int, exclusive: int) -> Cotangents:
    """The product P of the elements before x[i] times S[i], where S adds, for each product that contains x[i], its
    cotangent times the elements after x[i]. Nothing is divided, so that zeros do no harm."""
    t = walk.t
    before = cumulative.running(t, rows, reverse, 1, "mul")
    length = dim(rows.shape[1])

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(rows.shape[0])) as row, k.loop(length) as j:
            at = k.let(j if reverse else length - 1 - j)
            after = k.let(at - 1 if reverse else at + 1)
            with k.loop(dim(rows.shape[2]), "vector") as c:
                later = rows.at(row, after, c) * out.at(row, after, c)
                if exclusive:
                    later = later + g.at(row, after, c)
                later = guard(j > 0, later, zero_like(later))
                k.store(out, (row, at, c), later if exclusive else g.at(row, at, c) + later)

    later = t.loops("cum_prod_back", [rows, g], [(rows.shape, rows.dtype)], body)[0]
    return [(rows, t.map(X * Y, before, later))]


# ── matrices ──────────────────────────────────────────────────────────────────────────────────────────────────────


@cumulative.DET.function
def det(walk: Walk, g: Tensor, y: Tensor, x: Tensor) -> Cotangents:
    """g · y · X⁻ᵀ. A singular matrix has no finite gradient here, as in other frameworks."""
    t = walk.t
    back = swapped(t, matrices.inverted(t, x))
    g, y = (t.unsqueeze(v, [1, 2]) for v in (g, y))
    return [(x, t.map(X * Y * Z, back, g, y))]


@matrices.INVERSE.function
def inverse(walk: Walk, g: Tensor, y: Tensor, x: Tensor) -> Cotangents:
    """-Yᵀ · g · Yᵀ."""
    t = walk.t
    turned = swapped(t, y)
    return [(x, t.map(-X, product(t, product(t, turned, g), turned)))]
