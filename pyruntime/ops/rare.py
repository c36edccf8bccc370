"""Modules of operators that few models have, which are imported when a model has one.

Written by scripts/rare_operators.py: a module of pyruntime/ops that `pyruntime.ops` does not import is rare."""

_NAMES = {  # by module and domain
    "ops.gguf": {
        "pyruntime.gguf": "PairsApart Unpack",
    },
    "ops.microsoft.aliases": {
        "com.microsoft": (
            "ConvTransposeWithDynamicPads ExpandDims GatherND GridSample MatMulInteger16 Pad Range SampleOp "
            "TransposeMatMul Trilu Unique"
        ),
    },
    "ops.microsoft.attention_lstm": {
        "com.microsoft": "AttnLSTM",
    },
    "ops.microsoft.beam_search": {
        "com.microsoft": "BeamSearch",
    },
    "ops.microsoft.experts": {
        "com.microsoft": "MoE QMoE",
    },
    "ops.microsoft.gates": {
        "com.microsoft": (
            "BranchwiseRMSNorm EngramGate GatedAdd GatedRMSNorm HyperConnectionPostMix HyperConnectionPreMix "
            "LinearAttentionGate ScaledSiLU"
        ),
    },
    "ops.microsoft.greedy_search": {
        "com.microsoft": "GreedySearch Sampling",
    },
    "ops.microsoft.linalg": {
        "com.microsoft": "CDist ComplexMul ComplexMulConj Inverse SparseToDenseMatMul",
    },
    "ops.microsoft.sparse_attention": {
        "com.microsoft": "SparseAttention",
    },
    "ops.microsoft.tokens": {
        "com.microsoft": "BifurcationDetector DynamicTimeWarping MurmurHash3 NGramRepeatBlock Tokenizer",
    },
    "ops.microsoft.vision": {
        "com.microsoft": "CropAndResize MaxpoolWithMask UnfoldTensor",
    },
    "ops.microsoft.whisper": {
        "com.microsoft": "WhisperBeamSearch",
    },
    "ops.microsoft.words": {
        "com.microsoft": "NGramHashMapping VarlenNGramHashMapping WordConvEmbedding",
    },
    "ops.ml.encode": {
        "ai.onnx.ml": (
            "ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer "
            "LabelEncoder Normalizer OneHotEncoder Scaler ZipMap"
        ),
    },
    "ops.ml.linear": {
        "ai.onnx.ml": "LinearClassifier LinearRegressor",
    },
    "ops.ml.svm": {
        "ai.onnx.ml": "SVMClassifier SVMRegressor",
    },
    "ops.ml.trees": {
        "ai.onnx.ml": "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    },
    "ops.standard.deform_conv": {
        "": "DeformConv",
    },
    "ops.standard.experimental": {
        "": "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh",
    },
    "ops.standard.flex_attention": {
        "ai.onnx.preview": "FlexAttention",
    },
    "ops.standard.grid": {
        "": "AffineGrid GridSample",
    },
    "ops.standard.loss": {
        "": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    },
    "ops.standard.optimizers": {
        "ai.onnx.preview.training": "Adagrad Adam Momentum",
    },
    "ops.standard.roi": {
        "": "MaxRoiPool RoiAlign",
    },
    "ops.standard.scan": {
        "": "Scan",
    },
    "ops.standard.sequence": {
        "": (
            "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct "
            "SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence"
        ),
    },
    "ops.standard.signal": {
        "": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    },
    "ops.standard.text": {
        "": "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    },
    "ops.standard.unique": {
        "": "Compress NonZero Unique",
    },
    "training.derive.gradient_operator": {
        "ai.onnx.preview.training": "Gradient",
    },
}
MODULES = {
    (domain, name): f"pyruntime.{module}"
    for module, domains in _NAMES.items()
    for domain, names in domains.items()
    for name in names.split()
}
