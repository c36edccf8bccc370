"""Pooling over regions of interest, as loop kernels, because each region has its own windows.

Letters: N batch, C channels, H W input extents, R regions, P Q output extents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, F64, I32
from pyruntime.ir.expr import Expr, cast, ceil, clip, const, dim, floor, maximum, minimum, rem, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import float_type


def _split(k: Builder, i: Expr, shape: Sequence[sh.AnyDim]) -> list[Expr]:
    """The coordinates of a row-major index."""
    out: list[Expr] = []
    for d in reversed(shape):
        out.insert(0, k.let(rem(i, dim(d))))
        i = i / dim(d)
    return out


MAX_SAMPLES = 1024  # limit of sampling_ratio, per axis; models use 2 or 4
MAX_ADAPTIVE = 2.0**30  # samples per axis, if a region's size gives them; those outside the image are skipped
MAX_ROI_POOL = GradientRule[Tensor, Tensor, Callable[..., Any]]()
LOWEST = {F32: -3.4028234663852886e38, F64: -1.7976931348623157e308}


@op("MaxRoiPool", since=1)
def max_roi_pool(
    t: Tracer, x: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Tensor:
    """The largest element of each of P x Q bins of a region; 0 for an empty bin.
    Shapes: x (N, C, H, W), rois (R, 5): batch, x1, y1, x2, y2 -> (R, C, P, Q).
    Spec: https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html"""
    t.require_equal(rois.shape[1], 5, "a region must have a batch index and four coordinates")
    shape = (rois.shape[0], x.shape[1], *pooled_shape)
    wide = float_type(x.dtype)
    data, regions = t.cast(x, wide), t.cast(rois, wide)

    def bin_of(k: Builder, regions: Tensor, r: Expr, p: Expr, q: Expr) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        rows = _bin(k, regions[r, 2], regions[r, 4], spatial_scale, p, pooled_shape[0], x.shape[2])
        return rows, _bin(k, regions[r, 1], regions[r, 3], spatial_scale, q, pooled_shape[1], x.shape[3])

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(sh.size(shape)) as i:
            r, c, p, q = _split(k, i, shape)
            rows, columns = bin_of(k, regions, r, p, q)
            empty = (rows[1] <= rows[0]) | (columns[1] <= columns[0])
            batch = k.let(t.checked_index(regions[r, 0], x.shape[0]))
            best = k.var(select(empty, const(0.0, wide), const(LOWEST[wide], wide)), wide)
            with k.loop(maximum(rows[1] - rows[0], 0)) as h, k.loop(maximum(columns[1] - columns[0], 0)) as w:
                value = data[batch, c, rows[0] + h, columns[0] + w]
                best.set(maximum(best.get, value))
            k.store(out, (r, c, p, q), best.get)

    y = t.loops("max_roi_pool", (data, regions), [(shape, wide)], body)[0]
    return t.cast(t.own_gradient(y, MAX_ROI_POOL, data, regions, bin_of), x.dtype)


def _bin(k: Builder, low: Expr, high: Expr, scale: float, n: Expr, count: int, extent: sh.AnyDim) -> tuple[Expr, Expr]:
    """The first input position of bin n, and one past its last; borders are rounded half away from zero."""
    start = floor(low * scale + 0.5)
    width = maximum(floor(high * scale + 0.5) - start + 1.0, 1.0)
    step = width / float(count)
    first = cast(floor(cast(n, low.dtype) * step) + start, I32)
    last = cast(ceil(cast(n + 1, low.dtype) * step) + start, I32)
    return k.let(clip(first, 0, dim(extent))), k.let(clip(last, 0, dim(extent)))


@op("RoiAlign", since=16)
def roi_align(
    t: Tracer, x: Tensor, rois: Tensor, batch_indices: Tensor, *, coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg", output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """The mean (or maximum) of bilinear samples in each of P x Q bins of a region, whose borders are not rounded.
    Shapes: x (N, C, H, W), rois (R, 4): x1, y1, x2, y2, batch_indices (R,) -> (R, C, P, Q).
    Spec: https://onnx.ai/onnx/operators/onnx__RoiAlign.html"""
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise t.unsupported(f'coordinate_transformation_mode "{coordinate_transformation_mode}" is not known')
    if mode not in ("avg", "max"):
        raise t.unsupported(f'mode "{mode}" is not known')
    if sampling_ratio > MAX_SAMPLES:
        raise t.unsupported(
            f"sampling_ratio {sampling_ratio} means {sampling_ratio**2} samples per bin, more than {MAX_SAMPLES}²"
        )
    t.require_equal(rois.shape[0], batch_indices.shape[0], "rois and batch_indices differ in number")
    t.require_equal(rois.shape[1], 4, "a region must have four coordinates")
    half = coordinate_transformation_mode == "half_pixel"
    shape = (rois.shape[0], x.shape[1], output_height, output_width)
    wide = float_type(x.dtype)
    data, regions = t.cast(x, wide), t.cast(rois, wide)
    rows, columns = (
        _axis(t, regions, n, x.shape[3 - n], (output_width, output_height)[n], sampling_ratio, spatial_scale, half)
        for n in (1, 0)
    )

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(sh.size(shape[:3])) as i:
            r, c, p = _split(k, i, shape[:3])
            batch = k.let(t.checked_index(batch_indices[r], x.shape[0]))
            y, first_row, some_rows, all_rows = rows.bin(k, r, p)
            with k.loop(output_width) as q:
                z, first_column, some_columns, all_columns = columns.bin(k, r, q)
                all_near = (some_rows == all_rows) & (some_columns == all_columns)
                total = k.var(0.0, wide)
                with k.loop(some_rows) as iy:
                    lines = [(k.let(place), k.let(weight)) for place, weight in y(first_row + iy)]
                    with k.loop(some_columns) as ix:
                        parts = _samples(k, data, batch, c, lines, z(first_column + ix))
                        if mode == "avg":
                            total.set(total.get + parts[0] + parts[1] + parts[2] + parts[3])
                        else:
                            best = maximum(maximum(parts[0], parts[1]), maximum(parts[2], parts[3]))
                            total.set(select(all_near & ((iy + ix) == 0), best, maximum(total.get, best)))
                count = maximum(cast(all_rows, wide) * cast(all_columns, wide), 1.0)
                k.store(out, (r, c, p, q), total.get / count if mode == "avg" else total.get)

    args = (data, *rows.tables, *columns.tables, batch_indices)
    y = t.loops("roi_align", args, [(shape, wide)], body)[0]
    return t.cast(t.own_gradient(y, ROI_ALIGN, data, rows, columns, batch_indices, mode), x.dtype)


