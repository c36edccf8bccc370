"""DeformConv: a convolution that reads its window elements at offset positions, by linear interpolation.

Letters: N batch, C input channels, M filters, K window, O output extents, R spatial axes, F offset groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import and_

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, dim, floor, guard, index
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import float_type
from pyruntime.ops.lib.window import sliding
from pyruntime.ops.standard.conv import add_bias, check_weight, flat


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
    rank, moved = len(window.size), sh.size(window.kernel) * offset_group
    t.require_shape("offset", offset, (x.shape[0], moved * rank, *window.out))
    t.require_shape("mask", mask, (x.shape[0], moved, *window.out))
    t.require_equal(x.shape[1], w.shape[1] * group, f"input channels and weight channels x group {group} differ")
    filters = t.divided(w.shape[0], group, "filters into groups")
    shared = t.divided(x.shape[1], offset_group, "channels into groups of offsets")
    wide = float_type(x.dtype)

    def body(n: Expr, m: Expr, *i: Expr) -> Expr:
        o, c, k = i[:rank], i[rank], i[rank + 1 :]
        channel = c if group == 1 else index(1) / dim(filters) * dim(w.shape[1]) + c
        element = flat([channel / dim(shared), *k], (1, *window.kernel))
        at = [
            cast(p, wide) + cast(offset.at(n, element * rank + axis, *o), wide)
            for axis, p in enumerate(window.positions(o, k))
        ]
        value = interpolated(x, (n, channel), at) * cast(w.at(m, c, *k), wide)
        return value if mask is None else value * cast(mask.at(n, element, *o), wide)

    shape = (x.shape[0], w.shape[0], *window.out)
    y = t.reduce_compute("sum", shape, (w.shape[1], *window.kernel), body)
    return add_bias(t, y, b, x.dtype)


def interpolated(x: Tensor, lead: Sequence[Expr], at: Sequence[Expr]) -> Expr:
    """x at a fractional position, in the type of the coordinates; elements outside are 0."""
    low = [floor(a) for a in at]
    out: Expr | None = None
    for corner in product((0, 1), repeat=len(at)):
        places = [cast(f, I32) + step for f, step in zip(low, corner, strict=True)]
        inside = [(p >= 0) & (p < dim(d)) for p, d in zip(places, x.shape[len(lead) :], strict=True)]
        value = guard(reduce(and_, inside), cast(x.at(*lead, *places), at[0].dtype), 0.0)
        for a, f, step in zip(at, low, corner, strict=True):
            value = value * (a - f if step else f + 1.0 - a)
        out = value if out is None else out + value
    assert out is not None
    return out
