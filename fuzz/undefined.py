"""What the standard leaves open: which outputs of a model two runtimes may compute differently, and why.

A rule names operators and a condition on the values that reach a node (conditions.py). It excuses the outputs that
depend on that node, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import onnx

from fuzz import conditions as c
from fuzz.compare import widen
from fuzz.draw import HALVES
from fuzz.node import full_name, inner_names, nodes, operators
from fuzz.node_values import NodeValues
from fuzz.operator_groups import (
    ATTENTION,
    AVERAGES,
    CLASSIFIERS,
    CONVOLUTIONS,
    DYNAMIC,
    GQA,
    LAYER_NORMS,
    LINEAR,
    MATRIX_PRODUCTS,
    MEANS,
    MOE,
    NORMS,
    ON_CODES,
    OTHER_GATES,
    QUANTIZE,
    RECURRENT,
    REDUCTIONS,
    REGRESSORS,
    ROTARY,
    SAMPLING,
    SUMMING_REDUCTIONS,
    SUMS_OF_PRODUCTS,
    TRAINING,
    WINDOWS,
)
from fuzz.sums import overflows, square_sum_overflows


class Cause(Enum):
    """Why runtimes may answer differently, which decides whether our own twins may.

    RANDOM: results are random. LAST_DIGIT: rounding decides a discrete result, so that twins, which add in other
    orders, may differ. OVERFLOW: an intermediate value may overflow or not; twins may differ only if an inner value or
    an answer is not finite. INFINITE: the same, but nothing in the operator hides an overflow, so that peers, too, may
    differ only then. MEANING: runtimes interpret the operator differently; twins are one runtime and must
    agree."""

    RANDOM = "random"
    LAST_DIGIT = "last digit"
    OVERFLOW = "overflow"
    INFINITE = "infinite"
    MEANING = "meaning"


@dataclass(frozen=True)
class Rule:
    """compares_shapes: the standard specifies shapes and types, which are compared."""

    operators: frozenset[str]
    holds: c.Condition
    cause: Cause
    reason: str
    compares_shapes: bool = True


def _always(a: NodeValues) -> bool:
    return True


RANDOM, DIGIT, OVERFLOW, MEANING = Cause.RANDOM, Cause.LAST_DIGIT, Cause.OVERFLOW, Cause.MEANING

SIZES = "sizes of stacked outputs without an iteration"
NO_AXIS = "an empty reduction along negative axes: onnxruntime returns the input's shape"
NO_STEP = "a step that is not finite: one element, or none"
PADDING = "windows that contain padding only"
RATE = "the reference gives results the type of the learning rate"
SAME = "which computed floats are equal"
GAPS = "a window smaller than its stride, auto_pad SAME: onnxruntime drops elements, and has negative padding"
COORDINATES = "large coordinates, whose fractions are rounded away"
OVERFLOWING_SUMS = "sums that overflow or not, by the order of their terms, or in Winograd's transform"
HALVES_STORED = "halves that overflow if they are stored, and not if nodes are fused"
NOT_FINITE_TIMES_0 = "0 times infinity or NaN"
CONSTANT = "constant values: their normalised difference is rounding error"


def _one(*names: str) -> frozenset[str]:
    return frozenset(names)


RULES = [
    Rule(
        operators("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli"),
        _always,
        RANDOM,
        "results are random",
    ),
    Rule(operators("Dropout", "BiasDropout"), lambda a: len(a.node.input) > 2, RANDOM, "results are random"),
    # Numbers without a specified result.
    Rule(_one("Cast", "CastLike"), c.cast_out_of_range, MEANING, "floats out of the integer type's range"),
    Rule(_one("Cast", "CastLike"), c.e8m0_unspecified, MEANING, "float8e8m0 of numbers without a code"),
    Rule(_one("Shrink"), c.bias_out_of_range, MEANING, "floats out of the integer type's range"),
    Rule(_one("Pow"), c.power_without_value, MEANING, "NaN or infinity as an integer"),
    Rule(_one("Pow"), c.power_out_of_range, MEANING, "powers out of the integer type's range"),
    Rule(_one("Gemm"), c.scaled_integers_overflow, MEANING, "integers times a float, out of the type's range"),
    Rule(_one("ReduceSum", "ReduceSumSquare"), c.integer_sum_overflows, MEANING, "sums of integers that overflow"),
    Rule(_one("ReduceL2", "ReduceSumSquare"), c.integer_squares_overflow, MEANING, "squares of integers that overflow"),
    Rule(_one("BatchNormalization"), c.negative_variance, MEANING, "roots of negative variances"),
    Rule(MOE | CLASSIFIERS | REGRESSORS, c.nan_attribute, MEANING, "NaN as a weight or a limit"),
    Rule(_one("TopK"), c.has_nan(0), MEANING, "the rank of NaN"),
    Rule(MEANS, c.is_empty(0), MEANING, "the mean of no elements: 0 / 0, or 0"),
    Rule(REDUCTIONS, c.empty_with_negative_axes, MEANING, NO_AXIS, False),
    Rule(
        operators(microsoft="FusedMatMul TransposeMatMul"),
        c.is_empty(0),
        MEANING,
        "an empty transposed product: onnxruntime does not write its output",
    ),
    Rule(_one("Loop"), c.has_zero(0, 1), MEANING, SIZES, False),
    Rule(_one("Scan"), c.is_empty(), MEANING, SIZES, False),
    Rule(_one("Range"), c.not_finite(2), MEANING, NO_STEP, False),
    Rule(
        operators("Range", "Range"),
        lambda a: any(x.size > 64 for x in a.outputs(0)),
        MEANING,
        "steps added up, or multiples of NumPy's first difference",
    ),
    Rule(
        _one("BlackmanWindow", "HannWindow", "HammingWindow"),
        c.window_of_integers,
        DIGIT,
        "integers truncated from nearly whole numbers",
    ),
    Rule(TRAINING, c.mixed_float_types, MEANING, RATE, False),
    Rule(
        _one("ai.onnx.ml.TreeEnsembleClassifier"),
        lambda a: len(a.attribute("base_values", [])) in (1, 2),
        MEANING,
        "base values of two classes",
    ),
    # A last digit decides.
    Rule(_one("Pow"), c.computed_exponent_of_negative, DIGIT, "powers of negative numbers with computed exponents"),
    Rule(_one("Sign"), c.near_zero, DIGIT, "signs of rounding errors"),
    Rule(CLASSIFIERS, c.tied_scores, DIGIT, "the class, if two scores differ in the last digits"),
    Rule(RECURRENT, c.recurrence_amplifies, DIGIT, "a recurrence that amplifies the last digit"),
    Rule(MOE, c.tied_experts, DIGIT, "the choice among equal experts"),
    Rule(operators(microsoft="Inverse"), c.nearly_singular, DIGIT, "the inverse of a nearly singular matrix"),
    Rule(operators("Unique", "Unique"), lambda a: a.is_computed(0) and bool(a.floats(0)), DIGIT, SAME, False),
    Rule(_one("NonMaxSuppression"), c.overlap_at_threshold, DIGIT, "boxes whose overlap equals the threshold"),
    Rule(
        _one("GroupNormalization"),
        c.mean_dominates_deviation,
        DIGIT,
        "variances computed as a difference of large squares",
    ),
    Rule(_one("MeanVarianceNormalization"), c.constant_channel, DIGIT, CONSTANT),
    Rule(LAYER_NORMS | _one("InstanceNormalization"), c.constant_row, DIGIT, CONSTANT),
    Rule(
        operators(microsoft="EmbedLayerNormalization QEmbedLayerNormalization"),
        c.tables_have_constant_rows,
        DIGIT,
        CONSTANT,
    ),
    Rule(SAMPLING, c.larger_than(1e4, 1), DIGIT, COORDINATES),
    Rule(_one("DeformConv"), c.larger_than(1e4, 2), DIGIT, COORDINATES),
    Rule(_one("AffineGrid"), c.larger_than(1e4, 0), DIGIT, COORDINATES),
    Rule(operators("Resize", "CropAndResize"), c.larger_than(1e4, 1, 2), DIGIT, COORDINATES),
    Rule(_one("Mul"), c.near_zero_times_infinity, DIGIT, "infinity times 0, or times a number near 0"),
    # Quantisation.
    Rule(DYNAMIC, c.no_range, DIGIT, "the scale of an empty range: 1 or 1 / 255"),
    Rule(DYNAMIC, c.larger_than(1e30, 0), OVERFLOW, "a scale that overflows, or NaN as an integer"),
    Rule(QUANTIZE, c.has_zero(1), MEANING, "a scale of 0"),
    Rule(
        QUANTIZE | operators("DequantizeLinear", "DequantizeLinear"),
        lambda a: a.largest(2) > 0,
        MEANING,
        "a zero point of a float type, which peers ignore",
    ),
    Rule(QUANTIZE, c.not_finite(0, 1), MEANING, "NaN as an integer"),
    Rule(QUANTIZE, c.quotient_out_of_range, MEANING, "the reference casts through int32"),
    Rule(ON_CODES, c.extreme_scales, MEANING, "quotients out of the integer type's range"),
    Rule(GQA, c.has_zero(12, 13), MEANING, "codes with a scale of 0"),
    # Attention and recurrences.
    Rule(
        GQA,
        c.padded_prompt,
        MEANING,
        "padded queries: onnxruntime masks padded keys, and has other sinks and windows for some",
    ),
    Rule(GQA, c.cache_has_free_rows, MEANING, "the free rows of a cache"),
    Rule(RECURRENT, c.has_zero(4), MEANING, "the state of a sequence of length 0"),
    Rule(
        ATTENTION,
        c.is_empty(0, 1),
        MEANING,
        "attention without keys, or with a head size of 0, whose scale is infinite",
    ),
    Rule(ATTENTION, lambda a: a.attribute("scale", 0.0) < 0, MEANING, "the root of a negative scale"),
    Rule(ATTENTION, c.short_integer_mask, MEANING, "a short integer mask, which the reference extends by -inf"),
    Rule(ATTENTION, c.large_integer_mask, DIGIT, "scores that lose their digits beside a large mask"),
    Rule(ATTENTION, c.returns_masked_scores, MEANING, "masked scores as an output: -inf, or the least number"),
    Rule(
        ATTENTION, c.row_fully_masked, DIGIT, "fully masked rows: scores near -10,000, where float32 has three decimals"
    ),
    Rule(ATTENTION, c.not_finite(), OVERFLOW, "a softmax of infinities"),
    Rule(ATTENTION, overflows, OVERFLOW, "a softmax of sums that overflow"),
    # Overflow, and what is not finite.
    Rule(SUMMING_REDUCTIONS, c.computed_not_finite, OVERFLOW, "an overflowed input, which fused nodes need not store"),
    Rule(
        ATTENTION | ROTARY | MATRIX_PRODUCTS | _one("LRN"),
        c.factor_too_large,
        OVERFLOW,
        "sums scaled by infinity, before or after adding",
    ),
    Rule(SAMPLING | operators("DeformConv Resize", "CropAndResize"), c.not_finite(0), OVERFLOW, NOT_FINITE_TIMES_0),
    Rule(NORMS | ROTARY | OTHER_GATES, c.not_finite(), OVERFLOW, NOT_FINITE_TIMES_0),
    Rule(_one("DFT", "STFT"), c.not_finite(), OVERFLOW, NOT_FINITE_TIMES_0),
    Rule(NORMS, square_sum_overflows, OVERFLOW, "squares that overflow, unless computed in a wider type"),
    Rule(LINEAR, overflows, Cause.INFINITE, OVERFLOWING_SUMS),
    Rule(SUMS_OF_PRODUCTS - LINEAR, overflows, OVERFLOW, OVERFLOWING_SUMS),
    # Windows.
    Rule(AVERAGES, c.not_finite(), MEANING, "the reference treats NaN as padding"),
    Rule(WINDOWS | _one("MaxRoiPool"), c.window_of_padding, MEANING, PADDING, False),
    Rule(
        WINDOWS | CONVOLUTIONS | operators("ConvInteger QLinearConv", "QLinearConv"),
        c.stride_skips_elements,
        MEANING,
        GAPS,
        False,
    ),
    Rule(
        operators("MaxPool GlobalMaxPool MaxRoiPool", "NhwcMaxPool"),
        c.not_finite(),
        MEANING,
        "peers drop NaN or not, by its position in the window",
    ),
    Rule(_one("Resize"), c.nearest_excludes_outside, MEANING, "exclude_outside without weights: the reference gives 0"),
]
STORED_HALVES = Rule(frozenset(), _always, OVERFLOW, HALVES_STORED)


def open_outputs(model: onnx.ModelProto, values: Mapping[str, Any], fed: Mapping[str, Any]) -> list[tuple[Rule, ...]]:
    """For each output, the rules that excuse its values: those of the nodes that it depends on.

    values: of what is known by name, inner values among them; fed: inputs and weights."""
    excuses: dict[str, tuple[Rule, ...]] = {}
    several = len(model.graph.node) > 1
    for node in model.graph.node:
        found = [rule for inner in nodes_in(node) for rule in _rules(NodeValues(inner, values, fed))]
        found += [rule for name in (*node.input, *inner_names(node)) for rule in excuses.get(name, ())]
        for name in node.output:
            stored = [STORED_HALVES] if several and _is_overflowed_half(values.get(name)) else []
            excuses[name] = tuple({id(rule): rule for rule in (*found, *stored)}.values())
    return [excuses.get(output.name, ()) for output in model.graph.output]


def nodes_in(node: Any) -> Sequence[Any]:
    """The node, and the nodes of the graphs inside it."""
    return list(nodes(onnx.GraphProto(node=[node])))


def _rules(a: NodeValues) -> list[Rule]:
    name = full_name(a.node)
    return [rule for rule in RULES if name in rule.operators and rule.holds(a)]


def _is_overflowed_half(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype in HALVES and not np.isfinite(widen(x)).all()


__all__ = ["RULES", "Cause", "Rule", "open_outputs"]
