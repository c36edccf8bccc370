"""Where the standard leaves results open: a table with reasons, asked of the values that arrive at each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from fuzz.compare import Tolerance, epsilon, widen
from fuzz.draw import FLOATS, int_range, is_float, is_int
from fuzz.node import nodes
from fuzz.node_values import NodeValues

SIZES = "sizes of what no iteration stacks"
NO_AXIS = "nothing to reduce, axes that count from the end: onnxruntime gives the input's shape"
NO_STEP = "steps that are not finite: one element, or none"
PADDING = "windows of padding alone"
RATE = "the reference takes the rate's type for results"
SAME = "which computed floats are the same"
GAPS = "a window smaller than its stride, SAME: onnxruntime leaves out what the stride adds, and pads less than nothing"
UNSIZED = {SIZES, NO_AXIS, NO_STEP, PADDING, RATE, SAME, GAPS}  # for these not even shapes are compared
# Some compute these by polynomials, by e^x - 1, by 1 + erf(x) or 1 + tanh(x), by log(1 + e^x), or as sums of cosines,
# whose error is absolute, some units of the last place of 1.
APPROXIMATE = set(
    """RNN LSTM GRU Elu Selu Celu Gelu BiasGelu FastGelu BiasSplitGelu LinearAttentionGate ParametricSoftplus
    BlackmanWindow HannWindow HammingWindow""".split()
)
# Parts are computed in float32 whatever the type is: by the standard if `stash_type` is not given, by the reference.
# HardSwish's 1/6 is an attribute of the function that defines it, and attributes are float32.
# Resize's coordinates are float32, as DeformConv's, FastGelu's constants have six digits, as Gelu's where it is a tanh.
STASHED = set(
    """DeformConv FastGelu FlexAttention Gelu GroupNormalization HardSwish LayerNormalization Resize
    RMSNormalization""".split()
)
# Inner roundings to integers: runtimes differ by a unit where a product falls on a tie, or by cutting off.
QUANTISED = ("Quantize", "QLinear", "QGemm", "QAttention", "NBits", "Integer", "BlockQuantized")
HALVES = {np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)}
WINOGRAD = 100.0  # how much larger its inner sums are
NEAR_ZERO = 1e-7  # of onnxruntime's Sigmoid, which is 0 below -16.6; others go on to the least float


def _leaves(a: NodeValues) -> bool:
    to = a.attribute("to")
    targets = [onnx.helper.tensor_dtype_to_np_dtype(to)] if to else [x.dtype for x in a.at(1)]
    for low, high in [int_range(dtype) for dtype in targets if is_int(dtype)]:
        whole = [np.trunc(widen(x)) for x in a.floats(0)]
        if not all(((x >= low) & (x <= high)).all() for x in whole):
            return True
    return False


def _bias_leaves(a: NodeValues) -> bool:
    """Whether an integer and a float are a sum that the integer's type does not hold."""
    for x in a.at(0):
        if is_int(x.dtype) and x.size:
            (low, high), bias = int_range(x.dtype), abs(a.attribute("bias", 0.0))
            if not low <= float(widen(x).min()) - bias or not float(widen(x).max()) + bias <= high:
                return True
    return False


def _power_of_no_size(a: NodeValues) -> bool:
    """Whether integers may be raised to what gives no number: negative ones to a fraction, 0 to less than 0."""
    bases, exponents = [x for x in a.at(0) if is_int(x.dtype)], [widen(x) for x in a.at(1)]
    fraction = any((x != np.trunc(x)).any() for x in exponents)
    below = any((x < 0).any() for x in exponents)
    return any(fraction and (x < 0).any() or below and not x.all() for x in map(widen, bases))


def _power_leaves(a: NodeValues) -> bool:
    floats = ([widen(x).astype(float) for x in a.at(n) if x.size] for n in (0, 1))  # the magnitude of -2³¹ is no int32
    base, exponent = (max((float(np.abs(x).max()) for x in found), default=1.0) for found in floats)
    widths = [8 * x.itemsize - 1 for x in a.at(0) if is_int(x.dtype)]
    return bool(widths) and not exponent * np.log2(max(base, 1.0)) < min(widths)


