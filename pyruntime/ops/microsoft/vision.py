"""Pooling windows and boxes of images: MaxpoolWithMask, CropAndResize, UnfoldTensor."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, cast, ceil, clip, const, dim, floor, maximum, minimum, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import LOWEST
from pyruntime.ops.lib.window import padded_load, sliding
from pyruntime.ops.microsoft import MICROSOFT


@op("MaxpoolWithMask", domain=MICROSOFT)
def maxpool_with_mask(
    t: Tracer, x: Tensor, mask: Tensor, *, auto_pad: str = "NOTSET", kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, storage_order: int = 0, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window; in each row (along the last axis), the first element with mask 0 and all
    elements after it do not count. If no element counts, the result is float32's lowest number. Two properties are ONNX
    Runtime's: channel c of x reads the flattened mask from *element* (c · size of S) mod (mask channels) on, and with
    two or three spatial axes the first element of a channel always counts.
    Shapes: x (N, C, *S), mask (M, D, *S) int32 -> (N, C, *O)"""
    spatial = x.shape[2:]
    t.require_shape("the mask", mask, (*mask.shape[:2], *spatial))
    some = sh.maximum(sh.compare("le", 1, mask.shape[0] * mask.shape[1]), sh.compare("eq", sh.size(x.shape), 0))
    t.require(some, "the mask has no channels")
    w = sliding(t, spatial, kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides)
    rank, lowest = len(w.kernel), LOWEST
    channels, size = mask.shape[0] * mask.shape[1], sh.size(spatial)
    flat = t.reshape(mask, (sh.size(mask.shape),))

    def first_masked(n: Expr, c: Expr, *i: Expr) -> Expr:
        """`after` if its mask is 0 and it is not before `here` in the row, else the row's length."""
        *at, here, after = i
        place: Expr = const(0, I32)
        for p, step in zip([*at, after], sh.strides(spatial), strict=True):
            place = place + p * dim(step)
        start = (n * dim(x.shape[1]) + c) * dim(size)
        masked = flat.at(start - start / dim(channels) * dim(channels) + place) == 0
        masked = masked & ((place > 0) | (rank == 1)) & (after >= here)
        return select(masked, after, dim(spatial[-1]))

    ends = t.reduce_compute("min", x.shape, spatial[-1:], first_masked)

    def body(n: Expr, c: Expr, *i: Expr) -> Expr:
        at = w.positions(i[:rank], i[rank:])
        first = maximum(w.positions(i[:rank], [const(0, I32)] * rank)[-1], 0)
        value = padded_load(x, (n, c), w, at, lowest)
        inside = [minimum(maximum(p, 0), dim(d) - 1) for p, d in zip(at[:-1], spatial, strict=False)]
        return select((at[-1] < ends.at(n, c, *inside, first)) & (value > lowest), value, lowest)

    return t.reduce_compute("max", (*x.shape[:2], *w.out), w.kernel, body)


@op("CropAndResize", domain=MICROSOFT)
def crop_and_resize(
    t: Tracer, x: Tensor, rois: Tensor, batch_indices: Tensor, crop_size: Tensor, *, extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Tensor:  # fmt: skip
    """Boxes of images, each resized to P x Q with aligned corners; points outside the image get extrapolation_value.

    Shapes: x (N, C, H, W), rois (R, 4): y1, x1, y2, x2 as fractions of the image, batch_indices (R,), crop_size (2,):
    P, Q -> (R, C, P, Q)"""
    if mode not in ("bilinear", "nearest"):
        raise t.unsupported(f'mode "{mode}" is not known')
    t.require_shape("crop_size", crop_size, (2,))
    t.require_shape("batch_indices", batch_indices, rois.shape[:1])
    t.require_equal(rois.shape[1], 4, "a box must have four coordinates")
    size = t.ints(crop_size, lower=1)
    shape = (rois.shape[0], x.shape[1], *size)
    data = t.cast(x, F32)

    def position(r: Expr, n: int, place: Expr) -> tuple[Expr, Expr]:
        """The coordinate of an output position along an axis of the image, and whether it is inside."""
        low, high = cast(rois.at(r, n), F32), cast(rois.at(r, n + 2), F32)
        last, count = cast(dim(x.shape[2 + n]) - 1, F32), dim(size[n])
        step = (high - low) * last / cast(maximum(count - 1, 1), F32)
        at = select(count > 1, low * last + cast(place, F32) * step, (low + high) * 0.5 * last)
        return clip(at, 0.0, last), (at >= 0.0) & (at <= last)

    def body(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        batch = t.checked_index(batch_indices.at(r), x.shape[0])
        (y, inside_y), (z, inside_z) = position(r, 0, p), position(r, 1, q)
        if mode == "nearest":
            value = data.at(batch, c, cast(floor(y + 0.5), I32), cast(floor(z + 0.5), I32))
        else:
            rows, columns = ((cast(floor(v), I32), cast(ceil(v), I32), v - floor(v)) for v in (y, z))
            top, bottom = (
                data.at(batch, c, row, columns[0]) * (1.0 - columns[2])
                + data.at(batch, c, row, columns[1]) * columns[2]
                for row in rows[:2]
            )
            value = top * (1.0 - rows[2]) + bottom * rows[2]
        return select(inside_y & inside_z, value, extrapolation_value)

    return t.cast(t.compute(shape, body), x.dtype)


@op("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(t: Tracer, x: Tensor, *, dim: int = -1, size: int, step: int = 1) -> Tensor:
    """All slices of length `size` along an axis, `step` apart, stacked along a new last axis."""
    axis = t.axis(dim, x.rank)
    if size < 1 or step < 1:
        raise t.shape_error(f"size {size} and step {step} must be at least 1")
    t.require(sh.compare("le", size, x.shape[axis]), f"size {size} exceeds the axis of {x.shape[axis]}")
    count = sh.floordiv(x.shape[axis] - size, step) + 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    return t.compute(shape, lambda *i: x.at(*i[:axis], i[axis] * step + i[-1], *i[axis + 1 : -1]))
