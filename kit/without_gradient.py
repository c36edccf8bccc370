"""The operators that the table of gradients (tests/training) does not check, each in a list that says why."""

# No float flows in and out: logic, integers, codes, strings, shapes, sequences, random numbers, chosen tokens.
NO_FLOATS = frozenset(
    """And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Constant
    ConstantOfShape ConvInteger Equal EyeLike Greater GreaterOrEqual HammingWindow HannWindow ImageDecoder IsInf IsNaN
    Less LessOrEqual MatMulInteger MelWeightMatrix Multinomial NonMaxSuppression NonZero Not OptionalHasElement Or
    QLinearMatMul QuantizeLinear
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike RegexFullMatch SequenceEmpty
    SequenceLength Shape Size StringConcat StringNormalizer StringSplit TfIdfVectorizer Xor
    ai.onnx.ml.CastMap ai.onnx.ml.CategoryMapper ai.onnx.ml.DictVectorizer ai.onnx.ml.LabelEncoder
    ai.onnx.ml.OneHotEncoder ai.onnx.ml.ZipMap com.microsoft.BifurcationDetector com.microsoft.DynamicTimeWarping
    com.microsoft.MatMulInteger16 com.microsoft.MurmurHash3 com.microsoft.NGramHashMapping com.microsoft.QLinearAdd
    com.microsoft.QLinearAveragePool com.microsoft.QLinearConcat com.microsoft.QLinearConv
    com.microsoft.QLinearGlobalAveragePool com.microsoft.QLinearLeakyRelu com.microsoft.QLinearMul
    com.microsoft.QLinearReduceMean com.microsoft.QLinearSigmoid com.microsoft.QLinearSoftmax
    com.microsoft.QLinearWhere com.microsoft.Tokenizer com.microsoft.VarlenNGramHashMapping QLinearConv
    com.microsoft.BeamSearch com.microsoft.GreedySearch com.microsoft.Sampling com.microsoft.WhisperBeamSearch
    pyruntime.gguf.Unpack""".split()
)

# Refused with NotDifferentiable. Operator -> why.
NO_RULE = {
    "com.microsoft.DynamicQuantizeLSTM": "it rounds h in each step, and its weights are codes, which are not trained",
    "com.microsoft.NGramRepeatBlock": "it forbids tokens while a decoder chooses them, which is not trained",
    "ai.onnx.ml.TreeEnsemble": "a piecewise constant function of its input",
    "ai.onnx.ml.TreeEnsembleClassifier": "a piecewise constant function of its input",
    "ai.onnx.ml.TreeEnsembleRegressor": "a piecewise constant function of its input",
}

# Piecewise constant: gradients are 0 everywhere.
ZERO = frozenset("Bernoulli Ceil Floor Hardmax Round Sign ai.onnx.ml.Binarizer".split())

# Piecewise constant with some attributes, which cases have: classes of a classifier, one_class of a regressor.
ZERO_IN_CASES = frozenset({"ai.onnx.ml.LinearClassifier", "ai.onnx.ml.SVMRegressor"})

# Differentiable, but not compared here. Operator -> why.
NOT_COMPARED = {
    "pyruntime.gguf.PairsApart": "it only moves rows of weights in GGUF files",
    **dict.fromkeys(
        "Scan Loop If Optional OptionalGetElement SequenceConstruct SequenceAt SequenceInsert "
        "SequenceErase SequenceMap Range ConcatFromSequence SplitToSequence ai.onnx.preview.training.Gradient".split(),
        "test_gradient_operator.py compares it",
    ),
    **dict.fromkeys(
        "com.microsoft.QuantizeLinear com.microsoft.DynamicQuantizeMatMul com.microsoft.QAttention "
        "com.microsoft.QGemm com.microsoft.QMoE com.microsoft.QEmbedLayerNormalization".split(),
        "it rounds, so that differences are steps; test_straight_through.py compares such graphs with plain ones",
    ),
}