def _roots_of_negatives(a: NodeValues) -> bool:
    return a.is_computed(1) and any((widen(x) < 0).any() for x in a.floats(0)) and bool(a.floats(1))


def _nearly_zero(a: NodeValues) -> bool:
    """Whether another node gives a number of which rounding may have taken, or left, all there is."""
    found = [np.abs(widen(x)) for x in a.floats(0)] if a.is_computed(0) else []
    return any((x <= 1e-5 * x[np.isfinite(x)].max(initial=0)).any() for x in found)


def _e8m0(a: NodeValues) -> bool:
    targets = {a.attribute("to")} | {x.dtype.name for x in a.at(1)}
    if not targets & {onnx.TensorProto.FLOAT8E8M0, "float8_e8m0fnu"}:
        return False
    return not a.attribute("saturate", 1) or any((np.signbit(widen(x)) | np.isinf(widen(x))).any() for x in a.floats(0))


def _sums_overflow(a: NodeValues) -> bool:
    """Whether a sum of products of what arrives may leave the type."""
    sizes = sorted((max(1.0, a.largest(n)) for n in range(len(a.node.input))), reverse=True)
    terms = max((x.size for x in a.floats()), default=0)
    limit = min((float(ml_dtypes.finfo(x.dtype).max) for x in a.floats()), default=np.inf)
    return not np.prod(sizes[:2]) * terms * WINOGRAD < limit


def _vanishes_beside_infinity(a: NodeValues) -> bool:
    """Whether an infinity is multiplied by what another node has brought near 0, or to it."""
    pairs = [(a.at(n), a.floats(1 - n)) for n in (0, 1) if a.is_computed(n)]
    small = any((np.abs(widen(x)) < NEAR_ZERO).any() for near, _ in pairs for x in near)
    return small and any(np.isinf(widen(x)).any() for _, far in pairs for x in far)


def _all_masked(a: NodeValues) -> bool:
    """Whether a mask of Microsoft's operators leaves a row without keys."""
    masks = [x for x in a.at() if x.dtype == np.int32 and x.ndim]
    return a.node.domain == "com.microsoft" and any(not (x > 0).any(-1).all() for x in masks)


def _negative_variance(a: NodeValues) -> bool:
    return a.attribute("epsilon", 1e-5) < 0 or any((widen(x) < 0).any() for x in a.floats(4))


def _all_padding(a: NodeValues) -> bool:
    kernel = a.attribute("kernel_shape", [])
    return any(pad >= size for pad, size in zip(a.attribute("pads", []), [*kernel, *kernel], strict=False))


def _nearest_outside(a: NodeValues) -> bool:
    return a.attribute("mode", b"nearest") == b"nearest" and a.attribute("exclude_outside", 0) != 0


def _short_integer_mask(a: NodeValues) -> bool:
    keys = sum(x.shape[-2] for x in a.at(1, 4) if x.ndim > 1)
    return any(is_int(x.dtype) and x.ndim and x.shape[-1] < keys for x in a.at(3))


def _large_integer_mask(a: NodeValues) -> bool:
    masks = [widen(x).astype(np.float64) for x in a.at(3) if is_int(x.dtype)]
    return any(np.abs(x).max(initial=0) > 2**16 for x in masks)


def _masked_scores(a: NodeValues) -> bool:
    """Whether scores are an output, after the mask and before the softmax."""
    masked = a.attribute("is_causal", 0) or len(a.node.input) > 3 and a.node.input[3]
    return len(a.node.output) > 3 and a.attribute("qk_matmul_output_mode", 0) in (1, 2) and bool(masked)


def _squares_overflow(a: NodeValues) -> bool:
    """Whether a sum of squares of what arrives may leave the type."""
    return any(not a.largest() ** 2 * x.size < float(ml_dtypes.finfo(x.dtype).max) for x in a.floats(0))


def _one_value(a: NodeValues) -> bool:
    """Whether a channel varies by no more than rounding."""
    for x in a.floats(0):
        axes = tuple(n for n in a.attribute("axes", (0, 2, 3)) if -x.ndim <= n < x.ndim)
        if (np.ptp(widen(x), axis=axes) <= 1e-3 * np.abs(widen(x)).max(axis=axes)).any():
            return True
    return False


