"""Resampling for Resize and its relatives: one pass per axis that changes.

For each output position along an axis, tables hold the input positions and weights. They depend on extents only: with
static shapes they are constants, else small tensors. Nearest upsampling by a whole number is an expansion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BF16, F16, F32, F64, I32, STRING, DType
from pyruntime.ir.expr import Expr, X, Y, cast, ceil, clip, const, dim, floor, maximum, minimum, round_even, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

NEAREST: dict[str, Callable[[Expr], Expr]] = {
    "round_prefer_floor": lambda x: ceil(x - 0.5),
    "round_prefer_ceil": lambda x: floor(x + 0.5),
    "floor": floor,
    "ceil": ceil,
}


@dataclass(frozen=True, slots=True)
class Scale:
    """out / in as the fraction top / bottom: ints, Dims, or a float over 1."""

    top: AnyDim | float
    bottom: AnyDim

    @property
    def value(self) -> float | None:
        if isinstance(self.top, sh.Dim) or isinstance(self.bottom, sh.Dim):
            return None
        return self.top / max(self.bottom, 1)

    def reach(self, half: int) -> AnyDim:
        """⌈half / min(scale, 1)⌉: how far a filter that is stretched for downsampling reads."""
        if isinstance(self.top, float):
            return math.ceil(half / min(self.top, 1.0))
        return sh.maximum(sh.ceildiv(self.bottom * half, sh.maximum(self.top, 1)), half)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis to resize: `size` before, `out` after; roi: start and end of its region of interest."""

    number: int
    size: AnyDim
    out: AnyDim
    scale: Scale
    roi: tuple[Expr, Expr] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """The attributes of a Resize."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


def as_float(x: AnyDim | float, dtype: DType = F32) -> Expr:
    """A dim or number as a float expression."""
    return cast(dim(x), dtype) if isinstance(x, sh.Dim) else const(float(x), dtype)


# ── coordinates ───────────────────────────────────────────────────────────────────────────────────────────────────


def source(t: Tracer, a: Axis, how: str, i: Expr) -> Expr:
    """The input coordinate of output position i, as float32."""
    x, size = cast(i, F32), as_float(a.size)
    width = size * as_float(a.scale.top) / as_float(a.scale.bottom)  # may be fractional
    if how in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        at = (x + 0.5) * as_float(a.scale.bottom) / as_float(a.scale.top)
        if how == "half_pixel_symmetric":
            return size * 0.5 * (1.0 - as_float(a.out) / width) + at - 0.5  # this order keeps integers exact
        at = at - 0.5
        return at if how == "half_pixel" else select(as_float(a.out) > 1.0, at, 0.0)
    if how == "asymmetric":
        return x * as_float(a.scale.bottom) / as_float(a.scale.top)
    last = size - 1.0
    step = last / select(width == 1.0, 1.0, width - 1.0)
    if how == "align_corners":
        return select(width == 1.0, 0.0, x * step)
    if how != "tf_crop_and_resize" or a.roi is None:
        raise t.unsupported(f"coordinate_transformation_mode {how}" + (" without roi" if how.startswith("tf") else ""))
    start, end = a.roi
    return select(width == 1.0, (start + end) * 0.5 * last, start * last + x * (end - start) * step)


def table(t: Tracer, shape: Sequence[AnyDim], fn: Callable[..., Expr]) -> Tensor:
    """A small tensor that depends on extents: a constant if they are known."""
    out = t.compute(shape, fn)
    known = t.known(out)
    if known is None or any(isinstance(v, sh.Dim) for v in known):
        return out
    return t.constant(known, out.dtype, [d for d in shape if isinstance(d, int)])


def coordinates(t: Tracer, a: Axis, how: str) -> Tensor:
    return table(t, (a.out,), lambda i: source(t, a, how, i))


# ── nearest ───────────────────────────────────────────────────────────────────────────────────────────────────────


def repeats(a: Axis, rule: Rule) -> bool:
    """Whether output position i reads input position i // scale."""
    whole = a.scale.value is not None and a.scale.value >= 1 and a.scale.value == int(a.scale.value)
    exact = a.out == a.size * int(a.scale.value or 1)
    return whole and exact and (rule.coordinates, rule.nearest) in (
        ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"),
        ("pytorch_half_pixel", "round_prefer_floor"), ("pytorch_half_pixel", "round_prefer_ceil"),
    )  # fmt: skip


def repeat(t: Tracer, x: Tensor, axes: Sequence[Axis]) -> Tensor:
    """(…, H, …) -> (…, H, s, …) -> (…, H·s, …)"""
    factors = {a.number: int(a.scale.value or 1) for a in axes}
    split: list[AnyDim] = []
    place: list[int] = []
    for n, d in enumerate(x.shape):
        place.append(len(split))
        split += [d, factors[n]] if n in factors else [d]
    spread = t.compute(split, lambda *i: x.at(*[i[p] for p in place]))
    return t.reshape(spread, [d * factors.get(n, 1) for n, d in enumerate(x.shape)])


