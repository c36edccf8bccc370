"""The gradients of pooling: into the first largest element of a window or region, or into the neighbours of samples.

Letters: N batch, C channels, R regions, P Q bins."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from itertools import product as product_of
from operator import mul
from typing import Any

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, const, dim, floor, index, maximum, rem, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.window import Window, padded_load
from pyruntime.ops.standard import deform_conv, pool, roi
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.derivative import contributions

UNROLLED = 16  # elements of a window that are compared without a loop


def _flat(coords: list[Expr], window: Window) -> Expr:
    return reduce(lambda a, b: a + b, [c * dim(s) for c, s in zip(coords, sh.strides(window.size), strict=True)])


# ── MaxPool ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pool.MAX_POOL.function
def max_pool(walk: Walk, g: Tensor, x: Tensor, window: Window) -> Cotangents:
    """The cotangent of a window goes to the first of its largest elements. A procedure finds and adds: to compare each
    element with the result in a reduction over windows took seven times as long."""
    t, (batch, channels, *_) = walk.t, x.shape
    rows, size = batch * channels, sh.size(window.size)
    planes = window.kernel == window.strides == (2, 2)  # for the routine; the row of an element costs a division

    def place(row: Expr, n: Expr, c: Expr, i: Expr) -> list[Expr]:
        return [n, c, i / dim(window.size[1]), rem(i, dim(window.size[1]))] if planes else [row, i]

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(rows)) as row, ExitStack() as stack:
            n, c = k.let(row / dim(channels)), k.let(rem(row, dim(channels)))
            with k.loop(dim(size), "vector") as i:
                k.store(out, place(row, n, c, i), const(0.0, g.dtype))
            o = [stack.enter_context(k.loop(dim(d))) for d in window.out]
            at = place(row, n, c, _first_largest(k, x, window, [n, c], o))
            k.store(out, at, out.at(*at) + g.at(n, c, *o))

    shape = x.shape if planes else (rows, size)
    made = t.loops("into_largest", (x, g), [(shape, g.dtype)], body)[0]
    if planes:
        made = t.call(
            "max_pool_gradient", (x, g), made, kernel=window.kernel, strides=window.strides,
            dilations=window.dilations, pads=window.pads,
        )  # fmt: skip
    t.own_gradient(made, into_largest, g, x, window)
    return [(x, t.reshape(made, x.shape))]


def _first_largest(k: Builder, x: Tensor, window: Window, lead: list[Expr], o: list[Expr]) -> Expr:
    """The place in the image of the first largest element of a window."""
    if sh.is_static(window.kernel) and sh.size(window.kernel) <= UNROLLED:
        best, place = None, const(0, I32)
        for element in product_of(*map(range, window.kernel)):
            at = window.positions(o, [const(e, I32) for e in element])
            value = k.let(padded_load(x, lead, window, at, -math.inf))
            found = maximum(_flat(at, window), const(0, I32))
            if best is None:
                best, place = value, k.let(found)
                continue
            larger = k.let(value > best)
            best, place = k.let(select(larger, value, best)), k.let(select(larger, found, place))
        return place
    top, spot = k.var(-math.inf, x.dtype), k.var(-1, I32)
    with ExitStack() as stack:
        at = window.positions(o, [stack.enter_context(k.loop(dim(d))) for d in window.kernel])
        inside = window.inside(at)
        if inside.op != "const":
            stack.enter_context(k.when(inside))
        value = k.let(x.at(*lead, *at))
        with k.when((value > top.get) | (spot.get < 0)):
            top.set(value)
            spot.set(_flat(at, window))
    return k.let(maximum(spot.get, const(0, I32)))


def into_largest(walk: Walk, h: Tensor, g: Tensor, x: Tensor, window: Window) -> Cotangents:
    """The second derivative: each window reads h where it added g."""
    t, rank = walk.t, len(window.kernel)
    channels = x.shape[1]
    h = t.reshape(h, (x.shape[0] * channels, sh.size(window.size)))

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        return padded_load(x, (n, c), window, window.positions(i[:rank], i[rank:]), -math.inf)

    best = t.reduce_compute("argmax", (*x.shape[:2], *window.out), window.kernel, element)

    def read(n: Expr, c: Expr, *o: Expr) -> Expr:
        k: list[Expr] = []
        rest = cast(best.at(n, c, *o), I32)
        for extent in reversed(window.kernel):
            k.insert(0, rem(rest, dim(extent)))
            rest = rest / dim(extent)
        place = maximum(_flat(window.positions(o, k), window), const(0, I32))
        return h.at(n * dim(channels) + c, t.checked_index(place, h.shape[1]))

    return [(g, t.compute(g.shape, read))]


# ── regions of interest ───────────────────────────────────────────────────────────────────────────────────────────


@roi.MAX_ROI_POOL.function
def max_roi_pool(walk: Walk, g: Tensor, x: Tensor, regions: Tensor, bins: Callable[..., Any]) -> Cotangents:
    """bins(k, regions, r, p, q): the first row of a bin and the one past its last, and the same for columns."""
    t, (count, channels, height, width) = walk.t, g.shape
    image = x.shape[2:]

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(channels)) as c:
            _clear(k, out, c, x)
            with k.loop(dim(count)) as r, k.loop(dim(height)) as p, k.loop(dim(width)) as q:
                batch = k.let(t.checked_index(regions.at(r, 0), x.shape[0]))
                (row, last_row), (column, last_column) = bins(k, regions, r, p, q)
                rows, columns = maximum(last_row - row, 0), maximum(last_column - column, 0)
                top, spot = k.var(-math.inf, x.dtype), k.var(-1, I32)
                with k.loop(rows) as i, k.loop(columns) as j:
                    value = k.let(x.at(batch, c, row + i, column + j))
                    with k.when((value > top.get) | (spot.get < 0)):
                        top.set(value)
                        spot.set((row + i) * dim(image[1]) + column + j)
                with k.when(spot.get >= 0):
                    at = (c, batch, spot.get)
                    k.store(out, at, out.at(*at) + g.at(r, c, p, q))

    return _from_planes(walk, "max_roi_pool_back", (x, g, regions), x, body)


@roi.ROI_ALIGN.function
def roi_align(walk: Walk, g: Tensor, x: Tensor, rows: Any, columns: Any, batches: Tensor, mode: str) -> Cotangents:
    """Into the neighbours of all samples of a bin, or of the largest one. The regions are constant."""
    t, (count, channels, height, width) = walk.t, g.shape
    line = dim(x.shape[3])

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(channels)) as c:
            _clear(k, out, c, x)
            with k.loop(dim(count)) as r, k.loop(dim(height)) as p, k.loop(dim(width)) as q:
                batch = k.let(t.checked_index(batches.at(r), x.shape[0]))
                y, first_row, some_rows, all_rows = rows.bin(k, r, p)
                z, first_column, some_columns, all_columns = columns.bin(k, r, q)
                g_bin = k.let(g.at(r, c, p, q))
                top, spot, weight = k.var(-math.inf, x.dtype), k.var(-1, I32), k.var(0.0, x.dtype)
                samples = maximum(cast(all_rows, x.dtype) * cast(all_columns, x.dtype), 1.0)
                with k.loop(some_rows) as iy, k.loop(some_columns) as ix:
                    for (py, wy), (pz, wz) in product_of(y(first_row + iy), z(first_column + ix)):
                        place, share = k.let(py * line + pz), k.let(wy * wz)
                        if mode == "avg":
                            k.store(out, (c, batch, place), out.at(c, batch, place) + g_bin * share / samples)
                            continue
                        value = k.let(share * x.at(batch, c, py, pz))
                        with k.when((value > top.get) | (spot.get < 0)):
                            top.set(value)
                            spot.set(place)
                            weight.set(share)
                if mode == "max":
                    outside = (some_rows < all_rows) | (some_columns < all_columns)  # samples of 0
                    with k.when((spot.get >= 0) & ~(outside & (top.get < 0.0))):
                        at = (c, batch, spot.get)
                        k.store(out, at, out.at(*at) + g_bin * weight.get)

    tables = (*rows.tables, *columns.tables, batches)
    return _from_planes(walk, "roi_align_back", (x, g, *tables), x, body)


def _clear(k: Builder, out: Tensor, c: Expr, x: Tensor) -> None:
    with k.loop(dim(x.shape[0])) as n, k.loop(dim(x.shape[2] * x.shape[3]), "vector") as i:
        k.store(out, (c, n, i), const(0.0, x.dtype))


def _from_planes(walk: Walk, name: str, args: tuple[Tensor, ...], x: Tensor, body: Callable[..., None]) -> Cotangents:
    """Run a procedure that adds into planes (C, N, H·W), a channel in each work unit."""
    t, (batch, channels, height, width) = walk.t, x.shape
    planes = t.loops(name, args, [((channels, batch, height * width), x.dtype)], body)[0]
    return [(x, t.reshape(t.transpose(planes, [1, 0, 2]), x.shape))]


# ── DeformConv ────────────────────────────────────────────────────────────────────────────────────────────────────


@deform_conv.DEFORM_SAMPLES.function
def deform_samples(
    walk: Walk, gs: OutputCotangents, moved: Tensor, weighted: Tensor | None, window: Window
) -> Cotangents:
    """Of the weights of the corners around each sample, by their formula; the corners themselves are integers."""
    g, rank = gs[0], len(window.size)
    if g is None:
        return []
    n, f, element, corner, o = (index(axis) for axis in range(5))
    weight = const(1.0, g.dtype) if weighted is None else cast(weighted.at(n, f, element, o), g.dtype)
    places = window.positions(_unflat(o, window.out), _unflat(element, window.kernel))
    factors = [weight]
    for a, place in enumerate(places):
        position = cast(place, g.dtype) + cast(moved.at(n, f, element, a, o), g.dtype)
        part = position - floor(position)
        factors.append(select((corner >> (rank - 1 - a)) & 1 == 1, part, 1.0 - part))
    formula = reduce(mul, factors)
    return walk.into_loads(contributions(formula, g.at(n, f, element, corner, o), walk.is_active), g.shape)


def _unflat(number: Expr, shape: sh.Shape) -> list[Expr]:
    return [number / dim(step) % dim(d) for d, step in zip(shape, sh.strides(shape), strict=True)]