def _one_value_a_row(a: NodeValues) -> bool:
    """The same of what a layer's or an instance's norm takes together, a residual added."""
    added = [widen(x) for n in ((0, 1, 4) if a.node.op_type.startswith("Skip") else (0,)) for x in a.floats(n)[:1]]
    if not added or added[0].ndim < 2:
        return False
    x = sum((np.broadcast_to(x, added[0].shape) for x in added[1:]), added[0])
    axis = 2 if a.node.op_type.startswith("Instance") else a.attribute("axis", -1)
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return bool((np.ptp(rows, axis=-1) <= 1e-5 * np.abs(rows).max(-1)).any())


def _far_from_zero(a: NodeValues) -> bool:
    """Whether a group varies so little beside its mean that E[x²] - mean², as the operator's function takes the
    variance, has few digits."""
    count = a.attribute("num_groups", 1)
    grouped = [widen(x).reshape(len(x) * count, -1) for x in a.floats(0) if x.ndim > 1 and not x.shape[1] % count]
    return any((np.abs(x.mean(-1)) > 5 * x.std(-1)).any() for x in grouped)


def _on_the_threshold(a: NodeValues) -> bool:
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


def _not_finite(*inputs: int) -> Callable[[NodeValues], bool]:
    return lambda a: not np.isfinite(a.largest(*inputs))


def _nan(*inputs: int) -> Callable[[NodeValues], bool]:
    return lambda a: any(np.isnan(widen(x)).any() for x in a.floats(*inputs))


def _overflowed(a: NodeValues) -> bool:
    return a.is_computed(0) and not np.isfinite(a.largest(0))


def _cut_off(a: NodeValues) -> bool:
    kind = onnx.helper.tensor_dtype_to_np_dtype(a.attribute("output_datatype", onnx.TensorProto.FLOAT))
    return is_int(kind)


def _over(limit: float, *inputs: int) -> Callable[[NodeValues], bool]:
    return lambda a: a.largest(*inputs) > limit


def _zero(*inputs: int) -> Callable[[NodeValues], bool]:
    return lambda a: any(not widen(x).all() for x in a.at(*inputs) if x.dtype.kind not in "OUS")


def _empty(*inputs: int) -> Callable[[NodeValues], bool]:
    return lambda a: any(not x.size for x in a.at(*inputs))


def _large_factor(a: NodeValues) -> bool:
    return not np.abs([a.attribute(name, 0.0) for name in ("scale", "alpha", "beta")]).max() < 1e30


def _nan_attribute(a: NodeValues) -> bool:
    found = (np.ravel(onnx.helper.get_attribute_value(given)) for given in a.node.attribute)
    return any(x.dtype.kind == "f" and np.isnan(x).any() for x in found)


def _tied_scores(a: NodeValues) -> bool:
    """Of the classes, which the last output has."""
    found = [np.sort(widen(x)) for x in a.outputs(1) if x.ndim == 2 and x.shape[1] > 1]
    return any((x[:, -1] - x[:, -2] < 1e-5 * np.abs(x).max(1, initial=0)).any() for x in found)


def _no_range(a: NodeValues) -> bool:
    """Whether nothing arrives, or what another node gives and one runtime has as 0, one as the least floats."""
    return any(not x.size for x in a.at(0)) or a.is_computed(0) and a.largest(0) < 1e-36


def _places_left(a: NodeValues) -> bool:
    """Whether a cache has more places than there are keys of an item."""
    totals = [int(x.min()) + 1 for x in a.at(5) if is_int(x.dtype) and x.size]
    return any(x.ndim == 4 and x.shape[2] > total for x in a.at(3) for total in totals)


def _padded_prompt(a: NodeValues) -> bool:
    """Whether an item has fewer keys than it has queries."""
    totals = [int(x.min()) + 1 for x in a.at(5) if is_int(x.dtype) and x.size]
    return a.attribute("causal", 1) != 0 and any(x.ndim == 3 and x.shape[1] > n for x in a.at(0) for n in totals)


def _alike(a: NodeValues) -> bool:
    """Whether all tables have a row of one value."""
    return all((np.ptp(widen(x), axis=-1) == 0).any() for x in a.at(2, 3, 4) if x.size)