def nearest(t: Tracer, x: Tensor, axes: Sequence[Axis], rule: Rule) -> Tensor:
    if all(repeats(a, rule) for a in axes):
        return repeat(t, x, axes)
    if rule.nearest not in NEAREST:
        raise t.unsupported(f"nearest_mode {rule.nearest} is not known")
    pick = NEAREST[rule.nearest]
    where = {a.number: coordinates(t, a, rule.coordinates) for a in axes}
    index = {
        a.number: table(t, (a.out,), lambda i, a=a: clip(cast(pick(where[a.number].at(i)), I32), 0, dim(a.size - 1)))
        for a in axes
    }

    def element(*i: Expr) -> Expr:
        value = x.at(*[index[n].at(c) if n in index else c for n, c in enumerate(i)])
        if rule.coordinates == "tf_crop_and_resize":
            for a in axes:
                value = select(outside(where[a.number].at(i[a.number]), a), _number(rule.extrapolation, x.dtype), value)
        return value

    return t.compute(resized(x, axes), element)


def outside(at: Expr, a: Axis) -> Expr:
    return (at < 0.0) | (at > as_float(a.size - 1))


def resized(x: Tensor, axes: Sequence[Axis]) -> list[AnyDim]:
    out = list(x.shape)
    for a in axes:
        out[a.number] = a.out
    return out


def _number(value: float, dtype: DType) -> Expr:
    return const(value if dtype.is_float else int(value), dtype)


# ── linear and cubic ──────────────────────────────────────────────────────────────────────────────────────────────


def linear_weight(distance: Expr) -> Expr:
    return maximum(1.0 - abs(distance), 0.0)


def cubic_weight(distance: Expr, a: float) -> Expr:
    """Keys' cubic convolution, for distances of less than 2."""
    d = abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1.0
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return select(d <= 1.0, near, select(d < 2.0, far, 0.0))


def interpolate(t: Tracer, x: Tensor, a: Axis, rule: Rule) -> Tensor:
    """out[i] = Σ w[i, k] · x[first[i] + k], positions clamped to the axis."""
    half = 1 if rule.mode == "linear" else 2
    reach = a.scale.reach(half) if rule.antialias else half
    if isinstance(reach, int) and isinstance(a.size, int):
        reach = min(reach, 2 * half * max(a.size, 1))  # exceeded only if the output is empty: scale · size rounds to 0
    where = coordinates(t, a, rule.coordinates)
    first = table(t, (a.out,), lambda i: cast(floor(where.at(i)), I32) + dim(1 - reach))
    stretch = minimum(as_float(a.scale.top) / as_float(a.scale.bottom), 1.0) if rule.antialias else const(1.0, F32)

    def weight(i: Expr, k: Expr) -> Expr:
        at = first.at(i) + k
        distance = (cast(at, F32) - where.at(i)) * stretch
        w = linear_weight(distance) if half == 1 else cubic_weight(distance, rule.cubic)
        return select((at >= 0) & (at < dim(a.size)), w, 0.0) if rule.exclude_outside else w

    weights = table(t, (a.out, reach * 2), weight)
    if rule.antialias or rule.exclude_outside:
        normal = t.map(X / Y, weights, t.reduce("sum", weights, [1]))
        weights = table(t, weights.shape, lambda i, k: normal.at(i, k))

    def tap(i: Sequence[Expr], k: Expr) -> Expr:
        at = clip(first.at(i[a.number]) + k, 0, dim(a.size - 1))
        value = x.at(*[at if n == a.number else c for n, c in enumerate(i)])
        return value * cast(weights.at(i[a.number], k), x.dtype)

    shape = resized(x, [a])
    if isinstance(reach, int) and reach <= 2:
        return t.compute(shape, lambda *i: sum([tap(i, dim(k)) for k in range(1, 2 * reach)], tap(i, dim(0))))
    return t.reduce_compute("sum", shape, (reach * 2,), lambda *i: tap(i[:-1], i[-1]))


def extrapolate(t: Tracer, x: Tensor, axes: Sequence[Axis], rule: Rule) -> Tensor:
    """x, with rule.extrapolation where the coordinate on any axis is outside the input."""
    places = [(a, coordinates(t, a, rule.coordinates)) for a in axes]

    def element(*i: Expr) -> Expr:
        out = x.at(*i)
        for a, where in places:
            out = select(outside(where.at(i[a.number]), a), const(rule.extrapolation, x.dtype), out)
        return out

    return t.compute(x.shape, element)


def resize_axes(t: Tracer, x: Tensor, axes: Sequence[Axis], rule: Rule) -> Tensor:
    if rule.mode not in ("nearest", "linear", "cubic"):
        raise t.unsupported(f"mode {rule.mode} is not known")
    if not axes:
        return x
    for a in axes:
        some = sh.maximum(sh.compare("lt", 0, a.size), sh.compare("eq", a.out, 0))
        t.require(some, f"axis {a.number} is empty and cannot be resized to {a.out}")
    if rule.mode == "nearest":
        return nearest(t, x, axes, rule)
    if x.dtype is STRING:
        raise t.unsupported(f"mode {rule.mode} needs numbers, the input holds strings")
    dtype = x.dtype
    x = t.cast(x, F32) if dtype in (F16, BF16) or dtype is not F64 else x
    for a in reversed(axes):  # the last axis first, so that the passes over the other axes read whole rows
        x = interpolate(t, x, a, rule)
    if rule.coordinates == "tf_crop_and_resize":
        x = extrapolate(t, x, axes, rule)
    if dtype.is_int and (rule.antialias or rule.mode == "cubic"):  # as in ONNX Runtime, which truncates linear results
        x = t.map(round_even(X), x)
    return t.cast(x, dtype)
