"""Gather and scatter.

Negative indices count from the end. Constant indices are checked at compile time (ShapeError). Indices computed in a
run go through `Tracer.checked_index`, so that nothing is read or written out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, STRING
from pyruntime.ir.expr import Expr, Scalar, binary, cast, const, dim, guard, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim, Dim

SCATTER_ELEMENTS = GradientRule[Tensor, Tensor, Tensor, Tensor, int, str]()
SCATTER_ND = GradientRule[Tensor, Tensor, Tensor, Tensor, str]()


def check_known(t: Tracer, indices: Tensor, dims: Sequence[AnyDim]) -> list[int]:
    """Refuse constant indices out of range: their last axis indexes `dims`, or a single dim applies to all. Returns the
    indices, or [] if they are not constant."""
    known = t.known(indices)
    if not known or any(isinstance(k, Dim) for k in known):
        return []
    for n, d in enumerate(dims):
        low, high = min(known[n :: len(dims)]), max(known[n :: len(dims)])
        t.require(sh.compare("le", -low, d), f"index {low} is out of range for {d} elements")
        t.require(sh.compare("lt", high, d), f"index {high} is out of range for {d} elements")
    return known


def indexer(t: Tracer, indices: Tensor, d: AnyDim) -> Callable[..., Expr]:
    """A function (coordinates) -> int32 that reads `indices` as positions on an axis of extent d."""
    known = check_known(t, indices, [d])
    if not known:
        return lambda *at: t.checked_index(indices.at(*at), d, from_end=True)
    step = known[1] - known[0] if len(known) > 1 else 0
    if indices.rank <= 1 and min(known) >= 0 and all(b - a == step for a, b in zip(known, known[1:], strict=False)):
        return lambda *at: dim(known[0]) + at[0] * step if at else dim(known[0])  # evenly spaced, so a view
    if len(known) == 1:
        return lambda *_: dim(known[0] + d)
    if min(known) >= 0:
        return lambda *at: cast(indices.at(*at), I32)
    return lambda *at: select(indices.at(*at) < 0, cast(indices.at(*at), I32) + dim(d), cast(indices.at(*at), I32))


@op("Gather")
def gather(t: Tracer, data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Shapes: data (*A, d, *B), indices (*I) -> (*A, *I, *B)."""
    axis = t.axis(axis, data.rank)
    read = indexer(t, indices, data.shape[axis])
    end = axis + indices.rank

    def element(*i: Expr) -> Expr:
        return data.at(*i[:axis], read(*i[axis:end]), *i[end:])

    return t.compute([*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]], element)


def _within(t: Tracer, indices: Tensor, data: Tensor, axis: int) -> None:
    """Refuse indices that are larger than data on any axis but `axis`."""
    t.require(int(indices.rank == data.rank), f"indices have rank {indices.rank}, data {data.rank}")
    for n, (d, extent) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if n != axis:
            t.require(sh.compare("le", d, extent), f"indices have {d} rows on axis {n}, data {extent}")


