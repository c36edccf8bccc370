"""Known bugs of peers, which are not asked about these cases, and operands that only our engine accepts."""

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

Arrived = Callable[[], Sequence[Mapping[str, Any]]]  # the values of each run by name
Rule = Callable[[Any, int, set[int], Arrived], bool]  # a node, its opset, the types of inputs and weights, the values


def _given(name: str, value: float) -> Callable[..., bool]:
    """A rule: an attribute has this value."""
    return lambda node, *_: any(onnx.helper.get_attribute_value(a) == value for a in node.attribute if a.name == name)


def _with(name: str) -> Callable[..., bool]:
    return lambda node, *_: any(a.name == name for a in node.attribute)


def _negative(name: str) -> Callable[..., bool]:
    """A rule: an attribute is, or contains, a number below 0."""
    value = onnx.helper.get_attribute_value
    return lambda node, *_: any(np.min(value(a), initial=0) < 0 for a in node.attribute if a.name == name)


def _over(name: str, limit: float) -> Callable[..., bool]:
    return lambda node, *_: any(onnx.helper.get_attribute_value(a) > limit for a in node.attribute if a.name == name)


def _votes_for_one_of_two(node: Any, *_: Any) -> bool:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    labels = attributes.get("classlabels_strings") or attributes.get("classlabels_int64s", ())
    return len(labels) == 2 and len(set(attributes.get("class_ids", ()))) == 1


def _one_label(node: Any, *_: Any) -> bool:
    return any(len(onnx.helper.get_attribute_value(a)) == 1 for a in node.attribute if a.name.startswith("classlabels"))


def _couples_classes(node: Any, *_: Any) -> bool:
    """Whether the node computes probabilities of three or more classes."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    labels = attributes.get("classlabels_strings") or attributes.get("classlabels_ints", ())
    return len(labels) > 2 and "prob_a" in attributes


def _one_row_of_mask(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether is_causal is set, and the mask has one row for all queries."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if (
        not attributes.get("is_causal")
        or len(node.input) < 4
        or any(name.endswith("window_size") for name in attributes)
    ):
        return False
    pairs = [(run.get(node.input[0]), run.get(node.input[3])) for run in arrived()]
    known = [(np.shape(q), np.shape(mask)) for q, mask in pairs if q is not None and mask is not None]
    return any(len(mask) > 1 and mask[-2] == 1 < q[-2] for q, mask in known)


def _flat_mask(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return len(node.input) > 3 and any(np.ndim(run.get(node.input[3], 0)) == 1 for run in arrived())


def _one_number_in_two_shapes(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether one of b's scale and zero point has the shape (), the other (1,)."""
    pairs = [{np.shape(run.get(name, 0)) for name in node.input[4:6]} for run in arrived()]
    return {(), (1,)} in pairs


def _not_of_rank(rank: int) -> Rule:
    return lambda node, opset, types, arrived: any(np.ndim(run.get(node.input[0], 0)) != rank for run in arrived())


