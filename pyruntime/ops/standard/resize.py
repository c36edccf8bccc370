"""Resize and Upsample: the axes that change and their scales; `resample` does the work.

Spec: https://onnx.ai/onnx/operators/onnx__Resize.html"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.reference import round_float
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.resample import Axis, Rule, Scale, resize_axes


def axes_by_scales(t: Tracer, x: Tensor, numbers: Sequence[int], scales: Sequence[float]) -> list[Axis]:
    if not all(0 < s < math.inf for s in t.entries("scales", scales, len(numbers))):
        raise t.shape_error(f"scales {list(scales)} must be positive")
    return [Axis(n, x.shape[n], _times(x.shape[n], s), _scale(s)) for n, s in zip(numbers, scales, strict=True)]


def _scale(s: float) -> Scale:
    return Scale(int(s), 1) if s == int(s) else Scale(float(s), 1)


def _times(d: AnyDim, s: float) -> AnyDim:
    """⌊d · s⌋ with the product rounded to float32, or exact if that would be infinite."""
    if isinstance(d, int):
        product = round_float(d * s, F32)
        return math.floor(product if math.isfinite(product) else d * s)
    exact = Fraction(s).limit_denominator(1 << 12)
    if round_float(float(exact), F32) != s:
        exact = Fraction(s)
    return d * exact.numerator // exact.denominator


def axes_by_sizes(t: Tracer, x: Tensor, numbers: Sequence[int], sizes: Sequence[AnyDim], policy: str) -> list[Axis]:
    """Axes for given sizes; not_larger and not_smaller keep the aspect ratio."""
    before = [x.shape[n] for n in numbers]
    if policy == "stretch":
        return [Axis(n, d, s, Scale(s, d)) for n, d, s in zip(numbers, before, sizes, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        raise t.unsupported(f"keep_aspect_ratio_policy {policy} is not known")
    top, bottom = sizes[0], before[0]
    for s, d in zip(sizes[1:], before[1:], strict=True):
        better = sh.compare("lt" if policy == "not_larger" else "gt", s * bottom, top * d)
        top, bottom = sh.select(better, s, top), sh.select(better, d, bottom)
    t.require(sh.compare("lt", 0, bottom), "an empty axis has no aspect ratio to keep")
    scale = Scale(top, bottom)
    bottom = sh.maximum(bottom, 1)
    return [Axis(n, d, (top * d * 2 + bottom) // (bottom * 2), scale) for n, d in zip(numbers, before, strict=True)]


def _changed(t: Tracer, axes: Sequence[Axis], roi: Tensor | None) -> list[Axis]:
    """The axes that change, each with its region of interest."""
    if roi is None:
        return [a for a in axes if a.scale.top != a.scale.bottom or a.out != a.size]
    t.require_equal(roi.shape[0], 2 * len(axes), "roi must have two ends per axis")
    known = t.known(roi)
    out = []
    for k, a in enumerate(axes):
        whole = known is not None and (known[k], known[k + len(axes)]) == (0, 1)
        if not whole or a.out != a.size:
            ends = (cast(roi.at(k), F32), cast(roi.at(k + len(axes)), F32))
            out.append(Axis(a.number, a.size, a.out, a.scale, ends))
    return out


def _or_none(x: Tensor | None) -> Tensor | None:
    """x, or None if it is empty, which counts as absent."""
    return None if x is None or x.shape == (0,) else x


@op("Resize", since=11)
def resize(
    t: Tracer, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None, *,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, nearest_mode: str = "round_prefer_floor",
    antialias: int = 0, axes: Sequence[int] | None = None, keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:  # fmt: skip
    numbers = t.ordered_axes(range(x.rank) if axes is None else axes, x.rank)
    scales, sizes = _or_none(scales), _or_none(sizes)
    if scales is not None:
        resized = axes_by_scales(t, x, numbers, t.static(scales))
    elif sizes is not None:
        extents = t.entries("sizes", t.ints(sizes, lower=0), len(numbers))
        resized = axes_by_sizes(t, x, numbers, extents, keep_aspect_ratio_policy)
    else:
        raise t.shape_error("neither scales nor sizes are given")
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    rule = Rule(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside), bool(antialias),
        extrapolation_value,
    )  # fmt: skip
    changed = sorted(_changed(t, resized, _or_none(roi) if crop else None), key=lambda a: a.number)
    return resize_axes(t, x, changed, rule)


@op("Upsample", since=9)
@op("Resize", since=10)
def resize_10(t: Tracer, x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    """Coordinates are i / scale; nearest rounds down when it enlarges, else up, as in ONNX Runtime."""
    return _simple(t, x, t.static(scales), mode)


def _simple(t: Tracer, x: Tensor, scales: Sequence[float], mode: str) -> Tensor:
    mode = "linear" if mode == "bilinear" else mode
    axes = _changed(t, axes_by_scales(t, x, list(range(x.rank)), scales), None)
    down = [a for a in axes if (a.scale.value or 1) < 1]
    up = [a for a in axes if a not in down]
    x = resize_axes(t, x, up, Rule(mode, "asymmetric", "floor"))
    return resize_axes(t, x, down, Rule(mode, "asymmetric", "ceil"))


@op("Upsample", since=7)
def upsample_7(t: Tracer, x: Tensor, *, scales: Sequence[float], mode: str = "nearest") -> Tensor:
    return _simple(t, x, scales, mode)


@op("Upsample", since=1)
def upsample_1(t: Tracer, x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Tensor:
    return _simple(t, x, [1.0, 1.0, height_scale, width_scale], mode)
