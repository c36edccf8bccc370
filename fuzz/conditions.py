"""Conditions on the values that reach a node, asked by the table of what the standard leaves open (undefined.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from fuzz.compare import widen
from fuzz.draw import int_range, is_float, is_int
from fuzz.node_values import NodeValues

NEAR_ZERO = 1e-7  # onnxruntime's Sigmoid is 0 below -16.6; others continue to the least float

Condition = Callable[[NodeValues], bool]


def cast_out_of_range(a: NodeValues) -> bool:
    """Whether a float is cast to an integer type that does not hold it."""
    to = a.attribute("to")
    targets = [onnx.helper.tensor_dtype_to_np_dtype(to)] if to else [x.dtype for x in a.at(1)]
    for low, high in [int_range(dtype) for dtype in targets if is_int(dtype)]:
        whole = [np.trunc(widen(x)) for x in a.floats(0)]
        if not all(((x >= low) & (x <= high)).all() for x in whole):
            return True
    return False


def bias_out_of_range(a: NodeValues) -> bool:
    """Whether an integer plus a float may be out of the integer type's range."""
    for x in a.at(0):
        if is_int(x.dtype) and x.size:
            (low, high), bias = int_range(x.dtype), abs(a.attribute("bias", 0.0))
            if not low <= float(widen(x).min()) - bias or not float(widen(x).max()) + bias <= high:
                return True
    return False


def power_without_value(a: NodeValues) -> bool:
    """Whether powers of integers may be NaN or infinite: of negative ones by a fraction, of 0 by a negative number."""
    bases, exponents = [x for x in a.at(0) if is_int(x.dtype)], [widen(x) for x in a.at(1)]
    fraction = any((x != np.trunc(x)).any() for x in exponents)
    below = any((x < 0).any() for x in exponents)
    return any(fraction and (x < 0).any() or below and not x.all() for x in map(widen, bases))


def power_out_of_range(a: NodeValues) -> bool:
    """Whether a power may exceed its integer type."""
    floats = (
        [widen(x).astype(float) for x in a.at(n) if x.size] for n in (0, 1)
    )  # as floats, since int32 cannot represent |-2³¹|
    base, exponent = (max((float(np.abs(x).max()) for x in found), default=1.0) for found in floats)
    widths = [8 * x.itemsize - 1 for x in a.at(0) if is_int(x.dtype)]
    return bool(widths) and not exponent * np.log2(max(base, 1.0)) < min(widths)


def computed_exponent_of_negative(a: NodeValues) -> bool:
    """Whether a negative base meets a computed exponent: rounding decides whether that is whole."""
    return a.is_computed(1) and any((widen(x) < 0).any() for x in a.floats(0)) and bool(a.floats(1))


def near_zero(a: NodeValues) -> bool:
    """Whether another node computes a number so small that it may be a rounding error of 0."""
    found = [np.abs(widen(x)) for x in a.floats(0)] if a.is_computed(0) else []
    return any((x <= 1e-5 * x[np.isfinite(x)].max(initial=0)).any() for x in found)


def e8m0_unspecified(a: NodeValues) -> bool:
    """Whether a cast to float8e8m0 is not specified: of negative numbers and infinity, or without saturation."""
    targets = {a.attribute("to")} | {x.dtype.name for x in a.at(1)}
    if not targets & {onnx.TensorProto.FLOAT8E8M0, "float8_e8m0fnu"}:
        return False
    return not a.attribute("saturate", 1) or any((np.signbit(widen(x)) | np.isinf(widen(x))).any() for x in a.floats(0))


def near_zero_times_infinity(a: NodeValues) -> bool:
    """Whether infinity is multiplied by a computed number near 0, or 0."""
    pairs = [(a.at(n), a.floats(1 - n)) for n in (0, 1) if a.is_computed(n)]
    small = any((np.abs(widen(x)) < NEAR_ZERO).any() for near, _ in pairs for x in near)
    return small and any(np.isinf(widen(x)).any() for _, far in pairs for x in far)


