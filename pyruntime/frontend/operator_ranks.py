"""The ranks that an operator's inputs may have, where the standard restricts them. The standard states them in prose,
so this table is written by hand.

A line for the operators with the same ranks: a word for each input, then : and the operators. 3: that rank; 2-4, 1+: a
range; *: any; n: one number, of rank 0 or 1. A last word with … applies to all further inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Tensor

_RANKS = """
3 1: AffineGrid com.microsoft.BiasSplitGelu
3-4 3-4 3-4 1-4 4 4 1: Attention
3+: AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool com.microsoft.QLinearAveragePool
    com.microsoft.QLinearGlobalAveragePool
1+ 1+ 1+ 1+ 1+: BatchNormalization
n: BlackmanWindow HammingWindow HannWindow
3 3 1 3: CausalConvWithState com.microsoft.CausalConvWithState
1+ 1: CenterCropPad Compress Split com.microsoft.BiasGelu com.microsoft.FastGelu
* n n: Clip Dropout
3 1 1: Col2Im
1+…: Concat ai.onnx.ml.FeatureVectorizer
1: ConstantOfShape ImageDecoder com.microsoft.Unique
3+ 3+ 1: Conv ConvTranspose MaxUnpool
3+ 3+: ConvInteger GridSample com.microsoft.MaxpoolWithMask
4: Crop DepthToSpace ImageScaler SpaceToDepth com.microsoft.NhwcMaxPool
1+ n: CumProd CumSum TopK
3+ 3+ 3+ 1 3+: DeformConv
2+: Det LRN com.microsoft.Inverse
2+ n n: DFT
* 1 1 1: DynamicSlice Resize
* 1: Expand Reshape
2: EyeLike Multinomial ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor
1+: Gather ai.onnx.ml.ArrayFeatureExtractor ai.onnx.ml.Scaler
1+ 1+: GatherElements GatherND MatMul MatMulInteger ScatterND com.microsoft.GatherND
2 2 0-2: Gemm com.microsoft.FusedGemm
2+ 1 1: GroupNormalization InstanceNormalization
3 3 3 2 1 3: GRU RNN
3 3 3 4 3 3: LinearAttention com.microsoft.LinearAttention
3 3 3 2 1 3 3 2: LSTM
n n: Loop
4 2: MaxRoiPool
n n n n n: MelWeightMatrix
2+ 1+ 1: NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
3 3 n n n: NonMaxSuppression
* n 1: OneHot
* 1 n 1: Pad
3+ * * 3+ * * * * 1: QLinearConv com.microsoft.QLinearConv
1+ * * 1+: QLinearMatMul
n n n: Range com.microsoft.Range
* 0-1: ReduceSum Squeeze Tile Unsqueeze
2+ 1: ReverseSequence
4 2 1: RoiAlign
3-4 2-3 2-3 2: RotaryEmbedding
2-3 n 1 n: STFT
1+ 1+ 1+: Scatter ScatterElements com.microsoft.GatedAdd
* n: SequenceAt SequenceErase
* * n: SequenceInsert
1+ 1 1 1 1: Slice
1+ 0-1: SplitToSequence
1-2: StringNormalizer TfIdfVectorizer ai.onnx.ml.Imputer ai.onnx.ml.LinearClassifier ai.onnx.ml.LinearRegressor
    ai.onnx.ml.Normalizer ai.onnx.ml.SVMClassifier ai.onnx.ml.SVMRegressor ai.onnx.ml.ZipMap com.microsoft.Tokenizer
2+ 2+ 1: TensorScatter
2+ n: Trilu com.microsoft.Trilu
4 4 4: ai.onnx.preview.FlexAttention
3 2 1 * 5: com.microsoft.Attention
2-3 n 1 n n 1 1 1 2 2 2 n: com.microsoft.BeamSearch com.microsoft.WhisperBeamSearch
3 1 3: com.microsoft.BiasAdd
1 1 * 1: com.microsoft.BifurcationDetector
2+ 1-2: com.microsoft.BranchwiseRMSNorm
2 2: com.microsoft.CDist com.microsoft.NGramRepeatBlock com.microsoft.SparseToDenseMatMul
3+ 3+ 1 1: com.microsoft.ConvTransposeWithDynamicPads
4 2 1 1: com.microsoft.CropAndResize
3 3-4 3-4 2 4 4 4 n n 3 1: com.microsoft.DecoderMaskedMultiHeadAttention
2-3: com.microsoft.DynamicTimeWarping
2 2 2 2 2 1 1 2 2: com.microsoft.EmbedLayerNormalization
4 4 3 2 2 2: com.microsoft.EngramGate
3+ 3+ 1 3+: com.microsoft.FusedConv com.microsoft.NhwcConv com.microsoft.NhwcFusedConv
1+ 1 1+: com.microsoft.GatedRMSNorm
1+ * 1+ 1+: com.microsoft.GatherBlockQuantized
2 n 1 1 1 2 2: com.microsoft.GreedySearch
4 4: com.microsoft.GridSample
4 1 1: com.microsoft.GroupNorm
3 3 3 4 4 1-2 n 2 2 2 4 1: com.microsoft.GroupQueryAttention
2+ 1+ 1+ 2+: com.microsoft.HyperConnectionPostMix
2+ 1+: com.microsoft.HyperConnectionPreMix
3 1 1 3: com.microsoft.LinearAttentionGate
3-4 3 2 2: com.microsoft.MRotaryEmbedding
1+ * *: com.microsoft.MatMulBnb4
1+ 1 1: com.microsoft.MatMulFpQ4
1+ * * * 1 1: com.microsoft.MatMulNBits
2-3 2 3 2 3 2 3 2: com.microsoft.MoE
3-5 3-5 3-4 1 1-3 4 4 4: com.microsoft.MultiHeadAttention
2 1 1 2 1 n 2: com.microsoft.NGramHashMapping
* 1-2 n: com.microsoft.Pad
3 2 1 n 0-1 1-3 n 0-1 5: com.microsoft.QAttention
2 2 2 2 2 1 1 2 n…: com.microsoft.QEmbedLayerNormalization
2 n n 2 0-1 0-1 1-2 n n: com.microsoft.QGemm
3-4 1-2 2 2: com.microsoft.RotaryEmbedding
2 n 1 1 1 2 2 * n: com.microsoft.Sampling
* 0: com.microsoft.ScaledSiLU
2-3 2-3 1 1 1: com.microsoft.SkipLayerNormalization
2-3 2-3 1 1: com.microsoft.SkipSimplifiedLayerNormalization
1 1 1 1 2 1 n 1 2 1: com.microsoft.VarlenNGramHashMapping
2 4 1 2: com.microsoft.WordConvEmbedding
"""


@cache
def _table() -> dict[str, list[str]]:
    lines = (line.split(":") for line in _RANKS.replace("\n   ", "").split("\n") if line)
    return {name: words.split() for words, names in lines for name in names.split()}


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
