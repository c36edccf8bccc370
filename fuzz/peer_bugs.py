"""What peers are known to get wrong: they are not asked about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from fuzz.compare import widen
from fuzz.draw import is_float, is_int
from fuzz.node import full_name, nodes, operators

NARROW = {onnx.TensorProto.DataType.Value(f"{kind}{bits}") for kind in ("INT", "UINT") for bits in (8, 16, 32)}
FLOAT8 = {code for name, code in onnx.TensorProto.DataType.items() if name.startswith("FLOAT8")}
INTEGERS = NARROW | {onnx.TensorProto.INT64, onnx.TensorProto.UINT64}
HALVES = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
UNLIKE_FLOAT = {*HALVES, onnx.TensorProto.DOUBLE}

Arrived = Callable[[], Sequence[Mapping[str, Any]]]  # the values of all runs by name
Rule = Callable[[Any, int, set[int], Arrived], bool]  # of a node, its opset, types that are fed, and what arrives


def _given(name: str, value: float) -> Callable[..., bool]:
    """Whether a node has this attribute."""
    return lambda node, *_: any(onnx.helper.get_attribute_value(a) == value for a in node.attribute if a.name == name)


def _with(name: str) -> Callable[..., bool]:
    return lambda node, *_: any(a.name == name for a in node.attribute)


def _negative(name: str) -> Callable[..., bool]:
    """Whether an attribute is, or has a number, below 0."""
    given = onnx.helper.get_attribute_value
    return lambda node, *_: any(np.min(given(a), initial=0) < 0 for a in node.attribute if a.name == name)


def _over(name: str, limit: float) -> Callable[..., bool]:
    return lambda node, *_: any(onnx.helper.get_attribute_value(a) > limit for a in node.attribute if a.name == name)


def _votes_for_one_of_two(node: Any, *_: Any) -> bool:
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    labels = given.get("classlabels_strings") or given.get("classlabels_int64s", ())
    return len(labels) == 2 and len(set(given.get("class_ids", ()))) == 1


def _one_label(node: Any, *_: Any) -> bool:
    return any(len(onnx.helper.get_attribute_value(a)) == 1 for a in node.attribute if a.name.startswith("classlabels"))


def _couples_classes(node: Any, *_: Any) -> bool:
    """Whether probabilities of three classes and more are asked for."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    labels = given.get("classlabels_strings") or given.get("classlabels_ints", ())
    return len(labels) > 2 and "prob_a" in given