def row_fully_masked(a: NodeValues) -> bool:
    """Whether a mask of Microsoft's operators leaves a row without keys."""
    masks = [x for x in a.at() if x.dtype == np.int32 and x.ndim]
    return a.node.domain == "com.microsoft" and any(not (x > 0).any(-1).all() for x in masks)


def negative_variance(a: NodeValues) -> bool:
    """Whether a variance, or epsilon, is below 0."""
    return a.attribute("epsilon", 1e-5) < 0 or any((widen(x) < 0).any() for x in a.floats(4))


def window_of_padding(a: NodeValues) -> bool:
    """Whether a window may contain padding only."""
    kernel = a.attribute("kernel_shape", [])
    return any(pad >= size for pad, size in zip(a.attribute("pads", []), [*kernel, *kernel], strict=False))


def nearest_excludes_outside(a: NodeValues) -> bool:
    """Whether a Resize of mode nearest excludes what is outside the image."""
    return a.attribute("mode", b"nearest") == b"nearest" and a.attribute("exclude_outside", 0) != 0


def short_integer_mask(a: NodeValues) -> bool:
    """Whether an integer mask has fewer columns than there are keys."""
    keys = sum(x.shape[-2] for x in a.at(1, 4) if x.ndim > 1)
    return any(is_int(x.dtype) and x.ndim and x.shape[-1] < keys for x in a.at(3))


def large_integer_mask(a: NodeValues) -> bool:
    """Whether a mask has integers so large that scores lose their digits beside them."""
    masks = [widen(x).astype(np.float64) for x in a.at(3) if is_int(x.dtype)]
    return any(np.abs(x).max(initial=0) > 2**16 for x in masks)


def returns_masked_scores(a: NodeValues) -> bool:
    """Whether the masked scores, before the softmax, are an output."""
    masked = a.attribute("is_causal", 0) or len(a.node.input) > 3 and a.node.input[3]
    return len(a.node.output) > 3 and a.attribute("qk_matmul_output_mode", 0) in (1, 2) and bool(masked)


def constant_channel(a: NodeValues) -> bool:
    """Whether a channel varies by no more than rounding errors."""
    for x in a.floats(0):
        axes = tuple(n for n in a.attribute("axes", (0, 2, 3)) if -x.ndim <= n < x.ndim)
        if (np.ptp(widen(x), axis=axes) <= 1e-3 * np.abs(widen(x)).max(axis=axes)).any():
            return True
    return False


def constant_row(a: NodeValues) -> bool:
    """Whether a row that is normalised together, with the residual added, varies by no more than rounding errors."""
    added = [widen(x) for n in ((0, 1, 4) if a.node.op_type.startswith("Skip") else (0,)) for x in a.floats(n)[:1]]
    if not added or added[0].ndim < 2:
        return False
    x = sum((np.broadcast_to(x, added[0].shape) for x in added[1:]), added[0])
    axis = 2 if a.node.op_type.startswith("Instance") else a.attribute("axis", -1)
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return bool((np.ptp(rows, axis=-1) <= 1e-5 * np.abs(rows).max(-1)).any())


def mean_dominates_deviation(a: NodeValues) -> bool:
    """Whether a group varies so little beside its mean that E[x²] - mean², the variance in the operator's function,
    has few correct digits."""
    count = a.attribute("num_groups", 1)
    grouped = [widen(x).reshape(len(x) * count, -1) for x in a.floats(0) if x.ndim > 1 and not x.shape[1] % count]
    return any((np.abs(x.mean(-1)) > 5 * x.std(-1)).any() for x in grouped)


def overlap_at_threshold(a: NodeValues) -> bool:
    """Whether the intersection over union of two boxes is the threshold, to six digits."""
    thresholds = [float(np.ravel(x)[0]) for x in a.at(3) if x.size] or [0.0]
    for boxes in (widen(item) for x in a.floats(0) if x.ndim == 3 and x.shape[2] == 4 for item in x):
        first, second = boxes[:, :2], boxes[:, 2:]
        if a.attribute("center_point_box", 0):
            first, second = first - second / 2, first + second / 2
        low, high = np.minimum(first, second), np.maximum(first, second)
        shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
        both = np.prod(np.maximum(shared, 0), axis=-1)
        areas = np.prod(high - low, axis=-1)
        overlap = both / np.maximum(areas[:, None] + areas - both, 1e-300)
        if any(((np.abs(overlap - t) < 1e-6) & (both > 0)).any() for t in thresholds):
            return True
    return False


