"""Operators by what they compute, under their full names."""

from __future__ import annotations

from fuzz.node import operators

ATTENTION = operators(
    "Attention LinearAttention ai.onnx.preview.FlexAttention",
    """Attention MultiHeadAttention DecoderMaskedMultiHeadAttention GroupQueryAttention QAttention SparseAttention
    LinearAttention""",
)
ROTARY = operators("RotaryEmbedding", "RotaryEmbedding GemmaRotaryEmbedding MRotaryEmbedding")
RECURRENT = operators("RNN LSTM GRU", "AttnLSTM DynamicQuantizeLSTM")
MATRIX_PRODUCTS = operators(
    "MatMul Gemm",
    """FusedMatMul TransposeMatMul FusedGemm MatMulNBits MatMulBnb4 MatMulFpQ4 MatMulIntegerToFloat
    DynamicQuantizeMatMul SparseToDenseMatMul""",
)
CONVOLUTIONS = operators(
    "Conv ConvTranspose DeformConv CausalConvWithState",
    "FusedConv NhwcConv NhwcFusedConv ConvTransposeWithDynamicPads CausalConvWithState WordConvEmbedding",
)
SUMS_OF_PRODUCTS = (
    MATRIX_PRODUCTS
    | CONVOLUTIONS
    | RECURRENT
    | operators(
        "Einsum DFT STFT NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        "CDist HyperConnectionPostMix HyperConnectionPreMix MoE QMoE",
    )
)
# Sums of products without a function behind them.
LINEAR = (MATRIX_PRODUCTS | CONVOLUTIONS | operators("Einsum DFT STFT")) - operators(
    microsoft="FusedGemm FusedConv NhwcFusedConv WordConvEmbedding"
)
LAYER_NORMS = operators("LayerNormalization", "SkipLayerNormalization SkipSimplifiedLayerNormalization")
NORMS = LAYER_NORMS | operators(
    """BatchNormalization InstanceNormalization GroupNormalization RMSNormalization SimplifiedLayerNormalization
    LpNormalization MeanVarianceNormalization LRN""",
    "EmbedLayerNormalization QEmbedLayerNormalization GroupNorm SkipGroupNorm BranchwiseRMSNorm GatedRMSNorm",
    "Normalizer",
)
CLASSIFIERS = operators(ml="LinearClassifier SVMClassifier TreeEnsembleClassifier")
REGRESSORS = operators(ml="LinearRegressor SVMRegressor TreeEnsembleRegressor")
REDUCTIONS = operators(
    """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare ArgMax ArgMin"""
)
SUMMING_REDUCTIONS = operators("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSum ReduceSumSquare")
DYNAMIC = operators("DynamicQuantizeLinear", "DynamicQuantizeMatMul DynamicQuantizeLSTM")
QUANTIZE = operators("QuantizeLinear", "QuantizeLinear")
ON_CODES = operators(
    "QLinearConv QLinearMatMul",
    """QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu
    QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere""",
)
WINDOWS = operators("AveragePool LpPool MaxPool", "NhwcMaxPool QLinearAveragePool")
SAMPLING = operators("GridSample RoiAlign", "GridSample")
GQA = operators(microsoft="GroupQueryAttention")
MOE = operators(microsoft="MoE QMoE")
TRAINING = frozenset(f"ai.onnx.preview.training.{name}" for name in ("Adagrad", "Adam", "Momentum"))
AVERAGES = operators("AveragePool LpPool GlobalAveragePool GlobalLpPool")
OTHER_GATES = operators("SwiGLU", "HyperConnectionPostMix HyperConnectionPreMix EngramGate")
MEANS = operators("ReduceMean NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss")


# Operators whose rounding error is that of their largest terms: those that add, and functions of sums of cosines.
SUMS = (
    SUMS_OF_PRODUCTS
    | ATTENTION
    | NORMS
    | REDUCTIONS
    | AVERAGES
    | operators(
        """Sum Mean CumSum Resize BlackmanWindow HannWindow HammingWindow MatMulInteger ConvInteger QLinearConv
        QLinearMatMul""",
        """QLinearConv QGemm QLinearAveragePool QLinearGlobalAveragePool QLinearReduceMean MatMulInteger16
        CropAndResize""",
    )
)
