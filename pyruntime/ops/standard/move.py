"""Constants, shapes and views: operators that move elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.packed_weights import elements_of, weight_leaf
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, I64, STRING, bounds
from pyruntime.ir.expr import cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ops.lib.window import shortest_step
from pyruntime.ops.standard.cast import dtype_of

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Weight

# ── constants ─────────────────────────────────────────────────────────────────────────────────────────────────────


@op("Constant")
def constant(
    t: Tracer, *, value: Weight | None = None, sparse_value: Weight | None = None, value_float: float | None = None,
    value_floats: Sequence[float] | None = None, value_int: int | None = None, value_ints: Sequence[int] | None = None,
    value_string: str | None = None, value_strings: Sequence[str] | None = None,
) -> Tensor:  # fmt: skip
    weight = value if value is not None else sparse_value
    if weight is not None:
        return elements_of(t, weight_leaf(t, weight), weight)
    for one, many, dtype in (
        (value_float, value_floats, F32), (value_int, value_ints, I64), (value_string, value_strings, STRING)
    ):  # fmt: skip
        if one is not None:
            return t.scalar(one, dtype)
        if many is not None:
            return t.constant(many, dtype)
    raise t.unsupported("the Constant has no value")


@op("ConstantOfShape", since=9)
def constant_of_shape(t: Tracer, shape: Tensor, *, value: Weight | None = None) -> Tensor:
    dims = t.ints(shape, lower=0)
    if value is None:
        return t.fill(dims, 0.0, F32)
    one = t.reshape(t.leaf("weight", value.shape, value.dtype, value), ())
    return t.compute(dims, lambda *_: one.at())


@op("EyeLike", since=9)
def eye_like(t: Tracer, x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """1 on the k-th diagonal, 0 elsewhere."""
    out = dtype_of(t, dtype, x.dtype)
    _, far = bounds(I32)
    diagonal = max(-far, min(k, far))  # clamped to int32, which is still beyond all diagonals
    return t.compute(x.shape, lambda i, j: cast(j - i == diagonal, out))


@op("Identity")
def identity(t: Tracer, x: Any) -> Any:
    """Returns its operand, which may be a tensor, a sequence or an optional."""
    return x


# ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@op("Shape")
def shape(t: Tracer, x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return t.dims(x.shape[start:end])


@op("Size")
def size(t: Tracer, x: Tensor) -> Tensor:
    return t.reshape(t.dims([sh.size(x.shape)]), ())


def read_at_run_time(d: AnyDim) -> bool:
    """Whether a dim is read from data in a run, so that it may be negative."""
    return any(symbol.lower is None or symbol.lower < 0 for symbol in sh.symbols(d))


def _quotient(whole: Sequence[AnyDim], part: Sequence[AnyDim]) -> AnyDim:
    """Π whole / Π part, equal factors cancelled first."""
    rest, divisor = list(whole), []
    for d in part:
        if d in rest:
            rest.remove(d)
        else:
            divisor.append(d)
    return sh.floordiv(prod(rest), prod(divisor))


def _or_own(d: AnyDim, own: Sequence[AnyDim], n: int) -> AnyDim:
    """d, or x's own dim n if d is 0."""
    return sh.select(sh.compare("eq", d, 0), own[n], d) if n < len(own) else d