def _tied_experts(a: NodeValues) -> bool:
    """Whether the last expert that is picked has the same share as the first that is not."""
    count = a.attribute("k", 1)
    ordered = [-np.sort(-widen(x), axis=-1) for x in a.floats(1) if x.ndim == 2 and x.shape[1] > count]
    return any((x[:, count - 1] - x[:, count] < 1e-5).any() for x in ordered)


def _extreme_scales(a: NodeValues) -> bool:
    """Whether a product of two codes by scales over another may be no int32; at least, whether scales are far off."""
    scales = [widen(x).astype(np.float64) for x in a.floats()]
    if any(not ((x > 1e-9) & (x < 1e9)).all() for x in scales):
        return True
    largest = np.prod([max(float(x.max()), 1.0) for x in scales])
    return largest / min((float(x.min()) for x in scales), default=1.0) * 255**2 >= 2.0**31


def _singular(a: NodeValues) -> bool:
    """Whether a matrix has no inverse, or one of few digits."""
    found = [widen(x) for x in a.floats(0) if x.ndim > 1 and x.shape[-1] == x.shape[-2]]
    return any(not np.isfinite(x).all() or (np.linalg.cond(x) > 1e4).any() for x in found)


def _quotient_leaves(a: NodeValues) -> bool:
    """Whether what is divided by a scale may not be an int32."""
    largest = max((float(np.abs(widen(x)).max()) for x in a.at(0) if x.size), default=0.0)
    least = min((float(np.abs(widen(x)).min()) for x in a.floats(1)), default=1.0)
    return not largest < 2.0**31 * min(least, 1.0)


def _amplifies(a: NodeValues) -> bool:
    """Whether the recurrent weights are so large that no digit is left after some steps."""
    return any(np.abs(widen(x)).sum(-1).max(initial=0) > 64 for x in a.floats(2))


def _gaps(a: NodeValues) -> bool:
    strides = a.attribute("strides", [])
    windows = [a.attribute("kernel_shape", ()), *(x.shape[2:] for x in a.at(1))]
    window = min((n for sizes in windows for n in sizes), default=0)
    return a.attribute("auto_pad", b"NOTSET").startswith(b"SAME") and any(window < s for s in strides)


def _rate_of_another_type(a: NodeValues) -> bool:
    return len({x.dtype for x in a.at() if is_float(x.dtype)}) > 1


def _integers_overflow(a: NodeValues) -> bool:
    return any(np.abs(widen(x).astype(np.float64)).sum() >= 2.0**63 for x in a.at(0) if is_int(x.dtype))


def _scaled_integers_overflow(a: NodeValues) -> bool:
    """Whether alpha · a·b or beta · c may leave the type."""
    signed = [a.attribute(name, 1.0) for name in ("alpha", "beta")]
    alpha, beta = map(abs, signed)
    found = [x for x in a.at() if is_int(x.dtype) and x.size]
    if min(signed) < 0 and any(x.dtype.kind == "u" for x in found):
        return True
    if (alpha, beta) == (1.0, 1.0) or len(found) < 2:
        return False
    left, right, *rest = (float(np.abs(widen(x).astype(np.float64)).max()) for x in found)
    return max(alpha * left * right * max(found[0].shape), *(beta * c for c in rest), 0.0) >= 2.0**31


def _integer_squares_overflow(a: NodeValues) -> bool:
    """Whether squares leave 64 bits; for their root, the type: the reference has it of what wrapped."""
    root = a.node.op_type == "ReduceL2"
    return any(
        (widen(x).astype(np.float64) ** 2).sum() >= (np.iinfo(widen(x).dtype).max if root else 2.0**63)
        for x in a.at(0)
        if is_int(x.dtype)
    )


def _nothing_from_the_end(a: NodeValues) -> bool:
    axes = [n for x in (a.attribute("axes", []), a.attribute("axis", []), *a.at(1)) for n in np.ravel(x)]
    return any(not x.size for x in a.at(0)) and min(axes, default=0) < 0


