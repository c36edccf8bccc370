"""The transpose of an access: a nest that reads x at coordinates c(i) adds the cotangents of its elements to x at c(i).

A nest of axes i reads x at c(i). The cotangent of x at j is the sum over all i with c(i) = j. If c can be
inverted, this is a gather: one axis of each coordinate, its pivot, follows from j and the other axes, which are summed
over; guards exclude places that are out of range or not divisible. Coordinates that are not affine, such as indices
from data, become a scatter, which adds one element after the other, so that the result is the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from operator import and_

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, affine, cast, const, dim, guard, index, rem, rewrite, substitute, uses_index, walk
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import sum_type
from pyruntime.training.derive.derivative import zero_like
from pyruntime.training.derive.scatter import scattered


def transposed(t: Tracer, load: Expr, value: Expr, extents: Sequence[AnyDim]) -> Tensor:
    """The sum of value(i) over i in extents, at load's coordinates in a tensor like load.value. Half floats are summed
    in float32."""
    value = cast(value, sum_type(value.dtype))
    coords, value, extents = _without_unit_axes(list(load.args), value, list(extents))
    coords, value, extents, inside = _split_axes(coords, value, extents)
    shape = load.value.shape
    coords, value, extents, inside = _split_broadcasts(shape, coords, value, extents, inside)
    coords, value, extents, inside = _join_axes(coords, value, extents, inside)
    solution = _Solution(shape, extents)
    if not solution.solve(coords):
        return scattered(t, shape, coords, value, extents, inside)
    axes = solution.axes(len(shape))
    body = substitute(value, axes)
    tests = [*solution.conditions(len(shape)), *[substitute(c, axes) for c in inside]]
    if tests:
        body = guard(reduce(and_, tests), body, zero_like(body))
    free = solution.free
    if not free:
        return t.compute(shape, lambda *_: body)
    return t.reduce_compute("sum", shape, [extents[a] for a in free], lambda *_: body)


def _without_unit_axes(coords: list[Expr], value: Expr, extents: list[AnyDim]) -> tuple[list[Expr], Expr, list[AnyDim]]:
    """Axes of extent 1 as the constant 0."""
    ones = {n: const(0, I32) for n, d in enumerate(extents) if d == 1}
    return [_with(c, ones) for c in coords], _with(value, ones), extents


# ── i / m and i % m ───────────────────────────────────────────────────────────────────────────────────────────────

_MOST_SPLITS = 8


def _split_axes(
    coords: list[Expr], value: Expr, extents: list[AnyDim]
) -> tuple[list[Expr], Expr, list[AnyDim], list[Expr]]:
    """The same nest, in which i / m and i % m of an axis i are axes of their own, so that coordinates of grouped
    channels or repeated tensors are affine; and the conditions under which an element of the new nest exists."""
    inside: list[Expr] = []
    for _ in range(_MOST_SPLITS):
        cut = next((x for c in coords for x in walk(c) if _is_split(x)), None)
        if cut is None:
            break
        axis, m = cut.args[0].value, cut.args[1].value
        split = _Split(axis, m, len(extents))
        coords, value, inside = [split(c) for c in coords], split(value), [split(c) for c in inside]
        extent, parts = extents[axis], sh.ceildiv(extents[axis], m)
        extents = [*extents, parts]
        extents[axis] = m
        if sh.compare("eq", parts * m, extent) != 1:
            inside.append(split.whole < dim(extent))
    return coords, value, extents, inside


def _is_split(x: Expr) -> bool:
    return x.op in ("div", "rem", "mod") and x.args[0].op == "index" and x.args[1].op in ("const", "dim")


def _split_broadcasts(
    shape: sh.Shape, coords: list[Expr], value: Expr, extents: list[AnyDim], inside: list[Expr]
) -> tuple[list[Expr], Expr, list[AnyDim], list[Expr]]:
    """Split each axis of extent n along which a dim d may be broadcast (only a run knows whether d is 1) into two, of
    extents d and n / d: one of them is 1. (See `Tracer.aligned`.)"""
    for n, d in enumerate(shape):
        form, enlarged = affine(coords[n]), 1 - sh.compare("eq", d, 1)
        if isinstance(enlarged, int) or form is None or form[0] != 0 or list(form[1].values()) != [enlarged]:
            continue
        ((kind, axis),) = form[1]
        if kind != "index":
            continue
        split = _Split(axis, 1, len(extents))
        coords = [index(axis) if m == n else split(c) for m, c in enumerate(coords)]
        value, inside = split(value), [split(c) for c in inside]
        extents = [*extents, sh.floordiv(extents[axis], sh.maximum(d, 1))]
        extents[axis] = d
    return coords, value, extents, inside


def _join_axes(
    coords: list[Expr], value: Expr, extents: list[AnyDim], inside: list[Expr]
) -> tuple[list[Expr], Expr, list[AnyDim], list[Expr]]:
    """The same nest, in which two axes a and b that one coordinate reads as n · a + b, n the extent of b, are one axis:
    the place tells both, and none is summed over."""
    while (pair := _digits(coords, extents)) is not None:
        high, low = pair
        n = extents[low]
        parts = {high: index(low) / dim(n), low: rem(index(low), dim(n))}
        coords = [_with(c, {high: const(0, I32)}) for c in coords]
        value, inside = _with(value, parts), [_with(c, parts) for c in inside]
        extents = [1 if a == high else d * extents[high] if a == low else d for a, d in enumerate(extents)]
    return coords, value, extents, inside


def _digits(coords: list[Expr], extents: list[AnyDim]) -> tuple[int, int] | None:
    """Two axes that can be joined."""
    forms = [affine(c) for c in coords]
    factors = [{} if f is None else {axis: x for (kind, axis), x in f[1].items() if kind == "index"} for f in forms]
    for n, own in enumerate(factors):
        others = [c for m, c in enumerate(coords) if m != n]
        alone = [a for a in own if extents[a] != 1 and not any(uses_index(c, a) for c in others)]
        for high, low in permutations(alone, 2):
            if own[high] == own[low] * extents[low]:
                return high, low
    return None


def _with(e: Expr, axes: dict[int, Expr]) -> Expr:
    return rewrite(e, lambda x: axes.get(x.value) if x.op == "index" else None)


class _Split:
    """Replaces axis a by high · m + low, where low is the new axis a and high another one."""

    def __init__(self, axis: int, m: AnyDim, high: int) -> None:
        self.axis, self.m = axis, m
        self.high, self.low = index(high), index(axis)
        self.whole = self.high * dim(m) + self.low

    def __call__(self, e: Expr) -> Expr:
        marked = rewrite(e, self._part)
        done = {id(self.high), id(self.low)}

        def rest(x: Expr) -> Expr | None:
            return self.whole if x.op == "index" and x.value == self.axis and id(x) not in done else None

        return rewrite(marked, rest)

    def _part(self, x: Expr) -> Expr | None:
        if _is_split(x) and x.args[0].value == self.axis and x.args[1].value == self.m:
            return self.high if x.op == "div" else self.low
        return None


# ── inverting affine coordinates ──────────────────────────────────────────────────────────────────────────────────


class _Solution:
    """Inverts affine coordinates c(i) = j. Expressions hold index(n) for j[n] and var(a) for an axis a that remains.

    places: pivot axis -> its place; tests: conditions that must hold; free: axes that are summed over"""

    def __init__(self, shape: sh.Shape, extents: Sequence[AnyDim]) -> None:
        self.shape, self.extents = shape, extents
        self.places: dict[int, Expr] = {}
        self.tests: list[Expr] = []
        self.free: list[int] = []

    def solve(self, coords: Sequence[Expr]) -> bool:
        """Whether the coordinates can be inverted."""
        forms = [affine(c) for c in coords]
        if any(f is None or any(kind != "index" for kind, _ in f[1]) for f in forms):
            return False
        plain = [(f[0], {axis: factor for (_, axis), factor in f[1].items()}) for f in forms if f is not None]
        for n in sorted(range(len(coords)), key=lambda n: len(plain[n][1])):
            self._use(n, *plain[n])
        self.tests = [self._resolved(c) for c in self.tests]
        used = {x.value for e in (*self.places.values(), *self.tests) for x in walk(e) if x.op == "var"}
        axes = range(len(self.extents))
        self.free = [a for a in axes if a not in self.places and (self.extents[a] != 1 or a in used)]
        return True

    def _use(self, n: int, base: AnyDim, factors: dict[int, AnyDim]) -> None:
        """Use the equation j[n] = base + Σ factor · axis, to find one axis or as a test."""
        mentioned = {x.value for a in factors if a in self.places for x in walk(self.places[a]) if x.op == "var"}
        able = [a for a, f in factors.items() if isinstance(f, int) and a not in self.places and a not in mentioned]
        pivot = max(able, key=lambda a: (sh.estimate(self.extents[a]), a), default=None)
        rest: Expr = dim(base)
        for a, f in factors.items():
            if a != pivot:
                rest = rest + self.places.get(a, Expr("var", (), I32, a)) * dim(f)
        if pivot is None:
            if factors or base != 0 or self.shape[n] != 1:  # else it is the only element
                self.tests.append(index(n) == rest)
            return
        factor = factors[pivot]
        assert isinstance(factor, int)
        away = index(n) - rest if factor > 0 else rest - index(n)
        place = away / abs(factor)
        self.places = {a: _put(e, pivot, place) for a, e in self.places.items()} | {pivot: place}
        if abs(factor) != 1:
            self.tests.append(rem(away, abs(factor)) == 0)
        if factor == 1 and base == 0 and len(factors) == 1 and self.shape[n] == self.extents[pivot]:
            return  # always in range
        self.tests += [away >= 0, place < dim(self.extents[pivot])]

    def _resolved(self, e: Expr) -> Expr:
        return reduce(lambda e, axis: _put(e, axis, self.places[axis]), self.places, e)

    def axes(self, rank: int) -> dict[int, Expr]:
        """Each axis of the nest as an expression over the result's axes and, from `rank` on, the free axes."""
        own = self._named(rank)
        return {
            a: self._renamed(self.places[a], own) if a in self.places else own.get(a, const(0, I32))
            for a in range(len(self.extents))
        }

    def conditions(self, rank: int) -> list[Expr]:
        own = self._named(rank)
        return [self._renamed(c, own) for c in self.tests]

    def _named(self, rank: int) -> dict[int, Expr]:
        return {a: index(rank + n) for n, a in enumerate(self.free)}

    @staticmethod
    def _renamed(e: Expr, names: dict[int, Expr]) -> Expr:
        return rewrite(e, lambda x: names.get(x.value) if x.op == "var" else None)


def _put(e: Expr, axis: int, place: Expr) -> Expr:
    return rewrite(e, lambda x: place if x.op == "var" and x.value == axis else None)