def _one_row_of_mask(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a mask that is the same for all queries meets is_causal."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if not given.get("is_causal") or len(node.input) < 4 or any(name.endswith("window_size") for name in given):
        return False
    pairs = [(run.get(node.input[0]), run.get(node.input[3])) for run in arrived()]
    known = [(np.shape(q), np.shape(mask)) for q, mask in pairs if q is not None and mask is not None]
    return any(len(mask) > 1 and mask[-2] == 1 < q[-2] for q, mask in known)


def _flat_mask(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return len(node.input) > 3 and any(np.ndim(run.get(node.input[3], 0)) == 1 for run in arrived())


def _one_number_in_two_shapes(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether b's scale is () and its zero point (1,), or the other way round."""
    pairs = [{np.shape(run.get(name, 0)) for name in node.input[4:6]} for run in arrived()]
    return {(), (1,)} in pairs


def _not_of_rank(rank: int) -> Rule:
    return lambda node, opset, types, arrived: any(np.ndim(run.get(node.input[0], 0)) != rank for run in arrived())


def _fractions(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a float that is no whole number arrives first."""
    first = [run.get(node.input[0]) for run in arrived()]
    floats = [widen(x) for x in first if isinstance(x, np.ndarray) and is_float(x.dtype)]
    return any((x != np.trunc(x)).any() for x in floats)


def _same_and_dilated(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return given.get("auto_pad", b"").startswith(b"SAME") and any(d != 1 for d in given.get("dilations", ()))


def _aspect_from_the_end(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch" and min(given.get("axes", ()), default=0) < 0


def _empty(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return any(isinstance(x, np.ndarray) and not x.size for run in arrived() for x in (run.get(n) for n in node.input))


def _words_of_nothing(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether rows arrive first that begin with no letter."""
    first = [run.get(node.input[0]) for run in arrived()]
    return any((x[..., :1] <= 0).any() for x in first if isinstance(x, np.ndarray))


def _halves(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return bool(types & HALVES)


def _beyond_a_byte(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a probability is 256 or more of what one step of the codes is, to their digits."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    for run in arrived():
        x, scale, step = (run.get(node.input[n]) for n in (0, 1, 3))
        if x is None or scale is None or step is None or not x.size or not -x.ndim <= axis < x.ndim:
            continue
        power = np.exp(widen(scale) * (widen(x) - x.max(axis, keepdims=True).astype(np.float64)))
        if (power.max(axis) > 253 * widen(step) * power.sum(axis)).any():
            return True
    return False


def _strings(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return onnx.TensorProto.STRING in types


def _halves_as_text(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return onnx.TensorProto.STRING in types and bool(types & HALVES)


def _nan(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    first = [run.get(node.input[0]) for run in arrived()]
    return any(np.isnan(widen(x)).any() for x in first if isinstance(x, np.ndarray) and is_float(x.dtype))


def _far_apart(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether e to the power of a difference of what arrives first may be 0, as float16."""
    first = [run.get(node.input[0]) for run in arrived()]
    first = [widen(x) for x in first if isinstance(x, np.ndarray) and is_float(x.dtype)]
    finite = [x[np.isfinite(x)] for x in first]
    return any(x.size and np.ptp(x) > 16 for x in finite)


def _integers_sum_to(limit: int) -> Rule:
    """Whether integers arrive first whose sum may reach the limit."""

    def holds(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
        first = [run.get(node.input[0]) for run in arrived()]
        whole = [x for x in first if isinstance(x, np.ndarray) and is_int(x.dtype)]
        return any(float(np.abs(x.astype(np.float64)).sum()) >= limit for x in whole)

    return holds


def _beyond_float32(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether an integer arrives first of which a quarter is lost in a float32."""
    first = [run.get(node.input[0]) for run in arrived()]
    whole = [widen(x) for x in first if isinstance(x, np.ndarray) and is_int(x.dtype) and x.size]
    return any(int(x.max()) > 2**22 or int(x.min()) < -(2**22) for x in whole)


def _squares_leave_their_type(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    first = [run.get(node.input[0]) for run in arrived()]
    whole = [x for x in first if isinstance(x, np.ndarray) and is_int(x.dtype)]
    squares = [((x.astype(np.float64) ** 2).sum(-1), x.itemsize) for x in whole if x.ndim]
    return any(found.max(initial=0) >= 2.0 ** (8 * size - 1) for found, size in squares)


def _beyond_doubles(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a·b + c of integers may be none that a float64 holds."""
    for run in arrived():
        found = [x for name in node.input if isinstance(x := run.get(name), np.ndarray) and is_int(x.dtype)]
        a, b, *c = [*(max(int(x.max(initial=0)), -int(x.min(initial=0))) for x in found), 0, 0]
        if a * b * max((d for x in found for d in x.shape), default=1) + sum(c) > 2**53:
            return True
    return False


# Operators, and how.
FAULTS = {
    "reference": {
        "ai.onnx.ml.LinearRegressor": "gives its input's type",
        "ai.onnx.ml.SVMRegressor": "gives its input's type",
        "Loop": "stacked outputs of scalars have an axis more",
        "Erf": "has eight digits",
        "Gelu": "has its Erf",
        "OneHot": "takes a depth of 0.3 for 1",
        "LRN": "divides alpha by the size in float32, and fills as many channels as there are items",
        "STFT": "takes a signal of rank 2 for windows",
        "ai.onnx.preview.training.Adam": "gives doubles for scalars",
        "GridSample": "interpolates integers in their own type",
        "StringNormalizer": "takes accents away",
    },
}
# The same, of some nodes only.
PARTLY: dict[str, list[tuple[str, Rule, str]]] = {
    "onnxruntime": [
        (
            "com.microsoft.GroupQueryAttention",
            lambda node, *_: len(node.output) < 3,
            "reads what it never wrote if no present is wanted",
        ),
        (
            "com.microsoft.GroupQueryAttention",
            lambda node, *_: len(node.output) > 3 and not _over("qk_output", 0)(node),
            "leaves what was there in scores that are not to be put out",
        ),
        ("TfIdfVectorizer", _over("max_skip_count", 2**31), "adds 1 to the number, which wraps"),
        ("Dropout", lambda node, opset, *_: len(node.output) > 1 and opset < 10, "has a mask of zeros where all stays"),
        ("com.microsoft.MultiHeadAttention", _given("unidirectional", 1), "lets the last query see all keys"),
        ("MaxUnpool", lambda node, *_: len(node.input) > 2, "takes indices for those of output_shape"),
        ("com.microsoft.MoE", _halves, "is far from what it gives in float32"),
        *[
            (op, _empty, "leaves what was there")
            for op in ("com.microsoft.MatMulIntegerToFloat", "com.microsoft.QAttention", "com.microsoft.QGemm")
        ],
        *[("com.microsoft.WordConvEmbedding", rule, "leaves what was there") for rule in (_empty, _words_of_nothing)],
        ("com.microsoft.QAttention", _given("do_rotary", 1), "does not rotate"),
        ("ai.onnx.ml.TreeEnsembleRegressor", _with("base_values"), "leaves them out where no tree has a result"),
        ("Resize", _aspect_from_the_end, "keeps the aspect ratio of axes that count from the front only"),
        ("ai.onnx.ml.TreeEnsembleClassifier", _one_label, "gives 1 for the only label, and raw scores"),
        *[(op, _nan, "tells NaN from itself, or not, by its place") for op in ("Unique", "com.microsoft.Unique")],
        ("com.microsoft.Tokenizer", _empty, "loses an axis"),
        ("com.microsoft.QLinearSoftmax", _beyond_a_byte, "gives 0 for 256"),
        ("com.microsoft.MatMulNBits", _given("accuracy_level", 4), "rounds what it multiplies to 8 bits"),
        *[(op, _same_and_dilated, "pads for windows without dilations") for op in ("AveragePool", "LpPool", "MaxPool")],
        *[(op, _nan, "drops NaN or not, by its place") for op in ("ReduceMax", "ReduceMin", "Hardmax")],
        ("ReduceMean", _integers_sum_to(2**53), "adds them up as float64"),
        ("ai.onnx.ml.Normalizer", _squares_leave_their_type, "squares integers in their own type"),
        ("CastLike", _halves_as_text, "writes halves with the digits of floats"),
        ("OneHot", _fractions, 'has no place for 1.5, which counts as 1: "casted to int64 before use"'),
    ],
    "reference": [
        ("Attention", _negative("scale"), "takes its root"),
        ("Attention", _one_row_of_mask, "lets all queries see what the first may, where a mask has one row for all"),
        *[(op, _strings, "fills strings with the number 0") for op in ("Trilu", "CenterCropPad")],
        ("ReduceMean", _integers_sum_to(2**31), "adds them up in their type, or as float64"),
        ("Gemm", _beyond_doubles, "multiplies integers by 1.0"),
        ("Gemm", lambda node, opset, *_: opset < 7 and not _given("broadcast", 1)(node), "forgets beta"),
        ("Resize", _beyond_float32, "interpolates integers as float64, and so what it takes as it is"),
        ("AveragePool", lambda node, opset, *_: opset < 7, "counts padding"),
        *[(op, _same_and_dilated, "pads for windows without dilations") for op in ("AveragePool", "LpPool")],
        ("QLinearMatMul", lambda node, _, types, *more: bool(types & FLOAT8), "takes float8 for whole numbers"),
        (
            "DequantizeLinear",
            lambda node, _, types, *more: len(node.input) > 2 and bool(types & FLOAT8),
            "takes zero points of float8 for whole numbers",
        ),
        ("MaxPool", _given("storage_order", 1), "does not know it"),
        ("MaxPool", _given("ceil_mode", 1), "pads twice"),
        ("ai.onnx.ml.Normalizer", _integers_sum_to(0), "gives doubles for integers"),
        ("Attention", _with("softcap"), "gives scores that are capped where the raw ones are asked for"),
        ("Unique", _with("axis"), "puts the axis first if unsorted"),
        ("ai.onnx.ml.SVMClassifier", _not_of_rank(2), "takes each number of a row for a row"),
        (
            "ai.onnx.ml.SVMClassifier",
            lambda node, _, types, *more: bool(types & INTEGERS),
            "gives scores of integers as integers",
        ),
        ("ai.onnx.ml.TreeEnsembleClassifier", _negative("class_weights"), "counts 0 for classes without votes"),
        ("ai.onnx.ml.TreeEnsembleClassifier", _votes_for_one_of_two, "does not decide by the one score there is"),
        *[
            (
                "ai.onnx.ml.TreeEnsembleRegressor",
                _given("aggregate_function", way),
                "gives an extreme where no tree has a result",
            )
            for way in (b"MIN", b"MAX")
        ],
        ("ai.onnx.ml.SVMClassifier", _couples_classes, "has other probabilities of three classes and more"),
        ("MaxPool", _empty, "takes the input's shape for the output's"),
        ("MaxPool", lambda node, _, types, *more: onnx.TensorProto.BFLOAT16 in types, "misses bfloat16's places"),
        ("Compress", _empty, "counts conditions beyond the end"),
        ("GlobalMaxPool", _not_of_rank(4), "counts spatial axes as if there were two"),
        *[(op, _with("clip"), "does not know it") for op in ("LSTM", "GRU", "RNN")],
        (
            "ai.onnx.ml.LinearClassifier",
            lambda node, *_: all(a.name != "intercepts" for a in node.attribute),
            "needs intercepts",
        ),
        ("LpNormalization", _given("p", 1), "keeps signs"),
        ("LogSoftmax", _far_apart, "takes the logarithm of a probability that became 0"),
        ("NegativeLogLikelihoodLoss", lambda node, _, types, *more: bool(types & HALVES), "sums halves as such"),
        ("SoftmaxCrossEntropyLoss", lambda node, _, types, *more: bool(types & HALVES), "sums halves as such"),
        ("Dropout", lambda node, opset, *_: len(node.output) > 1 and opset < 10, "has a mask of bools"),
        ("Hardmax", lambda node, opset, *_: opset < 13, "knows one axis where older ones take all from there on"),
        *[
            (
                op,
                lambda node, _, types, *more: len(node.output) > 1 and bool(types & UNLIKE_FLOAT),
                "gives the mean in the input's type",
            )
            for op in ("LayerNormalization", "BatchNormalization")
        ],
    ],
}

# What we take and peers do not, with the meaning that suggests itself.
CODED = "Add AveragePool Concat GlobalAveragePool LeakyRelu Mul Sigmoid Softmax Where".split()
MORE = {
    **{f"com.microsoft.QLinear{name}": "scales of shape (1,)" for name in CODED},
    "SwiGLU": "operands broadcast",
    "com.microsoft.DecoderMaskedMultiHeadAttention": "values of another length than keys",
    "com.microsoft.GatherBlockQuantized": "scales that broadcast",
    "LRN": "any rank",
    "OneHot": "a depth of shape (1,)",
    "Dropout": "numbers of shape (1,)",
    "Loop": "a condition of shape (1,)",
    "Compress": "conditions beyond the end, without a meaning; onnxruntime takes them, too",
    "com.microsoft.DynamicQuantizeMatMul": "a stack of weights, of one scale",
    "com.microsoft.NGramHashMapping": "an end of shape (1,)",
    "com.microsoft.VarlenNGramHashMapping": "an end of shape (1,)",
    "Einsum": "axes of 1 that have a letter broadcast",
    "com.microsoft.MatMulNBits": "weights in any shape of their size",
    "Scan": "states that grow from step to step",
    "Squeeze": "one axis as a scalar",
    "TopK": "k as a scalar",
}
# The same, of some nodes only.
MORE_PARTLY: list[tuple[str, Rule, str]] = [
    ("Attention", _one_row_of_mask, "a mask of one row for all queries, as it broadcasts"),
    ("Attention", _flat_mask, "a mask of one dim, as it broadcasts"),
    (
        "com.microsoft.QGemm",
        _one_number_in_two_shapes,
        "a scale of shape () beside a zero point of (1,), as for a and y",
    ),
]

# Operators that may read a part of what they are given.
READ_PARTS = operators(
    """Slice Split SplitToSequence Gather GatherElements GatherND Scatter ScatterElements ScatterND Compress Pad
    CenterCropPad Resize Upsample Shape Size Where""",
    "GatherBlockQuantized GatherND Pad",
)


def is_unread(model: onnx.ModelProto, node_name: str) -> bool:
    """Whether a part of what a node gives may be left out: what no output reads need not be computed, nor its indices
    checked."""
    reached: set[str] = set()
    for node in nodes(model.graph):
        if node_name in (node.name, *node.output):
            reached |= {*node.output}
        elif reached & {*node.input}:
            if full_name(node) in READ_PARTS:
                return True
            reached |= {*node.output}
    return False


def accepts_more(model: onnx.ModelProto, arrived: Arrived) -> bool:
    return any(full_name(node) in MORE for node in nodes(model.graph)) or _any_of(MORE_PARTLY, model, arrived)


def is_trusted(peer: str, model: onnx.ModelProto, arrived: Arrived) -> bool:
    """Whether a peer is right about operators like these."""
    known = FAULTS.get(peer, {})
    return not (any(full_name(node) in known for node in nodes(model.graph)) or _any_of(PARTLY[peer], model, arrived))


def _any_of(rules: Sequence[tuple[str, Rule, str]], model: onnx.ModelProto, arrived: Arrived) -> bool:
    opset = next((o.version for o in model.opset_import if not o.domain), 1)
    types = {v.type.tensor_type.elem_type for v in model.graph.input} | {w.data_type for w in model.graph.initializer}
    return any(
        full_name(node) == op and holds(node, opset, types, arrived)
        for node in nodes(model.graph)
        for op, holds, _ in rules
    )