@dataclass(frozen=True, slots=True)
class _Axis:
    """The samples along an axis, which all channels share: their two neighbours and the weights of these, (R, samples);
    and (R, bins, 3): the first sample of a bin, the number of its samples that may be inside the image, and of all."""

    neighbours: tuple[Tensor, Tensor]
    weights: tuple[Tensor, Tensor]
    bins: Tensor

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return (*self.neighbours, *self.weights, self.bins)

    def bin(self, k: Builder, r: Expr, n: Expr) -> tuple[Callable[[Expr], list[tuple[Expr, Expr]]], Expr, Expr, Expr]:
        """The neighbours of a sample and their weights, and the row of a bin in `bins`."""

        def at(sample: Expr) -> list[tuple[Expr, Expr]]:
            return [(p[r, sample], w[r, sample]) for p, w in zip(self.neighbours, self.weights, strict=True)]

        first, some, all_ = (k.let(self.bins[r, n, m]) for m in range(3))
        return at, first, some, all_


ROI_ALIGN = GradientRule[Tensor, _Axis, _Axis, Tensor, str]()


def _axis(
    t: Tracer, regions: Tensor, n: int, extent: sh.AnyDim, bins: int, ratio: int, scale: float, half: bool
) -> _Axis:
    """The samples along an axis (n 0: columns, 1: rows). Adaptive samples are at most a pixel apart and, if a bin has
    several, at least half a pixel, so that an image has room for few; `_near` adds a margin for each bin."""
    dtype, count = regions.dtype, regions.shape[0]
    most = bins * ratio if ratio > 0 else (extent + 2) * 2 + bins * 16

    def body(k: Builder, low: Tensor, high: Tensor, near: Tensor, far: Tensor, out: Tensor) -> None:
        with k.parallel(count) as r:
            offset = 0.5 if half else 0.0
            start = k.let(regions[r, n] * scale - offset)
            size = k.let(regions[r, n + 2] * scale - offset - start)
            width = k.let((size if half else maximum(size, 1.0)) / float(bins))
            adapted = cast(clip(ceil(width), 0.0, MAX_ADAPTIVE), I32)
            samples = k.let(dim(ratio) if ratio > 0 else adapted)
            used = k.var(0, I32)
            with k.loop(bins) as b:
                begin = k.let(start + cast(b, dtype) * width)
                first, some = (const(0, I32), samples) if ratio > 0 else _near(k, begin, width, samples, extent)
                some = k.let(minimum(some, dim(most) - used.get))
                for m, value in enumerate((used.get, some, samples)):
                    k.store(out, (r, b, m), value)
                with k.loop(some) as i:
                    place = k.let(begin + (cast(first + i, dtype) + 0.5) * width / cast(samples, dtype))
                    outside = (place < -1.0) | (place > cast(dim(extent), dtype))
                    keep = k.let(select(outside, const(0.0, dtype), const(1.0, dtype)))
                    pairs = _neighbours(k, place, extent)
                    for (neighbour, weight), p, w in zip(pairs, (low, high), (near, far), strict=True):
                        k.store(p, (r, used.get), neighbour)
                        k.store(w, (r, used.get), weight * keep)
                    used.set(used.get + 1)

    table = (count, most)
    outputs = [(table, I32), (table, I32), (table, dtype), (table, dtype), ((count, bins, 3), I32)]
    low, high, near, far, out = t.loops("roi_axis", [regions], outputs, body)
    return _Axis((low, high), (near, far), out)