def not_finite(*inputs: int) -> Condition:
    """A condition: the inputs contain an infinity or NaN."""
    return lambda a: not np.isfinite(a.largest(*inputs))


def has_nan(*inputs: int) -> Condition:
    """A condition: the inputs contain a NaN."""
    return lambda a: any(np.isnan(widen(x)).any() for x in a.floats(*inputs))


def computed_not_finite(a: NodeValues) -> bool:
    """Whether another node has computed an infinity or NaN."""
    return a.is_computed(0) and not np.isfinite(a.largest(0))


def window_of_integers(a: NodeValues) -> bool:
    """Whether a window function returns integers."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(a.attribute("output_datatype", onnx.TensorProto.FLOAT))
    return is_int(kind)


def larger_than(limit: float, *inputs: int) -> Condition:
    """A condition: the inputs contain a magnitude over the limit."""
    return lambda a: a.largest(*inputs) > limit


def has_zero(*inputs: int) -> Condition:
    """A condition: the inputs contain a 0."""
    return lambda a: any(not widen(x).all() for x in a.at(*inputs) if x.dtype.kind not in "OUS")


def is_empty(*inputs: int) -> Condition:
    """A condition: an input has no elements."""
    return lambda a: any(not x.size for x in a.at(*inputs))


def factor_too_large(a: NodeValues) -> bool:
    """Whether a scaling attribute is near the largest float32, or not finite."""
    return not np.abs([a.attribute(name, 0.0) for name in ("scale", "alpha", "beta")]).max() < 1e30


def nan_attribute(a: NodeValues) -> bool:
    """Whether an attribute has a NaN."""
    found = (np.ravel(onnx.helper.get_attribute_value(given)) for given in a.node.attribute)
    return any(x.dtype.kind == "f" and np.isnan(x).any() for x in found)


def tied_scores(a: NodeValues) -> bool:
    """Whether the two highest scores of a row, in the last output, are nearly equal."""
    found = [np.sort(widen(x)) for x in a.outputs(1) if x.ndim == 2 and x.shape[1] > 1]
    return any((x[:, -1] - x[:, -2] < 1e-5 * np.abs(x).max(1, initial=0)).any() for x in found)


def no_range(a: NodeValues) -> bool:
    """Whether the input is empty, or computed and so small that some runtimes flush it to 0."""
    return any(not x.size for x in a.at(0)) or a.is_computed(0) and a.largest(0) < 1e-36


def cache_has_free_rows(a: NodeValues) -> bool:
    """Whether a cache has more rows than an item has keys."""
    totals = [int(x.min()) + 1 for x in a.at(5) if is_int(x.dtype) and x.size]
    return any(x.ndim == 4 and x.shape[2] > total for x in a.at(3) for total in totals)


def padded_prompt(a: NodeValues) -> bool:
    """Whether an item has fewer keys than it has queries."""
    totals = [int(x.min()) + 1 for x in a.at(5) if is_int(x.dtype) and x.size]
    return a.attribute("causal", 1) != 0 and any(x.ndim == 3 and x.shape[1] > n for x in a.at(0) for n in totals)


def tables_have_constant_rows(a: NodeValues) -> bool:
    """Whether all tables have a row of equal values."""
    return all((np.ptp(widen(x), axis=-1) == 0).any() for x in a.at(2, 3, 4) if x.size)


def tied_experts(a: NodeValues) -> bool:
    """Whether the last expert in the top k has the same score as the first one outside."""
    count = a.attribute("k", 1)
    ordered = [-np.sort(-widen(x), axis=-1) for x in a.floats(1) if x.ndim == 2 and x.shape[1] > count]
    return any((x[:, count - 1] - x[:, count] < 1e-5).any() for x in ordered)


def extreme_scales(a: NodeValues) -> bool:
    """Whether a requantised product of two codes may be out of int32's range, or scales are extreme."""
    scales = [widen(x).astype(np.float64) for x in a.floats()]
    if any(not ((x > 1e-9) & (x < 1e9)).all() for x in scales):
        return True
    largest = np.prod([max(float(x.max()), 1.0) for x in scales])
    return largest / min((float(x.min()) for x in scales), default=1.0) * 255**2 >= 2.0**31


