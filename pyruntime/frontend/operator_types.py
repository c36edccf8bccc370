# ruff: noqa: E501
"""What the schemas of the standard and of onnxruntime say of operators' types. Written by scripts/operator_types.py;
`signatures.py` reads it.

SETS: sets of types, a letter each in the order of `dtype.ALL` (A float32, B uint8, …); s a sequence, o an optional, m a
map. OPERATORS, a line for operators that agree: domain:name of each, then = and the versions
`since:min:max:outputs:parameters:sets`. A parameter is the letter of its type variable, then ? if it is optional, * if
it repeats, + if it repeats with any types; a variable's set is the number at the letter's place. One more number at the
end is the set of the result, where an attribute chooses it.
"""

SETS = """
AJK
ABCDEFGJKLM
ABCDEFGJKLMP
AJKP
AFGJKLM
AFGJKLMP
G
I
ABCDEFGIJKLMP
ABCDEFGIJKLMNOPQRSTUVWXYZ
BDLM
BCDEFGLM
FG
ABCDEFGIJKLM
ABCDEFGHIJKLM
ABCDEFGHIJKLMP
ABCDEFGHIJKLMPQRST
ABCDEFGHIJKLMPQRSTUV
ABCDEFGHIJKLMPQRSTUVW
ABCDEFGHIJKLMPQRSTUVWX
ABCDEFGHIJKLMPQRSTUVWXYZ
ABCDEFGHIJKLMPQRSTUVWXYZab
AJP
A
ABCDEFGHIJKLMNOP
ABCDEFGHIJKLMNO
s
BC
AFGKLM
BCF
BCFQRST
BCDEFQRSTUV
BCDEFQRSTUVW
AJPX
BCDEFQRSTUVWYZ
BCDEFQRSTUVWYZab
AJKPQRST
FGI
ABCDEFGHIJKLMNOPQRSTUV
ABCDEFGHIJKLMNOPQRSTUVW
ABCDEFGHIJKLMNOPQRSTUVWX
ABCDEFGHIJKLMNOPQRSTUVWXYZ
F
ABCDEFGHIJKLMNOPs
ABCDEFGHIJKLMNOPos
ABCDEFGHIJKLMNOPQRSTos
ABCDEFGHIJKLMNOPQRSTUVos
ABCDEFGHIJKLMNOPQRSTUVWos
ABCDEFGHIJKLMNOPQRSTUVWXos
ABCDEFGHIJKLMNOPQRSTUVWXYZos
B
AK
ABCDEFGHIJKLMNOs
ABCJK
ABCJKP
ACEFGJK
ACEFGJKP
ABCDEFGHIJKLMNOPQRSTUVWXYZabs
o
ABCDEFGHIJKLMNOos
ABCDEFGHIJKLMNOPQRSTUVWXYZabos
AFGJK
AFGJKP
BCQRST
AF
AFJP
BCDEQRSTUV
BCDEQRSTUVW
AFJPX
BCDEQRSTUVWYZ
BCDEQRSTUVWYZab
AEFGK
AEFGJKP
ABCFGJKLM
ABCFGJKLMP
ABCFGIJKLMP
H
ABCDEFGHIJKLMNOPQRST
FGH
AFGIJK
AFGHK
AFGK
m
GH
AGH
AEFGHK
AFJ
AJ
BCDEFUV
BQRSTUVW
J
ABCJPQ
DE
ABJP
AFGHKLM
ABC
BQ
AJPQX
BCDEUV
"""