@op("RoiAlign", since=10)
def roi_align_10(
    t: Tracer, x: Tensor, rois: Tensor, batch_indices: Tensor, *, mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """RoiAlign of opset 16, without the shift by half a pixel."""
    return roi_align(
        t, x, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", mode=mode,
        output_height=output_height, output_width=output_width, sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )  # fmt: skip


def _near(k: Builder, start: Expr, width: Expr, samples: Expr, extent: sh.AnyDim) -> tuple[Expr, Expr]:
    """The first sample of a bin that may be nonzero along an axis, and the number of such samples. A sample more than a
    pixel outside the image is 0."""
    count = k.let(cast(samples, start.dtype))
    ends = const(-1.0, start.dtype), cast(dim(extent), start.dtype)
    edges = [k.let((end - start) * count / width) for end in ends]
    margin = 2.0 + count * 2.0**-21  # for rounding errors
    low = cast(clip(minimum(*edges) - margin, 0.0, count), I32)
    high = minimum(cast(clip(maximum(*edges) + margin, 0.0, count), I32), samples)
    first = k.let(select(width == 0.0, dim(0), low))
    return first, k.let(select(width == 0.0, samples, high) - first)


def _samples(
    k: Builder, x: Tensor, batch: Expr, c: Expr, rows: list[tuple[Expr, Expr]], columns: list[tuple[Expr, Expr]]
) -> list[Expr]:
    """The four weighted neighbours of a point."""
    columns = [(k.let(place), k.let(weight)) for place, weight in columns]
    return [k.let(wy * wz * x[batch, c, iy, iz]) for iy, wy in rows for iz, wz in columns]


def _neighbours(k: Builder, place: Expr, extent: sh.AnyDim) -> list[tuple[Expr, Expr]]:
    """The two positions around a coordinate, clamped to the axis, and their weights."""
    last = dim(extent) - 1
    inside = k.let(clip(place, 0.0, cast(last, place.dtype)))
    low = k.let(cast(inside, I32))
    high = k.let(minimum(low + 1, last))
    part = k.let(inside - cast(low, place.dtype))
    return [(low, 1.0 - part), (high, part)]