def _fractions(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether the first input contains a float that is not whole."""
    first = [run.get(node.input[0]) for run in arrived()]
    floats = [widen(x) for x in first if isinstance(x, np.ndarray) and is_float(x.dtype)]
    return any((x != np.trunc(x)).any() for x in floats)


def _same_and_dilated(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return attributes.get("auto_pad", b"").startswith(b"SAME") and any(d != 1 for d in attributes.get("dilations", ()))


def _aspect_from_the_end(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return (
        attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
        and min(attributes.get("axes", ()), default=0) < 0
    )


def _empty(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return any(isinstance(x, np.ndarray) and not x.size for run in arrived() for x in (run.get(n) for n in node.input))


def _words_of_nothing(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether the first input has rows that begin without a letter."""
    first = [run.get(node.input[0]) for run in arrived()]
    return any((x[..., :1] <= 0).any() for x in first if isinstance(x, np.ndarray))


def _halves(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    return bool(types & HALVES)


def _beyond_a_byte(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a probability may be 256 or more steps of the codes."""
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


def _nan(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    first = [run.get(node.input[0]) for run in arrived()]
    return any(np.isnan(widen(x)).any() for x in first if isinstance(x, np.ndarray) and is_float(x.dtype))


def _far_apart(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether the exponential of a difference within the first input may be 0 in float16."""
    first = [run.get(node.input[0]) for run in arrived()]
    first = [widen(x) for x in first if isinstance(x, np.ndarray) and is_float(x.dtype)]
    finite = [x[np.isfinite(x)] for x in first]
    return any(x.size and np.ptp(x) > 16 for x in finite)


def _integers_sum_to(limit: int) -> Rule:
    """A rule: the sum of the integers in the first input may reach the limit."""

    def holds(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
        first = [run.get(node.input[0]) for run in arrived()]
        whole = [x for x in first if isinstance(x, np.ndarray) and is_int(x.dtype)]
        return any(float(np.abs(x.astype(np.float64)).sum()) >= limit for x in whole)

    return holds


def _beyond_float32(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a quarter of an integer in the first input is not exact in float32."""
    first = [run.get(node.input[0]) for run in arrived()]
    whole = [widen(x) for x in first if isinstance(x, np.ndarray) and is_int(x.dtype) and x.size]
    return any(int(x.max()) > 2**22 or int(x.min()) < -(2**22) for x in whole)


def _squares_leave_their_type(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    first = [run.get(node.input[0]) for run in arrived()]
    whole = [x for x in first if isinstance(x, np.ndarray) and is_int(x.dtype)]
    squares = [((x.astype(np.float64) ** 2).sum(-1), x.itemsize) for x in whole if x.ndim]
    return any(found.max(initial=0) >= 2.0 ** (8 * size - 1) for found, size in squares)


def _beyond_doubles(node: Any, opset: int, types: set[int], arrived: Arrived) -> bool:
    """Whether a·b + c of integers may not be exact in float64."""
    for run in arrived():
        found = [x for name in node.input if isinstance(x := run.get(name), np.ndarray) and is_int(x.dtype)]
        a, b, *c = [*(max(int(x.max(initial=0)), -int(x.min(initial=0))) for x in found), 0, 0]
        if a * b * max((d for x in found for d in x.shape), default=1) + sum(c) > 2**53:
            return True
    return False


# Operator -> its bug.
FAULTS = {
    "reference": {
        "ai.onnx.ml.LinearRegressor": "returns its input's type",
        "ai.onnx.ml.SVMRegressor": "returns its input's type",
        "Loop": "adds an axis to stacked scalars",
        "Erf": "has eight correct digits only",
        "Gelu": "uses its Erf",
        "OneHot": "reads a depth of 0.3 as 1",
        "LRN": "divides alpha by the size in float32, and fills as many channels as the batch has items",
        "STFT": "reads a signal of rank 2 as windows",
        "ai.onnx.preview.training.Adam": "returns float64 for scalars",
        "GridSample": "interpolates integers in their own type",
        "StringNormalizer": "removes accents",
    },
}
# The same for the nodes that a rule describes: operator, rule, bug.
PARTLY: dict[str, list[tuple[str, Rule, str]]] = {
    "onnxruntime": [
        (
            "com.microsoft.GroupQueryAttention",
            lambda node, *_: len(node.output) < 3,
            "reads uninitialised memory without the outputs for the cache",
        ),
        (
            "com.microsoft.GroupQueryAttention",
            lambda node, *_: len(node.output) > 3 and not _over("qk_output", 0)(node),
            "does not write the output for scores unless qk_output asks for it",
        ),
        ("TfIdfVectorizer", _over("max_skip_count", 2**31), "adds 1 to the number, which overflows"),
        (
            "Dropout",
            lambda node, opset, *_: len(node.output) > 1 and opset < 10,
            "returns a mask of zeros if all elements stay",
        ),
        ("MaxUnpool", lambda node, *_: len(node.input) > 2, "interprets indices by output_shape"),
        ("com.microsoft.MoE", _halves, "is far from its own float32 result"),
        *[
            (op, _empty, "does not write its output")
            for op in ("com.microsoft.MatMulIntegerToFloat", "com.microsoft.QAttention", "com.microsoft.QGemm")
        ],
        *[
            ("com.microsoft.WordConvEmbedding", rule, "does not write its output")
            for rule in (_empty, _words_of_nothing)
        ],
        ("com.microsoft.QAttention", _given("do_rotary", 1), "does not rotate"),
        ("ai.onnx.ml.TreeEnsembleRegressor", _with("base_values"), "ignores them if no tree has a result"),
        ("Resize", _aspect_from_the_end, "keeps the aspect ratio of non-negative axes only"),
        ("ai.onnx.ml.TreeEnsembleClassifier", _one_label, "returns 1 for the only label, and raw scores"),
        *[(op, _nan, "NaN equals itself or not, by its position") for op in ("Unique", "com.microsoft.Unique")],
        ("com.microsoft.Tokenizer", _empty, "loses an axis"),
        ("com.microsoft.QLinearSoftmax", _beyond_a_byte, "returns 0 for 256"),
        ("com.microsoft.MatMulNBits", _given("accuracy_level", 4), "quantises activations to 8 bits"),
        *[(op, _same_and_dilated, "pads for windows without dilations") for op in ("AveragePool", "LpPool", "MaxPool")],
        *[(op, _nan, "drops NaN or not, by its position") for op in ("ReduceMax", "ReduceMin", "Hardmax")],
        ("ReduceMean", _integers_sum_to(2**53), "adds them up as float64"),
        ("ai.onnx.ml.Normalizer", _squares_leave_their_type, "squares integers in their own type"),
        ("OneHot", _fractions, 'ignores the index 1.5, which the standard casts to 1: "casted to int64 before use"'),
    ],
    "reference": [
        ("Attention", _negative("scale"), "takes the root of the scale"),
        ("Attention", _one_row_of_mask, "applies the causal mask of the first query to all, if the mask has one row"),
        *[(op, _strings, "fills strings with the number 0") for op in ("Trilu", "CenterCropPad")],
        ("ReduceMean", _integers_sum_to(2**31), "adds them up in their type, or as float64"),
        ("Gemm", _beyond_doubles, "computes integers in float64"),
        ("Gemm", lambda node, opset, *_: opset < 7 and not _given("broadcast", 1)(node), "ignores beta"),
        ("Resize", _beyond_float32, "computes integers in float64, even those that it copies"),
        ("AveragePool", lambda node, opset, *_: opset < 7, "counts padding"),
        *[(op, _same_and_dilated, "pads for windows without dilations") for op in ("AveragePool", "LpPool")],
        ("QLinearMatMul", lambda node, _, types, *more: bool(types & FLOAT8), "reads float8 as integers"),
        (
            "DequantizeLinear",
            lambda node, _, types, *more: len(node.input) > 2 and bool(types & FLOAT8),
            "reads float8 zero points as integers",
        ),
        ("MaxPool", _given("storage_order", 1), "ignores it"),
        ("MaxPool", _given("ceil_mode", 1), "pads twice"),
        ("ai.onnx.ml.Normalizer", _integers_sum_to(0), "returns float64 for integers"),
        ("Attention", _with("softcap"), "returns capped scores instead of raw ones"),
        ("Unique", _with("axis"), "puts the axis first if unsorted"),
        ("ai.onnx.ml.SVMClassifier", _not_of_rank(2), "treats each number of a row as a row"),
        (
            "ai.onnx.ml.SVMClassifier",
            lambda node, _, types, *more: bool(types & INTEGERS),
            "returns scores of integers as integers",
        ),
        ("ai.onnx.ml.TreeEnsembleClassifier", _negative("class_weights"), "counts 0 for classes without votes"),
        ("ai.onnx.ml.TreeEnsembleClassifier", _votes_for_one_of_two, "does not decide by the only score"),
        *[
            (
                "ai.onnx.ml.TreeEnsembleRegressor",
                _given("aggregate_function", way),
                "gives an extreme where no tree has a result",
            )
            for way in (b"MIN", b"MAX")
        ],
        ("ai.onnx.ml.SVMClassifier", _couples_classes, "computes other probabilities of three or more classes"),
        ("MaxPool", _empty, "returns the input's shape"),
        (
            "MaxPool",
            lambda node, _, types, *more: onnx.TensorProto.BFLOAT16 in types,
            "returns wrong indices of bfloat16",
        ),
        ("Compress", _empty, "counts conditions beyond the end"),
        ("GlobalMaxPool", _not_of_rank(4), "counts spatial axes as if there were two"),
        *[(op, _with("clip"), "ignores it") for op in ("LSTM", "GRU", "RNN")],
        (
            "ai.onnx.ml.LinearClassifier",
            lambda node, *_: all(a.name != "intercepts" for a in node.attribute),
            "needs intercepts",
        ),
        ("LpNormalization", _given("p", 1), "keeps signs"),
        ("LogSoftmax", _far_apart, "takes the logarithm of a probability that is 0 in its type"),
        ("NegativeLogLikelihoodLoss", lambda node, _, types, *more: bool(types & HALVES), "sums halves as such"),
        ("SoftmaxCrossEntropyLoss", lambda node, _, types, *more: bool(types & HALVES), "sums halves as such"),
        ("Dropout", lambda node, opset, *_: len(node.output) > 1 and opset < 10, "has a mask of bools"),
        (
            "Hardmax",
            lambda node, opset, *_: opset < 13,
            "reduces one axis, where older opsets flatten all axes from there on",
        ),
        *[
            (
                op,
                lambda node, _, types, *more: len(node.output) > 1 and bool(types & UNLIKE_FLOAT),
                "returns the mean in the input's type",
            )
            for op in ("LayerNormalization", "BatchNormalization")
        ],
    ],
}

# Operands that our engine accepts and peers refuse, with the only plausible meaning.
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
# The same for the nodes that a rule describes: operator, rule, bug.
MORE_PARTLY: list[tuple[str, Rule, str]] = [
    ("Attention", _one_row_of_mask, "a mask of one row for all queries, as it broadcasts"),
    ("Attention", _flat_mask, "a mask of one dim, as it broadcasts"),
    (
        "com.microsoft.QGemm",
        _one_number_in_two_shapes,
        "a scale of shape () beside a zero point of (1,), as for a and y",
    ),
]

# Operators that may read only a part of their inputs.
READ_PARTS = operators(
    """Slice Split SplitToSequence Gather GatherElements GatherND Scatter ScatterElements ScatterND Compress Pad
    CenterCropPad Resize Upsample Shape Size Where""",
    "GatherBlockQuantized GatherND Pad",
)


def is_unread(model: onnx.ModelProto, node_name: str) -> bool:
    """Whether a part of a node's result may be unused: elements that no output needs are not computed, and their
    indices not checked."""
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
    """Whether no known bug of the peer concerns the model."""
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