COORDINATES = "coordinates become integers"
# Words in operators' names, when, and why only types and shapes are compared.
OPEN: list[tuple[str, Callable[[NodeValues], bool], str]] = [
    ("RandomNormal RandomUniform Multinomial Bernoulli", lambda a: True, "results are random"),
    ("Dropout", lambda a: len(a.node.input) > 2, "results are random"),
    ("Cast", _leaves, "floats that an integer type does not hold"),
    ("Shrink", _bias_leaves, "floats that an integer type does not hold"),
    ("Pow", _roots_of_negatives, "powers of negative numbers, whose exponents a last digit makes whole or not"),
    ("Pow", _power_of_no_size, "NaN or infinity as an integer"),
    ("Pow", _power_leaves, "powers that an integer type does not hold"),
    ("Sign", _nearly_zero, "signs of what is 0 but for rounding"),
    ("Cast", _e8m0, "float8e8m0 of negative numbers, or without saturation; of infinity the reference errs"),
    ("Reduce ArgM", _nothing_from_the_end, NO_AXIS),
    ("ReduceMean NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", _empty(0), "the mean of nothing: 0 / 0, or 0"),
    ("FusedMatMul TransposeMatMul", _empty(0), "a transposed product of nothing: onnxruntime leaves what was there"),
    ("ReduceMean ReduceSum ReduceL", _overflowed, "products that overflow, or not where they are added at once"),
    ("Attention Rotary MatMul Gemm LRN", _large_factor, "sums times infinity, or of what was times infinity"),
    ("Attention", _empty(0, 1), "scores of no keys, or of no features, whose scale is infinite"),
    ("Classifier Regressor MoE", _nan_attribute, "NaN as a weight or a limit"),
    ("Classifier", _tied_scores, "which of two classes is picked whose scores differ in the last digits"),
    ("TopK", _nan(0), "where NaN is in order"),
    ("BatchNormalization", _negative_variance, "roots of negative variances"),
    ("Gemm", _scaled_integers_overflow, "integers times a float that leave the type"),
    ("ReduceSum", _integers_overflow, "sums of integers that overflow"),
    ("ReduceL2 ReduceSumSquare", _integer_squares_overflow, "squares of integers that overflow"),
    ("Loop", _zero(0, 1), SIZES),
    ("Scan", _empty(), SIZES),
    ("RNN LSTM GRU", _zero(4), "the state after no step"),
    ("RNN LSTM GRU", _amplifies, "steps that amplify the last digit"),
    ("DynamicQuantize", _no_range, "a scale for no range: 1 or 1 / 255"),
    ("DynamicQuantize", _over(1e30, 0), "a scale that overflows, or NaN as an integer"),
    ("QuantizeLinear", _zero(1), "a scale of 0"),
    (
        "QuantizeLinear DequantizeLinear",
        lambda a: a.largest(2) > 0,
        "a zero point of a float type, which peers leave out",
    ),
    ("QuantizeLinear", _not_finite(0, 1), "NaN as an integer"),
    ("QLinear QGemm", _extreme_scales, "quotients that an integer does not hold"),
    ("GroupQueryAttention", _zero(12, 13), "codes of a scale of 0"),
    (
        "GroupQueryAttention",
        _padded_prompt,
        "queries that are padding: onnxruntime hides keys that are, and has other sinks and windows for some",
    ),
    ("GroupQueryAttention", _places_left, "what lies behind the keys in a cache"),
    ("MoE", _tied_experts, "which of equal experts is picked"),
    ("Inverse", _singular, "what has no inverse"),
    ("TreeEnsembleClassifier", lambda a: len(a.attribute("base_values", [])) in (1, 2), "base values of two classes"),
    ("EmbedLayerNormalization", _alike, "rows that are all the same: what is left of them is rounding"),
    ("QuantizeLinear", _quotient_leaves, "the reference casts through int32"),
    ("Adagrad Adam Momentum", _rate_of_another_type, RATE),
    ("GridSample RoiAlign", _over(1e4, 1), COORDINATES),
    ("DeformConv", _over(1e4, 2), COORDINATES),
    ("AffineGrid", _over(1e4, 0), COORDINATES),
    ("Resize", _over(1e4, 1, 2), COORDINATES),
    ("Resize", _nearest_outside, "exclude_outside of what has no weights: the reference gives 0"),
    ("GridSample RoiAlign DeformConv Resize", _not_finite(0), "0 times what is not finite"),
    ("GroupNormalization", _far_from_zero, "variances that are what is left of squares"),
    ("MeanVariance", _one_value, "values that are all the same: what is left of them is rounding"),
    ("LayerNorm InstanceNorm", _one_value_a_row, "values that are all the same: what is left of them is rounding"),
    ("NonMaxSuppression", _on_the_threshold, "boxes whose overlap is the threshold but for rounding"),
    ("Attention", lambda a: a.attribute("scale", 0.0) < 0, "roots of negative scales"),
    ("Attention", _short_integer_mask, "a mask of integers, which the reference lengthens by -inf"),
    (
        "Attention",
        _large_integer_mask,
        "scores that have no digits left beside a mask, which the reference adds as float64",
    ),
    ("Attention", _masked_scores, "scores that are masked: -inf, or the least number"),
    ("Attention", _not_finite(), "a softmax of infinities"),
    ("Attention", _all_masked, "scores that all are near -10,000, where float32 has three digits behind the point"),
    ("Attention", _sums_overflow, "a softmax of sums that overflow"),
    ("Norm LRN", _squares_overflow, "squares that overflow, or not in a wider type"),
    ("Norm LRN Rotary HyperConnection EngramGate SwiGLU", _not_finite(), "0 times what is not finite"),
    ("AveragePool LpPool", _not_finite(), "the reference takes NaN for padding"),
    ("Mul", _vanishes_beside_infinity, "infinity times 0, or times what is not quite 0"),
    ("Range", _not_finite(2), NO_STEP),
    ("Range", lambda a: any(x.size > 64 for x in a.outputs(0)), "steps that are added up, or NumPy's first difference"),
    ("Unique", lambda a: a.is_computed(0) and bool(a.floats(0)), SAME),
    ("Window", _cut_off, "integers of numbers that are nearly whole"),
    ("Pool", _all_padding, PADDING),
    ("Conv Pool", _gaps, GAPS),
    ("MaxPool MaxRoiPool", _not_finite(), "peers drop NaN or not, by its place in the window"),
    ("DFT STFT", _not_finite(), "0 times what is not finite"),
    (
        "Conv MatMul Gemm Einsum FT Loss RNN LSTM GRU CDist HyperConnection MoE",
        _sums_overflow,
        "sums that overflow depend on their order, Winograd's on more",
    ),
]


