"""Pooling: a reduction over a sliding window, or over all positions.

Letters: N batch, C channels, S input extents, K window, O output extents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, I64, DType, bounds
from pyruntime.ir.expr import (
    Expr,
    X,
    cast,
    dim,
    guard,
    index,
    instantiate,
    maximum,
    minimum,
    power,
    rem,
    select,
    sqrt,
)
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.window import Window, padded_load, sliding

MAX_POOL = GradientRule[Tensor, Window]()
MAX_UNPOOL = GradientRule[Tensor, Tensor, Tensor]()


def _lowest(dtype: DType) -> float:
    return -math.inf if dtype.is_float else bounds(dtype)[0]


# ── maximum ───────────────────────────────────────────────────────────────────────────────────────────────────────


@op("MaxPool", since=1)
@attributes_of(sliding)
def max_pool(
    t: Tracer, x: Tensor, *, kernel_shape: Sequence[int], storage_order: int = 0, **window: Any
) -> tuple[Tensor, Tensor | None]:
    """The largest element of each window, and its index in x. Padding never wins.
    Shapes: x (N, C, *S) -> (N, C, *O), indices (N, C, *O) int64, flat in x; storage_order 1: column-major in S.
    Spec: https://onnx.ai/onnx/operators/onnx__MaxPool.html"""
    w = sliding(t, x.shape[2:], kernel_shape, **window)
    y = t.own_gradient(_largest(t, x, w), MAX_POOL, x, w)
    if len(t.wanted) < 2 or not t.wanted[1]:
        return y, None
    best = t.reduce_compute("argmax", (*x.shape[:2], *w.out), w.kernel, _in_windows(x, w))
    return y, _places(t, x, w, best, bool(storage_order))


def _in_windows(x: Tensor, w: Window) -> Callable[..., Expr]:
    rank = len(w.kernel)

    def body(n: Expr, c: Expr, *i: Expr) -> Expr:
        return padded_load(x, (n, c), w, w.positions(i[:rank], i[rank:]), _lowest(x.dtype))

    return body


def _largest(t: Tracer, x: Tensor, w: Window) -> Tensor:
    """The maximum of each window. One pass per axis, the last axis first, unless a single pass needs fewer
    comparisons."""
    passes = [w]
    both = len(w.kernel) == 2 and min(w.kernel) > 1
    if both and sh.compare("le", w.kernel[1] * w.strides[0] + w.kernel[0], sh.size(w.kernel)) == 1:
        last = w.along(1, w.size)
        passes = [last, w.along(0, last.out)]
    for each in passes:
        x = t.reduce_compute("max", (*x.shape[:2], *each.out), each.kernel, _in_windows(x, each))
    return x


def _places(t: Tracer, x: Tensor, w: Window, best: Tensor, column_major: bool) -> Tensor:
    """Flat index in x of window element `best`."""
    rank = len(w.kernel)
    steps = sh.strides(w.size) if not column_major else tuple(reversed(sh.strides(tuple(reversed(w.size)))))

    def body(n: Expr, c: Expr, *o: Expr) -> Expr:
        rest = cast(best.at(n, c, *o), I32)
        k: list[Expr] = []
        for extent in reversed(w.kernel):
            k.insert(0, rem(rest, dim(extent)))
            rest = rest / dim(extent)
        place = cast(n * dim(x.shape[1]) + c, I64) * cast(dim(sh.size(w.size)), I64)
        for p, begin, d, step in zip(w.positions(o, k), w.begin, w.dilations, steps, strict=True):
            # If all elements are the lowest number, argmax finds padding first: take the first element in x instead.
            first = rem(p + dim(begin) * d, dim(d))
            place = place + cast(select(p < 0, first, p) * dim(step), I64)
        return place

    return t.compute((*x.shape[:2], *w.out), body) if rank else best


