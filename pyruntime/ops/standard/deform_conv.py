"""DeformConv: a convolution that reads its window elements at offset positions, by linear interpolation.

Positions and weights are the same for all channels of a group, so they are computed once. The sampled windows are the
right operand of a matrix product.

Letters: N batch, C input channels, M filters, K window, O output extents, R spatial axes, F offset groups."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from itertools import product as product_of
from operator import add, and_

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, DType
from pyruntime.ir.expr import Expr, cast, const, dim, floor, guard, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import float_type
from pyruntime.ops.lib.window import Window, sliding
from pyruntime.ops.standard.conv import add_bias, check_weight, flat
from pyruntime.ops.standard.matmul import product

DEFORM_SAMPLES = GradientRule[Tensor, Tensor | None, Window]()


@op("DeformConv", since=19)
def deform_conv(
    t: Tracer, x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None, *,
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Σ over c, k of x(o·stride + k·dilation - begin + offset[k, o]) · mask[k, o] · w[m, c, k]; x is interpolated
    linearly and 0 outside.
    Shapes: x (N, C, *S), w (M, C/group, *K), offset (N, F·ΠK·R, *O), b (M,), mask (N, F·ΠK, *O) -> (N, M, *O)
    Spec: https://onnx.ai/onnx/operators/onnx__DeformConv.html"""
    check_weight(t, x, w, kernel_shape)
    window = sliding(t, x.shape[2:], w.shape[2:], pads=pads, strides=strides, dilations=dilations)
    moved = sh.size(window.kernel) * offset_group
    t.require_shape("offset", offset, (x.shape[0], moved * len(window.size), *window.out))
    t.require_shape("mask", mask, (x.shape[0], moved, *window.out))
    t.require_equal(x.shape[1], w.shape[1] * group, f"input channels and weight channels x group {group} differ")
    filters = t.divided(w.shape[0], group, "filters into groups")
    t.divided(x.shape[1], offset_group, "channels into groups of offsets")
    wide = float_type(x.dtype)
    columns = _columns(t, t.cast(x, wide), *_samples(t, offset, mask, window, offset_group, wide))
    length = w.shape[1] * sh.size(window.kernel)
    patches = t.reshape(columns, (x.shape[0], group, length, sh.size(window.out)))
    y = product(t, t.reshape(t.cast(w, wide), (1, group, filters, length)), patches)
    return add_bias(t, t.reshape(y, (x.shape[0], w.shape[0], *window.out)), b, x.dtype)


def _samples(
    t: Tracer, offset: Tensor, mask: Tensor | None, window: Window, groups: int, dtype: DType
) -> tuple[Tensor, Tensor]:
    """Return bilinear weights and flat indices into the image of the 2^rank corners around each sampling point.

    Shapes: both (N, offset groups, kernel elements, corners, output elements); elements are in row-major order. The
    index of a corner outside of the image is one past its end."""
    rank, elements, count = len(window.size), sh.size(window.kernel), sh.size(window.out)
    batch, corners = offset.shape[0], list(product_of((0, 1), repeat=rank))
    moved = t.reshape(offset, (batch, groups, elements, rank, count))
    weighted = None if mask is None else t.reshape(mask, (batch, groups, elements, count))

    def body(k: Builder, weights: Tensor, places: Tensor) -> None:
        with k.parallel(batch * groups * elements) as unit, ExitStack() as loops:
            element = k.let(unit % dim(elements))
            n, f = k.let(unit / dim(elements * groups)), k.let(unit / dim(elements) % groups)
            inner = [element / dim(sh.size(window.kernel[a + 1 :])) % dim(window.kernel[a]) for a in range(rank)]
            at = [k.let(v) for v in inner]
            o = [
                loops.enter_context(k.loop(d, "vector" if a == rank - 1 else "serial"))
                for a, d in enumerate(window.out)
            ]
            place = k.let(flat(o, window.out))
            position = [
                k.let(cast(p, dtype) + cast(moved[n, f, element, a, place], dtype))
                for a, p in enumerate(window.positions(o, at))
            ]
            low = [k.let(floor(p)) for p in position]
            factor = const(1.0, dtype) if weighted is None else k.let(cast(weighted[n, f, element, place], dtype))
            for number, corner in enumerate(corners):
                found = [k.let(cast(v, I32) + step) for v, step in zip(low, corner, strict=True)]
                inside = reduce(and_, [(v >= 0) & (v < dim(d)) for v, d in zip(found, window.size, strict=True)])
                weight = factor
                for p, v, step in zip(position, low, corner, strict=True):
                    weight = weight * (p - v if step else v + 1.0 - p)
                k.store(weights, (n, f, element, number, place), weight)
                k.store(
                    places,
                    (n, f, element, number, place),
                    select(inside, flat(found, window.size), dim(sh.size(window.size))),
                )

    shape = (batch, groups, elements, len(corners), count)
    args = [moved] if weighted is None else [moved, weighted]
    weights, places = t.loops("deform_samples", args, [(shape, dtype), (shape, I32)], body)
    t.own_gradient(weights, DEFORM_SAMPLES, moved, weighted, window)
    return weights, places


def _columns(t: Tracer, x: Tensor, weights: Tensor, places: Tensor) -> Tensor:
    """The sampled elements of each window: (N, C, K, O)."""
    batch, channels, *size = x.shape
    _, groups, elements, corners, count = weights.shape
    end, shared = sh.size(size), sh.floordiv(channels, groups)
    plain = t.reshape(x, (batch, channels, end))
    # A 0 behind the elements of each channel stands for those outside, so that loads need no condition.
    image = t.compute((batch, channels, end + 1), lambda n, c, i: guard(i < dim(end), plain[n, c, i], 0.0))

    def element(n: Expr, c: Expr, k: Expr, o: Expr) -> Expr:
        f = c / dim(shared) if groups != 1 else const(0, I32)
        at = [(n, f, k, corner, o) for corner in range(int(corners))]
        return reduce(add, [weights.at(*a) * image[n, c, places.at(*a)] for a in at])

    return t.compute((batch, channels, elements, count), element, x.dtype)