def _target(t: Tracer, x: Tensor, requested: Sequence[AnyDim], allowzero: int) -> list[AnyDim]:
    """The dims that Reshape's second operand stands for."""
    dims: list[AnyDim] = []
    doubtful: list[int] = []  # axes whose dim may be 0 although x's dim is not
    if any(isinstance(d, int) and d < -1 for d in requested):
        raise t.shape_error(f"shape {list(requested)} has a dim below -1")
    if allowzero:
        zeros, rests = ([sh.compare("eq", d, mark) for d in requested] for mark in (0, -1))
        t.require(sh.compare("eq", sum(zeros) * sum(rests), 0), f"shape {list(requested)} has both 0 and -1")
    for n, d in enumerate(requested):
        own = x.shape[n] if n < x.rank and not allowzero else 0
        if isinstance(d, int) and d == 0:
            d = own
        elif read_at_run_time(d):  # may be 0 or -1
            others = [_or_own(w, x.shape, m) for m, w in enumerate(requested) if m != n]
            rest = _quotient(x.shape, others)
            d = sh.select(sh.compare("lt", d, 0), rest, sh.select(sh.compare("eq", d, 0), own, d))
        elif isinstance(d, Dim) and not allowzero and not (n < x.rank and _vanishes_with(own, d)):
            doubtful.append(n)
        dims.append(d)
    unknown = [n for n, d in enumerate(dims) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise t.shape_error(f"shape {list(requested)} has more than one -1")
    for n in unknown:
        dims[n] = _quotient(x.shape, [d for m, d in enumerate(dims) if m != n])
    return _with_copied_dims(t, x, dims, doubtful, unknown)


def _vanishes_with(own: AnyDim, d: AnyDim) -> bool:
    """Whether `own` is 0 if d is 0, or d cannot be 0."""
    if sh.interval(d)[0] > 0:
        return True
    factors = d.terms[0][0] if isinstance(d, Dim) and len(d.terms) == 1 else ()
    return isinstance(own, Dim) and bool(factors) and all(f in m for f in factors for m, _ in own.terms)


def _with_copied_dims(
    t: Tracer, x: Tensor, dims: Sequence[AnyDim], doubtful: Sequence[int], unknown: Sequence[int]
) -> list[AnyDim]:
    """The dims, where a `doubtful` one that is 0 stands for x's dim. Dims that depend on whether it is 0 would make
    all shapes after this one expressions, so a Program for all sizes refuses a 0 if x's dim is known, as the number of
    heads is where exporters write (batch, heads, length, size) as (-1, length, size), or if no dim is `unknown`."""
    out = list(dims)
    copies = all(n < x.rank and isinstance(x.shape[n], Dim) for n in doubtful)
    if not copies or not any(isinstance(dims[n], Dim) for n in unknown):
        for n in doubtful:
            own = x.shape[n] if n < x.rank else 1
            fits = sh.maximum(sh.compare("lt", 0, dims[n]), sh.compare("eq", own, 0))
            text = f"dim {n} of the shape, {dims[n]}, is 0, which stands for the input's dim {n}"
            t.require(fits, text, of_program=True)
        return out
    for n in doubtful:
        out[n] = _or_own(dims[n], x.shape, n)
    some_zero = sh.compare("eq", prod([dims[n] for n in doubtful]), 0) if doubtful else 0
    for n in unknown:
        out[n] = sh.select(some_zero, _quotient(x.shape, [d for m, d in enumerate(out) if m != n]), dims[n])
    return out


@op("Reshape")
def reshape_1(t: Tracer, x: Tensor, *, shape: Sequence[int] = ()) -> Tensor:
    return t.reshape(x, _target(t, x, shape, 0))


@op("Reshape", since=5)
def reshape(t: Tracer, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """The same elements under another shape: 0 keeps a dim (unless allowzero), one -1 takes the remaining elements."""
    return t.reshape(x, _target(t, x, t.ints(shape, lower=-1), allowzero))


@op("Flatten")
def flatten(t: Tracer, x: Tensor, *, axis: int = 1) -> Tensor:
    axis = x.rank if axis == x.rank else t.axis(axis, x.rank)
    return t.reshape(x, [prod(x.shape[:axis]), prod(x.shape[axis:])])


@op("Squeeze")
def squeeze_1(t: Tracer, x: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    return t.squeeze(x, [n for n, d in enumerate(x.shape) if _is_one(t, n, d)] if axes is None else axes)


def _is_one(t: Tracer, axis: int, d: AnyDim) -> bool:
    """Whether an axis has one element. The session specialises on a dim of the feeds; a dim computed in a run must not
    be 1."""
    one = sh.compare("eq", d, 1)
    if isinstance(one, int):
        return bool(one)
    t.settle((one,))
    t.require(1 - one, f"axis {axis} has 1 element in this run: list the axes to remove in `axes`")
    return False


@op("Squeeze", since=13)
def squeeze(t: Tracer, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return squeeze_1(t, x, axes=None if axes is None else t.static(axes))


@op("Unsqueeze")
def unsqueeze_1(t: Tracer, x: Tensor, *, axes: Sequence[int]) -> Tensor:
    t.axes(axes, x.rank + len(axes))  # refuses repeated axes
    return t.unsqueeze(x, axes)


@op("Unsqueeze", since=13)
def unsqueeze(t: Tracer, x: Tensor, axes: Tensor) -> Tensor:
    return unsqueeze_1(t, x, axes=t.static(axes))


# ── views ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@op("Transpose")
def transpose(t: Tracer, x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return t.transpose(x, list(reversed(range(x.rank))) if perm is None else perm)


@op("Expand", since=8)
def expand(t: Tracer, x: Tensor, shape: Tensor) -> Tensor:
    return t.expand(x, t.ints(shape, lower=0))


FAR = 2**31 - 1  # exceeds any dim; exporters write such bounds for "to the end"


def _bound(value: AnyDim, d: AnyDim, low: AnyDim, high: AnyDim) -> AnyDim:
    """A start or end with the meaning of Python's slices, clamped to low … high."""
    if isinstance(value, int) and abs(value) >= FAR:
        return high if value > 0 else low
    if isinstance(value, int):
        return sh.clamp(value + d if value < 0 else value, low, high)
    return sh.clamp(sh.select(sh.compare("lt", value, 0), value + d, value), low, high)


def _slice(
    t: Tracer, x: Tensor, starts: Sequence[AnyDim], ends: Sequence[AnyDim], axes: Sequence[int], steps: Sequence[int]
) -> Tensor:
    t.axes(axes, x.rank)  # refuses repeated axes
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise t.shape_error(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        d = x.shape[t.axis(axis, x.rank)]
        if step > 0:
            first, last = _bound(start, d, 0, d), _bound(end, d, 0, d)
        elif step < 0:
            first, last = _bound(start, d, -1, d - 1), _bound(end, d, -1, d - 1)
        else:
            raise t.shape_error("a step must not be 0")
        stride = shortest_step(abs(step), d)
        size = _plain_length(start, end, d) if step == 1 else None
        if size is None:
            count = last - first if step > 0 else first - last
            size = sh.maximum(sh.ceildiv(count, stride), 0)
        x = t.slice(x, axis, first, size, stride if step > 0 else -stride)
    return x


def _plain_length(start: AnyDim, end: AnyDim, d: AnyDim) -> AnyDim | None:
    """The length of [start:start + n] or [-n:] as an expression of n, so that it equals other dims that are n; None for
    other slices."""
    low, high = sh.interval(start)
    if isinstance(end, int) and end >= FAR:
        if high > 0:
            return None
        return sh.select(sh.compare("lt", 0, -start), sh.minimum(d, -start), d)
    n = end - start
    if low < 0 or sh.interval(n)[0] < 0:
        return None
    return sh.minimum(n, sh.maximum(d - start, 0))


@op("Slice")
def slice_1(
    t: Tracer, x: Tensor, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Tensor:
    return _slice(t, x, starts, ends, range(len(starts)) if axes is None else axes, [1] * len(starts))


@op("Slice", since=10)
def slice_(
    t: Tracer, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    """x[start:end:step] along axes, with the meaning of Python's slices."""
    which = None if axes is None else t.static(axes)
    first, last = (_bounds(t, bounds, which) for bounds in (starts, ends))
    by = [1] * len(first) if steps is None else t.static(steps)
    return _slice(t, x, first, last, range(len(first)) if which is None else which, by)


def _bounds(t: Tracer, x: Tensor, axes: Sequence[int] | None) -> list[AnyDim]:
    """One bound per axis, even if the length of x is known only in a run (x = places[:1])."""
    return t.ints(x if axes is None or sh.is_static(x.shape) else t.reshape(x, [len(axes)]))


@op("Concat")
def concat_1(t: Tracer, x: Tensor, *more: Tensor, axis: int = 1) -> Tensor:
    return concat(t, x, *more, axis=axis)


@op("Concat", since=4)
def concat(t: Tracer, x: Tensor, *more: Tensor, axis: int) -> Tensor:
    return t.concat([x, *more], axis) if more else x


def _split(t: Tracer, x: Tensor, axis: int, sizes: Sequence[AnyDim]) -> tuple[Tensor, ...]:
    total = sum(sizes)
    t.require_equal(total, x.shape[t.axis(axis, x.rank)], "the sizes of the parts do not add up to the axis")
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple([t.slice(x, axis, start, n) for start, n in zip(starts, sizes, strict=True)])


def _equal_parts(t: Tracer, x: Tensor, axis: int, count: int) -> list[AnyDim]:
    """The sizes of `count` parts; the last parts are smaller or empty if the axis is not divisible, as in the reference
    implementation."""
    d = x.shape[t.axis(axis, x.rank)]
    part = sh.ceildiv(d, count)
    if part * count == d:
        return [part] * count
    ends = [0, part, *[sh.minimum(part * n, d) for n in range(2, count)], d]
    return [b - a for a, b in pairwise(ends)]


@op("Split")
def split_1(
    t: Tracer, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, split: Sequence[int] | None = None
) -> tuple[Tensor, ...]:
    parts = t.ints(sizes, lower=0) if sizes is not None else split
    t.require(min(split or [0]) >= 0, f"a part cannot have {min(split or [0])} elements")
    return _split(t, x, axis, parts or _equal_parts(t, x, axis, len(t.wanted)))


@op("Split", since=13)
def split(
    t: Tracer, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """Parts of an axis, of the given sizes or of equal ones."""
    outputs = len(t.wanted)
    t.require(num_outputs in (None, outputs), f"num_outputs is {num_outputs}, but the node has {outputs}")
    parts = t.ints(sizes, lower=0) if sizes is not None else None
    return _split(t, x, axis, parts or _equal_parts(t, x, axis, outputs))