def reason(model: onnx.ModelProto, values: Mapping[str, Any], fed: Mapping[str, Any]) -> str:
    """Why the values of this model's outputs cannot be compared; empty if they can.

    values: of what is known by name, inner values among them; fed: inputs and weights."""
    for node in nodes(model.graph):
        arriving = NodeValues(node, values, fed)
        for words, holds, why in OPEN:
            if any(word in node.op_type for word in words.split()) and holds(arriving):
                return why
    inner = [x for name, x in values.items() if name not in fed and isinstance(x, np.ndarray) and x.dtype in HALVES]
    if len(model.graph.node) > 1 and not all(np.isfinite(widen(x)).all() for x in inner):
        return "halves that overflow where they are stored, and not where nodes are fused"
    return ""


def _rounds(node: Any) -> bool:
    """Whether results may be integers that were not before."""
    between = any(a.name == "mode" and a.s != b"nearest" for a in node.attribute)
    return node.op_type == "Resize" and between or any(word in node.op_type for word in QUANTISED)


def tolerance(model: onnx.ModelProto, fed: Sequence[Any]) -> Tolerance:
    """What may differ in answers to this model. A sum has at most as many terms as the largest input has elements.
    What several nodes hand on to each other may have been near 1 before it cancelled."""
    names = [node.op_type for node in nodes(model.graph)]
    arrays = [x for x in fed if isinstance(x, np.ndarray)]
    types = {x.dtype for x in arrays} | (set() if STASHED.isdisjoint(names) else {np.dtype("float32")})
    return Tolerance(
        max((x.size for x in arrays), default=1) + 1,
        int(any(map(_rounds, nodes(model.graph)))),
        float(len(model.graph.node) > 1 or not APPROXIMATE.isdisjoint(names)),
        max((epsilon(d) for d in types if d in FLOATS), default=0.0),
    )