def nearly_singular(a: NodeValues) -> bool:
    """Whether a matrix has no inverse, or one with few correct digits."""
    found = [widen(x) for x in a.floats(0) if x.ndim > 1 and x.shape[-1] == x.shape[-2]]
    return any(not np.isfinite(x).all() or (np.linalg.cond(x) > 1e4).any() for x in found)


def quotient_out_of_range(a: NodeValues) -> bool:
    """Whether a number over its scale may be out of int32's range."""
    largest = max((float(np.abs(widen(x)).max()) for x in a.at(0) if x.size), default=0.0)
    least = min((float(np.abs(widen(x)).min()) for x in a.floats(1)), default=1.0)
    return not largest < 2.0**31 * min(least, 1.0)


def recurrence_amplifies(a: NodeValues) -> bool:
    """Whether the recurrent weights are so large that rounding errors dominate after some steps."""
    return any(np.abs(widen(x)).sum(-1).max(initial=0) > 64 for x in a.floats(2))


def stride_skips_elements(a: NodeValues) -> bool:
    """Whether a window with automatic padding is smaller than its stride."""
    strides = a.attribute("strides", [])
    windows = [a.attribute("kernel_shape", ()), *(x.shape[2:] for x in a.at(1))]
    window = min((n for sizes in windows for n in sizes), default=0)
    return a.attribute("auto_pad", b"NOTSET").startswith(b"SAME") and any(window < s for s in strides)


def mixed_float_types(a: NodeValues) -> bool:
    """Whether the inputs have different float types."""
    return len({x.dtype for x in a.at() if is_float(x.dtype)}) > 1


def integer_sum_overflows(a: NodeValues) -> bool:
    """Whether a sum of integers may exceed 64 bits."""
    return any(np.abs(widen(x).astype(np.float64)).sum() >= 2.0**63 for x in a.at(0) if is_int(x.dtype))


def scaled_integers_overflow(a: NodeValues) -> bool:
    """Whether alpha · a·b or beta · c may be out of the type's range."""
    signed = [a.attribute(name, 1.0) for name in ("alpha", "beta")]
    alpha, beta = map(abs, signed)
    found = [x for x in a.at() if is_int(x.dtype) and x.size]
    if min(signed) < 0 and any(x.dtype.kind == "u" for x in found):
        return True
    if (alpha, beta) == (1.0, 1.0) or len(found) < 2:
        return False
    left, right, *rest = (float(np.abs(widen(x).astype(np.float64)).max()) for x in found)
    return max(alpha * left * right * max(found[0].shape), *(beta * c for c in rest), 0.0) >= 2.0**31


def integer_squares_overflow(a: NodeValues) -> bool:
    """Whether squares may exceed 64 bits; for ReduceL2 the type, since the reference takes the root of wrapped sums."""
    root = a.node.op_type == "ReduceL2"
    return any(
        (widen(x).astype(np.float64) ** 2).sum() >= (np.iinfo(widen(x).dtype).max if root else 2.0**63)
        for x in a.at(0)
        if is_int(x.dtype)
    )


def empty_with_negative_axes(a: NodeValues) -> bool:
    """Whether nothing is reduced, along axes that count from the end."""
    axes = [n for x in (a.attribute("axes", []), a.attribute("axis", []), *a.at(1)) for n in np.ravel(x)]
    return any(not x.size for x in a.at(0)) and min(axes, default=0) < 0