OPERATORS = """
:Abs = 1:1:1:1:a:0 6:1:1:1:a:1 13:1:1:1:a:2
:Acos :Asin :Atan :Cos :Sin :Tan = 7:1:1:1:a:0 22:1:1:1:a:3
:Acosh :Asinh :Atanh :Cosh :Sinh = 9:1:1:1:a:0 22:1:1:1:a:3
:Add :Div :Mul :Sub = 1:2:2:1:aa:0 6:2:2:1:aa:4 13:2:2:1:aa:5 14:2:2:1:aa:2
:Affine :Crop :ImageScaler :ParametricSoftplus :Scale :ScaledTanh com.microsoft:Inverse = 1:1:1:1:a:0
:AffineGrid = 20:2:2:1:ab:3.6
:And :Or :Xor = 1:2:2:1:aa:7
:ArgMax :ArgMin = 1:1:1:1:a:1 13:1:1:1:a:2
:Attention = 23:3:6:4:aabc?a?b?:3.3.8 24:3:7:4:aabc?a?b?d?:3.3.8.6
:AveragePool :Elu :GlobalAveragePool :GlobalLpPool :GlobalMaxPool :HardSigmoid :LpNormalization :LpPool :Selu :Softplus :Softsign = 1:1:1:1:a:0 22:1:1:1:a:3
:BatchNormalization = 1:5:5:5:aaaaa:0 14:5:5:3:aaabb:3.3 15:5:5:3:abbcc:3.3.3
:Bernoulli = 15:1:1:1:a:0:8 22:1:1:1:a:3:8
:BitCast = 26:1:1:1:a:9
:BitShift = 11:2:2:1:aa:10 28:2:2:1:aa:11
:BitwiseAnd :BitwiseOr :BitwiseXor = 18:2:2:1:aa:11
:BitwiseNot = 18:1:1:1:a:11
:BlackmanWindow :HammingWindow :HannWindow = 17:1:1:1:a:12:2
:Cast = 1:1:1:1:a:13 9:1:1:1:a:14 13:1:1:1:a:15 19:1:1:1:a:16 21:1:1:1:a:17 23:1:1:1:a:18 24:1:1:1:a:19 25:1:1:1:a:20 28:1:1:1:a:21
:CastLike = 15:2:2:1:ab:15.15 19:2:2:1:ab:16.16 21:2:2:1:ab:17.17 23:2:2:1:ab:18.18 24:2:2:1:ab:19.19 25:2:2:1:ab:20.20
:CausalConvWithState = 27:2:4:2:aaa?a?:22
:Ceil :Exp :Floor :Hardmax :LRN :Log :LogSoftmax :Reciprocal :Sigmoid :Softmax :Sqrt :Tanh = 1:1:1:1:a:0 13:1:1:1:a:3
:Celu = 12:1:1:1:a:23 28:1:1:1:a:3
:CenterCropPad = 18:2:2:1:ab:24.12
:Clip = 1:1:1:1:a:0 11:1:3:1:aa?a?:0 12:1:3:1:aa?a?:1 13:1:3:1:aa?a?:2
:Col2Im = 18:3:3:1:abc:24.6.6
:Compress = 9:2:2:1:ab:25.7 28:2:2:1:ab:24.7
:Concat = 1:1::1:a*:0 4:1::1:a*:25 13:1::1:a*:24
:ConcatFromSequence :SequenceLength = 11:1:1:1:a:26
:Constant = 1:0:0:1::
:ConstantOfShape = 9:1:1:1:a:6
:Conv :ConvTranspose = 1:2:3:1:aaa?:0 22:2:3:1:aaa?:3
:ConvInteger :MatMulInteger = 10:2:4:1:aba?b?:27.27
:CumProd = 26:2:2:1:ab:5.12
:CumSum = 11:2:2:1:ab:28.12 14:2:2:1:ab:5.12
:DFT = 17:1:2:1:ab?:3.12 20:1:3:1:ab?c?:3.12.6
:DeformConv = 19:3:5:1:aaaa?a?:0 22:3:5:1:aaaa?a?:3
:DepthToSpace :SpaceToDepth = 1:1:1:1:a:25 13:1:1:1:a:24
:DequantizeLinear = 10:2:3:1:aba?:29.23 19:2:3:1:aba?:30.22 21:2:3:1:aba?:31.22 23:2:3:1:aba?:32.22:22 24:2:3:1:aba?:32.33:22 25:2:3:1:aba?:34.33:22 28:2:3:1:aba?:35.33:22
:Det :Round = 11:1:1:1:a:0 22:1:1:1:a:3
:Dropout = 1:1:1:2:a:0 12:1:3:2:ab?c?:0.0.7 13:1:3:2:ab?c?:3.0.7 22:1:3:2:ab?c?:36.36.7
:DynamicQuantizeLinear = 11:1:1:3:a:23
:DynamicSlice = 1:3:4:1:abbb?:25.12
:Einsum = 12:1::1:a*:1 28:1::1:a*:2
:Equal = 1:2:2:1:aa:37 11:2:2:1:aa:13 13:2:2:1:aa:8 19:2:2:1:aa:15
:Erf = 9:1:1:1:a:1 13:1:1:1:a:3
:Expand = 8:2:2:1:ab:25.6 13:2:2:1:ab:24.6
:EyeLike = 9:1:1:1:a:13:13 22:1:1:1:a:8:8
:Flatten = 1:1:1:1:a:0 9:1:1:1:a:25 13:1:1:1:a:24 21:1:1:1:a:38 23:1:1:1:a:39 24:1:1:1:a:40 25:1:1:1:a:41
:GRU :RNN = 1:3:6:2:aaaa?b?a?:0.42 22:3:6:2:aaaa?b?a?:3.42
:Gather = 1:2:2:1:ab:25.12 13:2:2:1:ab:24.12
:GatherElements = 11:2:2:1:ab:25.12 13:2:2:1:ab:24.12
:GatherND = 11:2:2:1:ab:25.6 13:2:2:1:ab:24.6
:Gelu = 20:1:1:1:a:3
:Gemm = 1:3:3:1:aaa:0 9:3:3:1:aaa:4 11:2:3:1:aaa?:4 13:2:3:1:aaa?:5
:Greater :Less = 1:2:2:1:aa:0 9:2:2:1:aa:1 13:2:2:1:aa:2
:GreaterOrEqual :LessOrEqual = 12:2:2:1:aa:1 16:2:2:1:aa:2
:GridSample = 16:2:2:1:ab:25.0 22:2:2:1:ab:24.3
:GroupNormalization = 18:3:3:1:aaa:3
:HardSwish = 14:1:1:1:a:0 22:1:1:1:a:3
:Identity = 1:1:1:1:a:25 13:1:1:1:a:24 14:1:1:1:a:43 16:1:1:1:a:44 19:1:1:1:a:45 21:1:1:1:a:46 23:1:1:1:a:47 24:1:1:1:a:48 25:1:1:1:a:49
:If = 1:1:1::a:7
:ImageDecoder = 20:1:1:1:a:50
:InstanceNormalization = 1:3:3:1:aaa:0 22:3:3:1:aaa:3
:IsInf = 10:1:1:1:a:51 20:1:1:1:a:36
:IsNaN = 9:1:1:1:a:0 13:1:1:1:a:3 20:1:1:1:a:36
:LSTM = 1:3:8:3:aaaa?b?a?a?a?:0.42 22:3:8:3:aaaa?b?a?a?a?:3.42
:LayerNormalization = 17:2:3:3:aaa?:3
:LeakyRelu = 1:1:1:1:a:0 16:1:1:1:a:3
:LinearAttention = 27:3:6:2:aaab?a?a?:22.22
:Loop = 1:3:::a?b?c+:6.7.25 11:2:::a?b?c+:6.7.25 13:2:::a?b?c+:6.7.52 16:2:::a?b?c+:6.7.44 19:2:::a?b?c+:6.7.45 21:2:::a?b?c+:6.7.46 23:2:::a?b?c+:6.7.47 24:2:::a?b?c+:6.7.48 25:2:::a?b?c+:6.7.49
:MatMul = 1:2:2:1:aa:0 9:2:2:1:aa:4 13:2:2:1:aa:5
:Max :Min = 1:1::1:a*:0 12:1::1:a*:1 13:1::1:a*:2
:MaxPool = 1:1:1:1:a:0 8:1:1:2:a:0 12:1:1:2:a:53 22:1:1:2:a:54
:MaxRoiPool = 1:2:2:1:aa:0 22:2:2:1:aa:3
:MaxUnpool = 9:2:3:1:abb?:0.6 22:2:3:1:abb?:3.6
:Mean :Sum = 1:1::1:a*:0 13:1::1:a*:3
:MeanVarianceNormalization = 9:1:1:1:a:0 13:1:1:1:a:3
:MelWeightMatrix = 17:5:5:1:aaabb:12.3:2
:Mish = 18:1:1:1:a:0 22:1:1:1:a:3
:Mod = 10:2:2:1:aa:1 13:2:2:1:aa:2
:Multinomial = 7:1:1:1:a:0:12 22:1:1:1:a:3:12
:Neg = 1:1:1:1:a:0 6:1:1:1:a:55 13:1:1:1:a:56
:NegativeLogLikelihoodLoss = 12:2:3:1:aba?:0.12 22:2:3:1:aba?:3.12
:NonMaxSuppression = 10:2:5:1:abc?d?e?:23.23.6.23.23
:NonZero = 9:1:1:1:a:25 13:1:1:1:a:24
:Not = 1:1:1:1:a:7
:OneHot = 9:3:3:1:abc:1.1.25 28:3:3:1:abc:1.1.24
:Optional = 15:0:1:1:a?:52 28:0:1:1:a?:57
:OptionalGetElement = 15:1:1:1:a:58 18:1:1:1:a:59 28:1:1:1:a:60
:OptionalHasElement = 15:1:1:1:a:58 18:0:1:1:a?:59 28:0:1:1:a?:60
:PRelu = 1:2:2:1:aa:0 9:2:2:1:aa:4 16:2:2:1:aa:5
:Pad = 1:1:1:1:a:0 11:2:3:1:aba?:1.6 13:2:3:1:aba?:24.6 18:2:4:1:aba?c?:24.6.12 21:2:4:1:aba?c?:38.6.12 23:2:4:1:aba?c?:39.6.12 24:2:4:1:aba?c?:40.6.12 25:2:4:1:aba?c?:41.6.12
:Pow = 1:2:2:1:aa:0 12:2:2:1:ab:61.1 13:2:2:1:ab:62.1 15:2:2:1:ab:62.2
:QLinearConv = 10:8:9:1:abacdcefg?:27.23.27.23.23.27.42
:QLinearMatMul = 10:8:8:1:abacdcef:27.23.27.23.23.27 21:8:8:1:abacbcbd:63.22.63.63
:QuantizeLinear = 10:2:3:1:abc?:64.23.27 19:2:3:1:aab?:65.63 21:2:3:1:aab?:65.66 23:2:3:1:abc?:65.65.67 24:2:3:1:abc?:65.68.67 25:2:3:1:abc?:65.68.69 28:2:3:1:abc?:65.68.70
:RMSNormalization = 23:2:2:1:ab:3.3
:RandomNormal :RandomUniform = 1:0:0:1:::0 22:0:0:1:::3
:RandomNormalLike :RandomUniformLike = 1:1:1:1:a:25:0 22:1:1:1:a:24:3
:Range = 11:3:3:1:aaa:71 27:3:3:1:aaa:72
:ReduceL1 :ReduceL2 :ReduceMean :ReduceProd :ReduceSumSquare = 1:1:1:1:a:4 13:1:1:1:a:5 18:1:2:1:ab?:5.6
:ReduceLogSum :ReduceLogSumExp = 1:1:1:1:a:4 13:1:1:1:a:5 18:1:2:1:ab?:5.6 28:1:2:1:ab?:3.6
:ReduceMax :ReduceMin = 1:1:1:1:a:4 12:1:1:1:a:73 13:1:1:1:a:74 18:1:2:1:ab?:74.6 20:1:2:1:ab?:75.6
:ReduceSum = 1:1:1:1:a:4 13:1:2:1:ab?:5.6
:RegexFullMatch = 20:1:1:1:a:76
:Relu = 1:1:1:1:a:0 13:1:1:1:a:3 14:1:1:1:a:56
:Reshape = 1:1:1:1:a:0 5:2:2:1:ab:25.6 13:2:2:1:ab:24.6 19:2:2:1:ab:77.6 21:2:2:1:ab:38.6 23:2:2:1:ab:39.6 24:2:2:1:ab:40.6 25:2:2:1:ab:41.6
:Resize = 10:2:2:1:ab:25.23 11:3:4:1:abcd?:25.0.23.6 13:1:4:1:ab?c?d?:24.0.23.6
:ReverseSequence = 10:2:2:1:ab:25.6 28:2:2:1:ab:24.6
:RoiAlign = 10:3:3:1:aab:0.6 22:3:3:1:aab:3.6
:RotaryEmbedding = 23:3:4:1:aaab?:22.6
:STFT = 17:2:4:1:aba?b?:3.12
:Scan = 8:2:::a?b+:6.25 9:1:::a+:25 16:1:::a+:24 19:1:::a+:77 21:1:::a+:38 23:1:::a+:39 24:1:::a+:40 25:1:::a+:41
:Scatter = 9:3:3:1:aba:25.12
:ScatterElements = 11:3:3:1:aba:25.12 13:3:3:1:aba:24.12
:ScatterND = 11:3:3:1:aba:25.6 13:3:3:1:aba:24.6
:SequenceAt = 11:2:2:1:ab:26.12
:SequenceConstruct = 11:1::1:a*:25
:SequenceEmpty = 11:0:0:1:::26
:SequenceErase = 11:1:2:1:ab?:26.12
:SequenceInsert = 11:2:3:1:abc?:26.25.12
:SequenceMap = 17:1:::ab+:26.52
:Shape :Size = 1:1:1:1:a:25 13:1:1:1:a:24 19:1:1:1:a:77 21:1:1:1:a:38 23:1:1:1:a:39 24:1:1:1:a:40 25:1:1:1:a:41
:Shrink = 9:1:1:1:a:1
:Sign = 9:1:1:1:a:1 13:1:1:1:a:2
:SimplifiedLayerNormalization com.microsoft:SimplifiedLayerNormalization = 1:2:2:2:ab:3.3
:Slice = 1:1:1:1:a:25 10:3:5:1:abbb?b?:25.12 13:3:5:1:abbb?b?:24.12
:SoftmaxCrossEntropyLoss = 12:2:3:2:aba?:0.12 13:2:3:2:aba?:3.12
:Split = 1:1:2::aa?:0 2:1:1::a:25 13:1:2::ab?:24.6
:SplitToSequence = 11:1:2:1:ab?:25.12 24:1:2:1:ab?:24.12
:Squeeze = 1:1:1:1:a:25 13:1:2:1:ab?:24.6 21:1:2:1:ab?:38.6 23:1:2:1:ab?:39.6 24:1:2:1:ab?:40.6 25:1:2:1:ab?:41.6
:StringConcat = 20:2:2:1:aa:76
:StringNormalizer = 10:1:1:1:a:76
:StringSplit = 20:1:1:2:a:76
:SwiGLU = 28:2:2:1:aa:3
:Swish = 24:1:1:1:a:3
:TensorScatter = 24:2:3:1:aab?:40.6
:TfIdfVectorizer = 9:1:1:1:a:78
:ThresholdedRelu = 10:1:1:1:a:0 22:1:1:1:a:3
:Tile = 1:3:3:1:aaa:0 6:2:2:1:ab:25.6 13:2:2:1:ab:24.6
:TopK = 1:1:1:2:a:0 10:2:2:2:ab:0.6 11:2:2:2:ab:1.6 24:2:2:2:ab:2.6
:Transpose = 1:1:1:1:a:25 13:1:1:1:a:24 21:1:1:1:a:38 23:1:1:1:a:39 24:1:1:1:a:40 25:1:1:1:a:41
:Trilu = 14:1:2:1:ab?:24.6
:Unique = 11:1:1:4:a:25 28:1:1:4:a:24
:Unsqueeze = 1:1:1:1:a:25 13:2:2:1:ab:24.6 21:2:2:1:ab:38.6 23:2:2:1:ab:39.6 24:2:2:1:ab:40.6 25:2:2:1:ab:41.6
:Upsample = 1:1:1:1:a:79 7:1:1:1:a:25 9:2:2:1:ab:25.23
:Where = 9:3:3:1:abb:7.25 16:3:3:1:abb:7.24
ai.onnx.ml:ArrayFeatureExtractor = 1:2:2:1:ab:80.6
ai.onnx.ml:Binarizer ai.onnx.ml:Imputer ai.onnx.ml:LinearRegressor ai.onnx.ml:Normalizer ai.onnx.ml:SVMRegressor ai.onnx.ml:Scaler ai.onnx.ml:TreeEnsembleRegressor = 1:1:1:1:a:81
ai.onnx.ml:CastMap ai.onnx.ml:DictVectorizer = 1:1:1:1:a:82
ai.onnx.ml:CategoryMapper = 1:1:1:1:a:83
ai.onnx.ml:FeatureVectorizer = 1:1::1:a*:81
ai.onnx.ml:LabelEncoder = 1:1:1:1:a:83 2:1:1:1:a:84 4:1:1:1:a:85
ai.onnx.ml:LinearClassifier ai.onnx.ml:SVMClassifier ai.onnx.ml:TreeEnsembleClassifier = 1:1:1:2:a:81
ai.onnx.ml:OneHotEncoder = 1:1:1:1:a:80
ai.onnx.ml:TreeEnsemble = 5:1:1:1:a:0
ai.onnx.ml:ZipMap com.microsoft:DynamicTimeWarping = 1:1:1:1:a:23
ai.onnx.preview:FlexAttention = 1:3:3:1:aaa:3
ai.onnx.preview.training:Adagrad ai.onnx.preview.training:Adam ai.onnx.preview.training:Momentum = 1:3:::abc+:51.6.51
ai.onnx.preview.training:Gradient = 1:1:::a+:25
com.microsoft:Attention = 1:2:7:2:aaa?b?a?a?b?:22.42
com.microsoft:AttnLSTM = 1:3:14:3:aaaa?b?a?a?a?a?a?a?a?b?a?:51.42
com.microsoft:BeamSearch = 1:5:12:3:abb?bbc?c?d?d?b?b?b?:86.42.87.42
com.microsoft:BiasAdd = 1:3:3:1:aaa:87
com.microsoft:BiasDropout = 1:2:5:2:aaa?b?c?:3.3.7
com.microsoft:BiasGelu com.microsoft:FusedMatMul com.microsoft:TransposeMatMul = 1:2:2:1:aa:3
com.microsoft:BiasSoftmax com.microsoft:ComplexMul com.microsoft:ComplexMulConj = 1:2:2:1:aa:0
com.microsoft:BiasSplitGelu = 1:2:2:1:aa:87
com.microsoft:BifurcationDetector = 1:3:4:2:aaaa?:6
com.microsoft:BranchwiseRMSNorm com.microsoft:ScaledSiLU = 1:1:2:1:ab?:22.22
com.microsoft:CDist = 1:2:2:1:aa:51
com.microsoft:CausalConvWithState = 1:2:4:2:aaa?a?:22
com.microsoft:ConvTransposeWithDynamicPads = 1:2:4:1:aab?a?:0.6
com.microsoft:CropAndResize = 1:4:4:1:aabb:0.42
com.microsoft:DecoderMaskedMultiHeadAttention = 1:1:11:4:aa?a?b?a?a?a?b?b?b?a?:87.42
com.microsoft:DequantizeLinear = 1:2:3:1:aba?:88.87
com.microsoft:DynamicQuantizeLSTM = 1:12:12:3:abba?c?a?a?a?abab:23.27.42
com.microsoft:DynamicQuantizeMatMul = 1:3:5:1:abab?a?:23.27
com.microsoft:EmbedLayerNormalization = 1:7:9:3:aa?bbb?bba?a?:42.87
com.microsoft:EngramGate = 1:5:6:2:aaaaaa?:22
com.microsoft:ExpandDims = 1:2:2:1:ab:25.42
com.microsoft:FastGelu = 1:1:2:1:aa?:3
com.microsoft:FusedConv = 1:2:4:1:aaa?a?:0
com.microsoft:FusedGemm = 1:2:3:1:aaa?:4
com.microsoft:GatedAdd com.microsoft:GatedRMSNorm = 1:3:3:1:aaa:22
com.microsoft:GatherBlockQuantized = 1:3:4:1:abca?:89.12.22
com.microsoft:GatherND = 1:2:2:1:ab:25.12
com.microsoft:Gelu com.microsoft:QuickGelu = 1:1:1:1:a:3
com.microsoft:GemmaRotaryEmbedding = 1:5:5:2:abbbb:23.90
com.microsoft:GreedySearch = 1:2:7:1:aaa?b?a?a?a?:42.23
com.microsoft:GridSample = 1:2:2:1:aa:25
com.microsoft:GroupNorm = 1:3:3:1:abb:87.87
com.microsoft:GroupQueryAttention = 1:7:16:4:aa?a?b?b?cca?a?d?a?a?e?e?a?a?:22.91.42.6.23
com.microsoft:HyperConnectionPostMix = 1:3:4:1:aabb?:22.22
com.microsoft:HyperConnectionPreMix = 1:2:2:1:ab:22.22
com.microsoft:LinearAttention = 1:3:6:2:aaab?a?a?:22.22
com.microsoft:LinearAttentionGate = 1:3:4:2:abba?:22.23
com.microsoft:MRotaryEmbedding com.microsoft:RotaryEmbedding = 1:4:4:1:abaa:22.6
com.microsoft:MatMulBnb4 = 1:3:3:1:aba:22.50
com.microsoft:MatMulFpQ4 = 1:3:3:1:abc:23.50.6
com.microsoft:MatMulInteger16 = 1:2:2:1:ab:92.92
com.microsoft:MatMulIntegerToFloat = 1:4:7:1:abcca?b?c?:27.27.87
com.microsoft:MatMulNBits = 1:3:6:1:abac?d?a?:22.50.93.42
com.microsoft:MaxpoolWithMask = 1:2:2:1:ab:23.42
com.microsoft:MoE = 1:5:8:1:aaaa?aa?a?a?:22
com.microsoft:MultiHeadAttention = 1:1:10:4:aa?a?a?b?a?a?a?b?b?:22.42
com.microsoft:MurmurHash3 = 1:1:1:1:a:94
com.microsoft:NGramHashMapping = 1:3:7:2:aaaa?a?a?b?:12.42
com.microsoft:NGramRepeatBlock = 1:2:2:1:ab:6.23
com.microsoft:NhwcConv = 1:2:3:1:aaa?:0
com.microsoft:NhwcFusedConv = 1:2:4:1:aaa?a?:87
com.microsoft:NhwcMaxPool = 1:1:1:1:a:27
com.microsoft:Pad = 1:2:3:1:aba?:0.6
com.microsoft:QAttention = 1:5:9:2:abcccd?a?b?c?:27.27.87.42
com.microsoft:QEmbedLayerNormalization = 1:18:18:2:aa?bbb?bba?ccc?ccbbb?bb:42.27.23
com.microsoft:QGemm = 1:6:9:1:abacbcd?b?e?:27.23.27.42.27
com.microsoft:QLinearAdd com.microsoft:QLinearMul = 1:7:8:1:aba?aca?da?:27.23.23.23
com.microsoft:QLinearAveragePool com.microsoft:QLinearLeakyRelu com.microsoft:QLinearReduceMean com.microsoft:QLinearSigmoid = 1:4:5:1:aba?ca?:27.23.23
com.microsoft:QLinearConcat = 1:3::1:abc+:23.27.95
com.microsoft:QLinearConv = 1:8:9:1:abacdcefg?:27.23.27.23.23.27.42
com.microsoft:QLinearGlobalAveragePool = 1:5:5:1:abaca:27.23.23
com.microsoft:QLinearSoftmax = 1:5:5:1:aba?ca:27.23.23
com.microsoft:QLinearWhere = 1:9:9:1:abcbbcbcb:7.27.23
com.microsoft:QMoE = 1:6:21:1:aabc?a?bc?a?b?c?a?b?b?b?a?d?d?d?d?c?c?:22.96.97.23
com.microsoft:QuantizeLinear = 1:2:3:1:aab?:87.98
com.microsoft:Range = 1:2:3:1:aaa?:71
com.microsoft:RelativePositionBias = 1:3:3:1:abb:87.6
com.microsoft:SampleOp = 1:1:1:1:a:4
com.microsoft:Sampling = 1:2:9:2:aaa?b?a?a?a?a?a?:42.23
com.microsoft:SkipGroupNorm = 1:4:5:2:abbaa?:87.87
com.microsoft:SkipLayerNormalization = 1:3:5:4:aaaa?a?:22
com.microsoft:SkipSimplifiedLayerNormalization = 1:3:4:4:aaaa?:22
com.microsoft:SparseAttention = 1:9:11:3:aa?a?aabbbba?a?:22.42
com.microsoft:SparseToDenseMatMul = 1:2:2:1:ab:28.28
com.microsoft:Tokenizer = 1:1:1:1:a:76
com.microsoft:Trilu = 1:1:2:1:ab?:8.6
com.microsoft:UnfoldTensor = 1:1:1:1:a:24
com.microsoft:Unique = 1:1:1:3:a:25
com.microsoft:VarlenNGramHashMapping = 1:4:10:4:aaaba?a?a?c?b?b?:12.42.42
com.microsoft:WhisperBeamSearch = 1:5:15:5:abb?bbc?c?d?d?b?b?b?b?b?c?:86.42.87.42
com.microsoft:WordConvEmbedding = 1:4:4:1:abbb:42.23
"""
