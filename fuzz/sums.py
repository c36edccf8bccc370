"""The sums that a node computes: their length, which bounds rounding errors, and how large they can become."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fuzz.compare import widen
from fuzz.node import full_name, operators
from fuzz.node_values import NodeValues

# Each sum runs along one axis of an input, or along two, one after the other: W x + R h, cached keys and new ones.
ALONG_AN_AXIS = operators(
    "MatMul Gemm MatMulInteger QLinearMatMul DFT STFT RNN LSTM GRU Attention LinearAttention RotaryEmbedding",
    """FusedMatMul TransposeMatMul SparseToDenseMatMul FusedGemm MatMulNBits MatMulBnb4 MatMulFpQ4 MatMulInteger16
    MatMulIntegerToFloat DynamicQuantizeMatMul QGemm AttnLSTM DynamicQuantizeLSTM CDist HyperConnectionPostMix
    HyperConnectionPreMix MoE QMoE Attention MultiHeadAttention DecoderMaskedMultiHeadAttention GroupQueryAttention
    QAttention SparseAttention LinearAttention""",
)
# Each sum runs over a filter: its channels and its window. The weights' position among the inputs, and their axis of
# output channels.
FILTERS = {
    **dict.fromkeys(operators("Conv ConvInteger CausalConvWithState", "FusedConv CausalConvWithState"), (1, 0)),
    "DeformConv": (1, 0),
    **dict.fromkeys(operators("QLinearConv", "QLinearConv"), (3, 0)),
    **dict.fromkeys(operators("ConvTranspose", "ConvTransposeWithDynamicPads"), (1, 1)),
}
# A product of two matrices. FusedMatMul's transposes of other axes are left to the general bound.
PRODUCTS = operators("MatMul", "FusedMatMul TransposeMatMul")
WINOGRAD = operators("Conv", "FusedConv NhwcConv NhwcFusedConv")
# F(4x4, 3x3) with the points 0, ±0.75, ±1.5 (providers/wasm/schedules/winograd_forms.py): rows of Bᵀ have absolute sums
# of at most 5.7, of G 1.22, of Aᵀ 8.6, each applied along two axes; (5.7 · 1.22 · 8.6)² = 3600 times the direct terms.
WINOGRAD_GROWTH = 3600.0
# Normalisations of rows: of the axes from `axis` on, by default the last. Others may take all elements together.
BY_ROWS = operators(
    "LayerNormalization RMSNormalization SimplifiedLayerNormalization",
    "SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization",
)
MOST_PRODUCTS = 1 << 24  # multiply-adds that are worth an exact bound


def longest_sum(a: NodeValues) -> int:
    """The number of terms of the longest sum that a node computes, at most: that of an input's elements where the
    operator's sums have no known axis."""
    name, arrays = full_name(a.node), a.at()
    if name in ALONG_AN_AXIS:
        return 2 * max((d for x in arrays for d in x.shape), default=1)
    if name in FILTERS:
        place, axis = FILTERS[name]
        return max((x.size // max(x.shape[axis], 1) for x in a.at(place) if x.ndim > axis), default=1)
    return max((x.size for x in arrays), default=1)


def largest_partial_sum(a: NodeValues) -> float:
    """A bound of every partial sum of products that the node computes, in any order: the sum of the terms' magnitudes.
    NaN or infinity where an input is not finite."""
    name = full_name(a.node)
    with np.errstate(all="ignore"):
        if name in PRODUCTS and (exact := _product_bound(a)) is not None:
            return exact
        if name in FILTERS and (weights := [x for x in a.floats(FILTERS[name][0]) if x.ndim > 1]):
            axes = tuple(n for n in range(weights[0].ndim) if n != FILTERS[name][1])
            sums = max(float(np.abs(widen(w)).sum(axes).max(initial=0)) for w in weights if w.ndim == weights[0].ndim)
            return a.largest(0) * sums * _winograd_growth(a, weights[0]) + a.largest(2)
        sizes = sorted((max(1.0, a.largest(n)) for n in range(len(a.node.input))), reverse=True)
        return float(np.prod(sizes[:2])) * longest_sum(a)


def _product_bound(a: NodeValues) -> float | None:
    """The largest element of |A| · |B|; None where operands do not fit, or the product is large."""
    left, right = a.floats(0), a.floats(1)
    if len(left) != 1 or len(right) != 1 or not left[0].ndim or not right[0].ndim:
        return None
    x, y = (np.abs(widen(v[0]).astype(np.float64)) for v in (left, right))
    if a.attribute("transBatchA", 0) or a.attribute("transBatchB", 0):
        return None
    x = x.swapaxes(-1, -2) if a.attribute("transA", 0) and x.ndim > 1 else x
    y = y.swapaxes(-1, -2) if a.attribute("transB", 0) and y.ndim > 1 else y
    if x.size * y.shape[-1] > MOST_PRODUCTS:
        return None
    try:
        return float(np.matmul(x, y).max(initial=0)) * max(1.0, abs(a.attribute("alpha", 1.0)))
    except ValueError:
        return None


def _winograd_growth(a: NodeValues, w: np.ndarray) -> float:
    """How much larger than the terms the inner sums are: only of 3x3 windows with stride 1, as the engine uses it, and
    only of float32, since shorter types are widened to it, whose range no half leaves."""
    ones = {1, *a.attribute("strides", ()), *a.attribute("dilations", ())} == {1}
    used = full_name(a.node) in WINOGRAD and w.shape[2:] == (3, 3) and ones and a.attribute("group", 1) == 1
    return WINOGRAD_GROWTH if used and w.dtype == np.float32 else 1.0


def overflows(a: NodeValues) -> bool:
    """Whether a partial sum of products may leave the shortest float type that arrives."""
    limit = min((float(ml_dtypes.finfo(x.dtype).max) for x in a.floats()), default=np.inf)
    return not largest_partial_sum(a) < limit


def square_sum_overflows(a: NodeValues) -> bool:
    """Whether a sum of squares of what a normalisation takes may leave its type."""
    skip = a.node.op_type.startswith("Skip")
    for x in a.floats(0):
        largest = a.largest(0) + (a.largest(1) if skip else 0.0)
        values = np.full(x.shape, largest) if skip else widen(x).astype(np.float64)
        axis = a.attribute("axis", -1) if full_name(a.node) in BY_ROWS else 0
        rows = values.reshape(int(np.prod(x.shape[:axis])) if x.ndim else 1, -1)
        with np.errstate(all="ignore"):
            if not (rows**2).sum(-1).max(initial=0) < float(ml_dtypes.finfo(x.dtype).max):
                return True
    return False