@op("MaxUnpool", since=9)
def max_unpool(
    t: Tracer, x: Tensor, indices: Tensor, output_shape: Tensor | None = None, *, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Puts each element back to the index that MaxPool returned; other elements are 0. An output_shape larger than the
    inferred one adds zeros at the ends. Shapes: x, indices (N, C, *S) -> (N, C, *O), O = (S-1)·stride + K - pads.
    Spec: https://onnx.ai/onnx/operators/onnx__MaxUnpool.html"""
    rank = len(kernel_shape)
    t.entries("kernel_shape", kernel_shape, x.rank - 2)
    strides = t.entries("strides", strides or [1] * rank, rank)
    pads = t.entries("pads", pads or [0] * 2 * rank, 2 * rank)
    spatial = [(d - 1) * strides[n] + kernel_shape[n] - pads[n] - pads[n + rank] for n, d in enumerate(x.shape[2:])]
    shape = (*x.shape[:2], *spatial)
    values, places = (t.reshape(v, (sh.size(x.shape),)) for v in (x, indices))

    def body(k, out) -> None:  # type: ignore[no-untyped-def]
        with k.loop(out.shape[0]) as i:
            k.store(out, (i,), 0)
        with k.loop(values.shape[0]) as i:
            k.store(out, (t.checked_index(places[i], sh.size(shape)),), values[i])

    flat = t.loops("max_unpool", (values, places), [((sh.size(shape),), x.dtype)], body)[0]
    t.own_gradient(flat, MAX_UNPOOL, flat, places, values)
    y = t.reshape(flat, shape)
    if output_shape is None:
        return y
    full = t.entries("output_shape", t.ints(output_shape, 0), x.rank)

    def padded(*i: Expr) -> Expr:
        inside = [i[n] < dim(shape[n]) for n in range(len(shape))]
        return guard(reduce(lambda a, b: a & b, inside), y.at(*i), 0)

    return t.compute(full, padded)


# ── averages and norms ────────────────────────────────────────────────────────────────────────────────────────────


@op("AveragePool", since=1)
@attributes_of(sliding)
def average_pool(
    t: Tracer, x: Tensor, *, count_include_pad: int = 0, kernel_shape: Sequence[int], **window: Any
) -> Tensor:
    """The mean of each window over its elements in x or, with count_include_pad, in x and its padding.
    Shapes: x (N, C, *S) -> (N, C, *O). Spec: https://onnx.ai/onnx/operators/onnx__AveragePool.html"""
    w = sliding(t, x.shape[2:], kernel_shape, **window)
    total = window_sum(t, x, w)
    dtype = total.dtype

    def mean(*i: Expr) -> Expr:
        return total.at(*i) / cast(_count(w, i[2:], bool(count_include_pad)), dtype)

    return t.cast(t.compute(total.shape, mean), x.dtype)


def window_sum(t: Tracer, x: Tensor, w: Window, of: Expr = X) -> Tensor:
    """Σ of(x) over each window, without padding; half floats are summed in float32."""
    rank = len(w.kernel)

    def body(n: Expr, c: Expr, *i: Expr) -> Expr:
        e = padded_load(x, (n, c), w, w.positions(i[:rank], i[rank:]), 0)
        return instantiate(of, [cast(e, sum_type(x.dtype))])

    return t.reduce_compute("sum", (*x.shape[:2], *w.out), w.kernel, body)


def _count(w: Window, o: Sequence[Expr], padded: bool) -> Expr:
    """The number of elements of the windows at outputs o that are in the input (with `padded`, also in its padding), as
    a product over axes."""
    counts = []
    for n, place in enumerate(o):
        axis = Window(*[(field[n],) for field in (w.size, w.kernel, w.strides, w.dilations, w.begin, w.end, w.out)])
        if axis.inside([index(0)], padded).op == "const":
            counts.append(dim(w.kernel[n]))
            continue
        start = place * w.strides[n] - dim(w.begin[n])
        step = w.dilations[n]
        first = maximum(0, (step - 1 - start) / step) if not padded else dim(0)
        end = w.size[n] + (w.end[n] if padded else 0)
        counts.append(minimum(dim(w.kernel[n]), (dim(end - 1) - start) / step + 1) - first)
    return reduce(mul, counts)


@op("LpPool", since=1)
@attributes_of(sliding)
def lp_pool(t: Tracer, x: Tensor, *, kernel_shape: Sequence[int], p: int | float = 2, **window: Any) -> Tensor:
    """(Σ |x|^p)^(1/p) of each window. Shapes: x (N, C, *S) -> (N, C, *O).
    Spec: https://onnx.ai/onnx/operators/onnx__LpPool.html"""
    w = sliding(t, x.shape[2:], kernel_shape, **window)
    return t.cast(t.map(_root(t, p), window_sum(t, x, w, _power(p))), x.dtype)


def _power(p: float) -> Expr:
    return abs(X) if p == 1 else X * X if p == 2 else power(abs(X), float(p))


def _root(t: Tracer, p: float) -> Expr:
    if not p > 0:
        raise t.unsupported(f"p is {p}, must be above 0")
    return X if p == 1 else sqrt(X) if p == 2 else power(X, 1.0 / p)


# ── over all positions ────────────────────────────────────────────────────────────────────────────────────────────


@op("GlobalAveragePool", since=1)
def global_average_pool(t: Tracer, x: Tensor) -> Tensor:
    """The mean over all spatial axes. Shapes: x (N, C, *S) -> (N, C, 1, …)."""
    size = sh.size(x.shape[2:])
    dtype = sum_type(x.dtype)
    total = t.reduce("sum", x, range(2, x.rank), of=cast(X, dtype))
    return t.cast(t.map(X / cast(dim(size), dtype), total), x.dtype)


@op("GlobalMaxPool", since=1)
def global_max_pool(t: Tracer, x: Tensor) -> Tensor:
    """The largest element over all spatial axes. Shapes: x (N, C, *S) -> (N, C, 1, …)."""
    return t.reduce("max", x, range(2, x.rank))


@op("GlobalLpPool", since=1)
def global_lp_pool(t: Tracer, x: Tensor, *, p: int | float = 2) -> Tensor:
    """(Σ |x|^p)^(1/p) over all spatial axes. Shapes: x (N, C, *S) -> (N, C, 1, …)."""
    total = t.reduce("sum", t.cast(x, sum_type(x.dtype)), range(2, x.rank), of=_power(p))
    return t.cast(t.map(_root(t, p), total), x.dtype)