@op("GatherElements", since=11)
def gather_elements(t: Tracer, data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """out[i, j, …] = data[i, indices[i, j, …], …], the index at `axis`."""
    axis = t.axis(axis, data.rank)
    _within(t, indices, data, axis)

    def flat(*i: Expr) -> Expr:
        return t.checked_index(indices.at(*i), data.shape[axis], from_end=True)

    check_known(t, indices, [data.shape[axis]])
    read = indexer(t, indices, data.shape[axis]) if indices.rank > 1 else flat
    return t.compute(indices.shape, lambda *i: data.at(*[read(*i) if n == axis else c for n, c in enumerate(i)]))


@op("GatherND", since=11)
def gather_nd(t: Tracer, data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Shapes: data (*B, *D, *S), indices (*B, *I, |D|) -> (*B, *I, *S)."""
    b, count = batch_dims, _known_dim(t, indices)
    if not 0 <= b < indices.rank or b + count > data.rank:
        raise t.shape_error(f"{count} indices after {b} batch axes do not fit data of rank {data.rank}")
    check_known(t, indices, data.shape[b : b + count])
    for d, other in zip(data.shape[:b], indices.shape[:b], strict=True):
        t.require_equal(d, other, "data and indices differ in a batch axis")
    inner = data.shape[b + count :]
    lead = indices.rank - 1

    def element(*i: Expr) -> Expr:
        at = [t.checked_index(indices.at(*i[:lead], n), data.shape[b + n], from_end=True) for n in range(count)]
        return data.at(*i[:b], *at, *i[lead:])

    return t.compute([*indices.shape[:-1], *inner], element)


def _known_dim(t: Tracer, indices: Tensor) -> int:
    count = indices.shape[-1]
    if isinstance(count, Dim):
        t.settle((count,))
        raise t.unsupported("the last dim of the indices is known only at run time")
    return count


# ── scatter ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def nest(k: Builder, extents: Sequence[AnyDim], innermost: str = "serial") -> Iterator[list[Expr]]:
    """Nested loops over all coordinates of a shape."""
    with ExitStack() as stack:
        last = len(extents) - 1
        yield [stack.enter_context(k.loop(dim(d), innermost if n == last else "serial")) for n, d in enumerate(extents)]


def copy(k: Builder, out: Tensor, source: Tensor, lead: Sequence[Expr] = ()) -> None:
    with nest(k, out.shape[len(lead) :], "vector") as at:
        k.store(out, (*lead, *at), source.at(*lead, *at))


_REDUCTIONS = {"add": "add", "mul": "mul", "min": "min", "max": "max"}
_OF_BOOLS = {"add": "or", "mul": "and", "min": "and", "max": "or"}


def _put(t: Tracer, data: Tensor, reduction: str) -> Callable[[Builder, Tensor, Sequence[Scalar], Expr], None]:
    """Writes, or combines, one element."""
    if reduction != "none" and reduction not in _REDUCTIONS:
        raise t.unsupported(f"reduction {reduction} is not known")
    if reduction == "mul" and data.dtype is STRING:
        raise t.unsupported("reduction mul needs numbers, the input holds strings")

    def put(k: Builder, out: Tensor, at: Sequence[Scalar], value: Expr) -> None:
        if reduction != "none":
            name = (_OF_BOOLS if value.dtype is BOOL else _REDUCTIONS)[reduction]
            value = binary(name, out.at(*at), value)
        k.store(out, at, value)

    return put


@op("Scatter", since=9)
@op("ScatterElements", since=11)
def scatter_elements(
    t: Tracer, data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """A copy of data with out[i, indices[i, j, …], …] = updates[i, j, …], the index at `axis`.
    Spec: https://onnx.ai/onnx/operators/onnx__ScatterElements.html"""
    axis = t.axis(axis, data.rank)
    _within(t, indices, data, axis)
    t.require_shape("updates", updates, indices.shape)
    put = _put(t, data, reduction)
    check_known(t, indices, [data.shape[axis]])

    def update(k: Builder, out: Tensor, lead: Sequence[Expr]) -> None:
        with nest(k, indices.shape[len(lead) :]) as rest:
            at = [*lead, *rest]
            target = k.let(t.checked_index(indices.at(*at), data.shape[axis], from_end=True))
            put(k, out, [target if n == axis else c for n, c in enumerate(at)], updates.at(*at))

    def body(k: Builder, out: Tensor) -> None:
        if axis == 0:
            copy(k, out, data)
            update(k, out, ())
            return
        with k.parallel(dim(data.shape[0])) as i:  # an update stays in its slice of axis 0
            copy(k, out, data, (i,))
            with k.when(i < dim(indices.shape[0])):
                update(k, out, (i,))

    out = t.loops("scatter_elements", [data, indices, updates], [(data.shape, data.dtype)], body)[0]
    return t.own_gradient(out, SCATTER_ELEMENTS, out, data, indices, updates, axis, reduction)


@op("ScatterND", since=11)
def scatter_nd(t: Tracer, data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """A copy of data with out[*indices[i]] = updates[i].

    Shapes: data (*D, *S), indices (*I, |D|), updates (*I, *S)
    Spec:   https://onnx.ai/onnx/operators/onnx__ScatterND.html"""
    count = _known_dim(t, indices)
    put = _put(t, data, reduction)
    if count > data.rank:
        raise t.shape_error(f"{count} indices do not fit data of rank {data.rank}")
    check_known(t, indices, data.shape[:count])
    lead = data.shape[:count]
    t.require_shape("updates", updates, (*indices.shape[:-1], *data.shape[count:]))
    flat = t.reshape(data, [*lead, sh.size(data.shape[count:])])
    rows = t.reshape(indices, [sh.size(indices.shape[:-1]), count])
    values = t.reshape(updates, [rows.shape[0], flat.shape[-1]])

    def body(k: Builder, out: Tensor) -> None:
        copy(k, out, flat)
        with k.loop(dim(rows.shape[0])) as r:
            at = [k.let(t.checked_index(rows.at(r, n), lead[n], from_end=True)) for n in range(count)]
            with k.loop(dim(flat.shape[-1]), "vector") as j:
                put(k, out, [*at, j], values.at(r, j))

    out = t.loops("scatter_nd", [flat, rows, values], [(flat.shape, flat.dtype)], body)[0]
    t.own_gradient(out, SCATTER_ND, out, flat, rows, values, reduction)
    return t.reshape(out, data.shape)


@op("TensorScatter", since=24)
def tensor_scatter(
    t: Tracer,
    past: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """The cache `past` with `update` written along the sequence axis from write_indices[b] on; in mode circular
    positions wrap around.
    Shapes: past (B, …, M, …), update (B, …, S, …), write_indices (B,), default 0."""
    if mode not in ("linear", "circular"):
        raise t.unsupported(f"mode {mode} is not known")
    axis = t.axis(axis, past.rank)
    t.require_equal(update.rank, past.rank, "the update and the cache differ in rank")
    length, count = past.shape[axis], update.shape[axis]
    t.require_shape("update", update, [count if n == axis else d for n, d in enumerate(past.shape)])
    t.require(sh.compare("le", count, length), f"{count} rows do not fit into {length}")
    t.require_shape("write_indices", write_indices, (past.shape[0],))

    def start(n: Expr) -> Expr:
        at = write_indices.at(n) if write_indices is not None else const(0, I32)
        if mode == "circular":
            return cast(at % cast(dim(length), at.dtype), I32)
        return t.checked_index(at, length - count + 1)

    def element(*i: Expr) -> Expr:
        step = i[axis] - start(i[0])
        step = step % dim(length) if mode == "circular" else step
        new = update.at(*[step if n == axis else c for n, c in enumerate(i)])
        return guard((step >= 0) & (step < dim(count)), new, past.at(*i))

    return t.compute(past.shape, element)
