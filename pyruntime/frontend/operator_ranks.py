"""The ranks that an operator's inputs may have, where the standard restricts them. The standard states them in prose,
so this table is written by hand.

One line per operator: its name, then a word for each input. 3: that rank; 2-4, 1+: a range; *: any; n: one number, of
rank 0 or 1. A last word with … applies to all further inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Tensor

_RANKS = """
AffineGrid 3 1
Attention 3-4 3-4 3-4 1-4 4 4 1
AveragePool 3+
BatchNormalization 1+ 1+ 1+ 1+ 1+
BlackmanWindow n
CausalConvWithState 3 3 1 3
CenterCropPad 1+ 1
Clip * n n
Col2Im 3 1 1
Compress 1+ 1
Concat 1+…
ConstantOfShape 1
Conv 3+ 3+ 1
ConvInteger 3+ 3+
ConvTranspose 3+ 3+ 1
Crop 4
CumProd 1+ n
CumSum 1+ n
DeformConv 3+ 3+ 3+ 1 3+
DepthToSpace 4
Det 2+
DFT 2+ n n
Dropout * n n
DynamicSlice * 1 1 1
Expand * 1
EyeLike 2
Gather 1+
GatherElements 1+ 1+
GatherND 1+ 1+
Gemm 2 2 0-2
GlobalAveragePool 3+
GlobalLpPool 3+
GlobalMaxPool 3+
GridSample 3+ 3+
GroupNormalization 2+ 1 1
GRU 3 3 3 2 1 3
HammingWindow n
HannWindow n
ImageDecoder 1
ImageScaler 4
InstanceNormalization 2+ 1 1
LRN 2+
LinearAttention 3 3 3 4 3 3
LSTM 3 3 3 2 1 3 3 2
Loop n n
LpPool 3+
MatMul 1+ 1+
MatMulInteger 1+ 1+
MaxPool 3+
MaxRoiPool 4 2
MaxUnpool 3+ 3+ 1
MelWeightMatrix n n n n n
Multinomial 2
NegativeLogLikelihoodLoss 2+ 1+ 1
NonMaxSuppression 3 3 n n n
OneHot * n 1
Pad * 1 n 1
QLinearConv 3+ * * 3+ * * * * 1
QLinearMatMul 1+ * * 1+
RNN 3 3 3 2 1 3
Range n n n
ReduceSum * 0-1
Reshape * 1
Resize * 1 1 1
ReverseSequence 2+ 1
RoiAlign 4 2 1
RotaryEmbedding 3-4 2-3 2-3 2
STFT 2-3 n 1 n
Scatter 1+ 1+ 1+
ScatterElements 1+ 1+ 1+
ScatterND 1+ 1+
SequenceAt * n
SequenceErase * n
SequenceInsert * * n
Slice 1+ 1 1 1 1
SoftmaxCrossEntropyLoss 2+ 1+ 1
SpaceToDepth 4
Split 1+ 1
SplitToSequence 1+ 0-1
Squeeze * 0-1
StringNormalizer 1-2
TensorScatter 2+ 2+ 1
TfIdfVectorizer 1-2
Tile * 0-1
TopK 1+ n
Trilu 2+ n
Unsqueeze * 0-1
ai.onnx.ml.ArrayFeatureExtractor 1+
ai.onnx.ml.FeatureVectorizer 1+…
ai.onnx.ml.Imputer 1-2
ai.onnx.ml.LinearClassifier 1-2
ai.onnx.ml.LinearRegressor 1-2
ai.onnx.ml.Normalizer 1-2
ai.onnx.ml.Scaler 1+
ai.onnx.ml.SVMClassifier 1-2
ai.onnx.ml.SVMRegressor 1-2
ai.onnx.ml.TreeEnsemble 2
ai.onnx.ml.TreeEnsembleClassifier 2
ai.onnx.ml.TreeEnsembleRegressor 2
ai.onnx.ml.ZipMap 1-2
ai.onnx.preview.FlexAttention 4 4 4
com.microsoft.Attention 3 2 1 * 5
com.microsoft.BeamSearch 2-3 n 1 n n 1 1 1 2 2 2 n
com.microsoft.BiasAdd 3 1 3
com.microsoft.BiasGelu 1+ 1
com.microsoft.BiasSplitGelu 3 1
com.microsoft.BifurcationDetector 1 1 * 1
com.microsoft.BranchwiseRMSNorm 2+ 1-2
com.microsoft.CDist 2 2
com.microsoft.CausalConvWithState 3 3 1 3
com.microsoft.ConvTransposeWithDynamicPads 3+ 3+ 1 1
com.microsoft.CropAndResize 4 2 1 1
com.microsoft.DecoderMaskedMultiHeadAttention 3 3-4 3-4 2 4 4 4 n n 3 1
com.microsoft.DynamicTimeWarping 2-3
com.microsoft.EmbedLayerNormalization 2 2 2 2 2 1 1 2 2
com.microsoft.EngramGate 4 4 3 2 2 2
com.microsoft.FastGelu 1+ 1
com.microsoft.FusedConv 3+ 3+ 1 3+
com.microsoft.FusedGemm 2 2 0-2
com.microsoft.GatedAdd 1+ 1+ 1+
com.microsoft.GatedRMSNorm 1+ 1 1+
com.microsoft.GatherBlockQuantized 1+ * 1+ 1+
com.microsoft.GatherND 1+ 1+
com.microsoft.GreedySearch 2 n 1 1 1 2 2
com.microsoft.GridSample 4 4
com.microsoft.GroupNorm 4 1 1
com.microsoft.GroupQueryAttention 3 3 3 4 4 1-2 n 2 2 2 4 1
com.microsoft.HyperConnectionPostMix 2+ 1+ 1+ 2+
com.microsoft.HyperConnectionPreMix 2+ 1+
com.microsoft.Inverse 2+
com.microsoft.LinearAttention 3 3 3 4 3 3
com.microsoft.LinearAttentionGate 3 1 1 3
com.microsoft.MRotaryEmbedding 3-4 3 2 2
com.microsoft.MatMulBnb4 1+ * *
com.microsoft.MatMulFpQ4 1+ 1 1
com.microsoft.MatMulNBits 1+ * * * 1 1
com.microsoft.MaxpoolWithMask 3+ 3+
com.microsoft.MoE 2-3 2 3 2 3 2 3 2
com.microsoft.MultiHeadAttention 3-5 3-5 3-4 1 1-3 4 4 4
com.microsoft.NGramHashMapping 2 1 1 2 1 n 2
com.microsoft.NGramRepeatBlock 2 2
com.microsoft.NhwcConv 3+ 3+ 1 3+
com.microsoft.NhwcFusedConv 3+ 3+ 1 3+
com.microsoft.NhwcMaxPool 4
com.microsoft.Pad * 1-2 n
com.microsoft.QAttention 3 2 1 n 0-1 1-3 n 0-1 5
com.microsoft.QEmbedLayerNormalization 2 2 2 2 2 1 1 2 n…
com.microsoft.QGemm 2 n n 2 0-1 0-1 1-2 n n
com.microsoft.QLinearAveragePool 3+
com.microsoft.QLinearConv 3+ * * 3+ * * * * 1
com.microsoft.QLinearGlobalAveragePool 3+
com.microsoft.Range n n n
com.microsoft.RotaryEmbedding 3-4 1-2 2 2
com.microsoft.Sampling 2 n 1 1 1 2 2 * n
com.microsoft.ScaledSiLU * 0
com.microsoft.SkipLayerNormalization 2-3 2-3 1 1 1
com.microsoft.SkipSimplifiedLayerNormalization 2-3 2-3 1 1
com.microsoft.SparseToDenseMatMul 2 2
com.microsoft.Tokenizer 1-2
com.microsoft.Trilu 2+ n
com.microsoft.Unique 1
com.microsoft.VarlenNGramHashMapping 1 1 1 1 2 1 n 1 2 1
com.microsoft.WhisperBeamSearch 2-3 n 1 n n 1 1 1 2 2 2 n
com.microsoft.WordConvEmbedding 2 4 1 2
"""


@cache
def _table() -> dict[str, list[str]]:
    return {name: words for name, *words in (line.split() for line in _RANKS.split("\n") if line)}


def check_ranks(operator: str, names: Sequence[str], args: Sequence[Any], node: str) -> None:
    """Refuse inputs (`args`, None where absent; `names` are their names) with ranks that the operator does not accept.
    `operator` includes the domain, except ai.onnx. Errors: ShapeError with the input, its rank and the allowed ones."""
    words = _table().get(operator, [])
    for n, x in enumerate(args):
        word = words[n] if n < len(words) else words[-1] if words and words[-1].endswith("…") else "*"
        word = word.rstrip("…")
        if not isinstance(x, Tensor) or word == "*":
            continue
        if word == "n":
            if x.rank > 1 or sh.is_static(x.shape) and sh.size(x.shape) != 1:
                raise ShapeError(f'input "{names[n]}" must be one number, has shape {list(x.shape)}', node=node)
            continue
        low, _, high = word.rstrip("+").partition("-")
        if x.rank < int(low) or not word.endswith("+") and x.rank > int(high or low):
            allowed = f"{low} or more" if word.endswith("+") else f"{low} to {high}" if high else low
            raise ShapeError(f'input "{names[n]}" has rank {x.rank}, must have {allowed}', node=node)


__all__ = ["check_ranks"]
