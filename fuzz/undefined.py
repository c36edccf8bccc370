"""Where the standard leaves results open: a short table, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx

from fuzz.compare import Tolerance, epsilon
from fuzz.draw import FLOATS, is_float

# Only types and shapes of models with these nodes are compared.
RANDOM = "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli".split()
REASONS = dict.fromkeys(RANDOM, "results are random")
# With larger numbers than these among the floats that are fed or weights, the same.
EXTREMES = [
    (("GridSample", "RoiAlign", "DeformConv", "Resize", "AffineGrid"), 1e4, "coordinates become integers"),
    (("Attention",), 1e4, "a softmax of infinities, or of sums that overflow"),
    (("AveragePool",), 1e38, "the reference takes NaN for padding"),
    (("Conv", "MatMul", "Gemm", "Einsum"), 1e18, "sums that overflow depend on their order, Winograd's on more"),
    (("MaxPool", "MaxRoiPool"), 3.4e38, "peers drop NaN or not, by its place in the window"),
    (("QuantizeLinear", "DynamicQuantize"), 1e30, "a scale that overflows, or NaN as an integer"),
]
SIZES = "sizes of what no iteration stacks"  # for this not even shapes are compared
MAKE_NAN = {"Pow", "Sqrt", "Log", "Div", "Reciprocal"}
# Peers compute these by polynomials whose error is absolute, some units of the last place of 1.
APPROXIMATE = {"RNN", "LSTM", "GRU"}
# Operators that a peer gets wrong, and how.
BUGS = {
    "reference": {
        "Loop": "stacked outputs of scalars have an axis more",
        "Erf": "has eight digits",
        "QLinearMatMul": "takes float8 for whole numbers",
        "OneHot": "takes a depth of 0.3 for 1",
        "Trilu": "fills strings with the number 0",
        "LRN": "divides alpha by the size in float32, and fills as many channels as there are items",
        "GridSample": "interpolates integers in their own type",
    },
}
# The same, of some nodes only.
PARTLY: dict[str, list[tuple[str, Callable[[Any], bool], str]]] = {
    "onnxruntime": [
        ("GroupQueryAttention", lambda node: len(node.output) < 3, "reads what it never wrote if no present is wanted"),
        (
            "MatMulNBits",
            lambda node: any(a.name == "accuracy_level" and a.i == 4 for a in node.attribute),
            "rounds what it multiplies to 8 bits",
        ),
    ],
    "reference": [
        ("Attention", lambda node: any(a.name == "scale" and a.f == 0 for a in node.attribute), "0 is the default"),
        *[
            (op, lambda node: len(node.output) > 1, "gives the mean in the input's type")
            for op in ("LayerNormalization", "BatchNormalization")
        ],
    ],
}
# Inner roundings to integers: runtimes differ by a unit where a product falls on a tie.
QUANTISED = ("Quantize", "QLinear", "QGemm", "QAttention", "NBits", "Integer", "BlockQuantized")


def nodes(graph: Any) -> Iterable[Any]:
    """Of a graph and of those inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from nodes(inner)


def reason(model: onnx.ModelProto, runs: list[Any]) -> str:
    """Why the values of this model's outputs cannot be compared; empty if they can."""
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in model.graph.initializer}
    for node in nodes(model.graph):
        if node.op_type in REASONS:
            return REASONS[node.op_type]
        if node.op_type == "Dropout" and len(node.input) > 2:
            return "results are random"
        if node.op_type == "Cast" and _leaves(node, runs):
            return "floats that an integer type does not hold"
        if node.op_type == "Pow" and any(node.input[1] in other.output for other in model.graph.node):
            return "a negative number to a computed power: a number, or not, by the last bit"
        if node.op_type == "Scan" and any(getattr(x, "size", 1) == 0 for feeds in runs for x in feeds.values()):
            return SIZES
        if node.op_type == "Loop":
            if any(other.op_type == "Not" for other in model.graph.node) or _any_zero(runs, "bool", "int64"):
                return SIZES
        if any(word in node.op_type for word in ("DynamicQuantize", "GridSample")):
            if any(other.op_type in MAKE_NAN for other in model.graph.node):
                return "a scale, or a coordinate, that is NaN"
        if "DynamicQuantize" in node.op_type and any(
            getattr(x, "size", 1) == 0 for feeds in runs for x in feeds.values()
        ):
            return "a scale for no range: 1 or 1 / 255"
        if node.op_type == "QuantizeLinear" and not all(np.all(fed.get(node.input[1], 1)) for fed in (*runs, weights)):
            return "a scale of 0"
        if node.op_type in ("Cast", "CastLike") and _e8m0_unsaturated(node, runs):
            return "float8e8m0 without saturation: said of rounding to the nearest alone"
        if node.op_type in APPROXIMATE and _any_zero(runs, "int32"):
            return "the state after no step"
        for words, limit, why in EXTREMES:
            if any(word in node.op_type for word in words) and _largest([*runs, weights]) > limit:
                return why
    return ""


def _leaves(node: Any, runs: list[Any]) -> bool:
    """Whether floats are fed that the integer type of a Cast does not hold: the standard says undefined."""
    to = next((a.i for a in node.attribute if a.name == "to"), 0)
    name = onnx.TensorProto.DataType.Name(to) if to in onnx.TensorProto.DataType.values() else ""
    if not name.startswith(("INT", "UINT")):
        return False
    bits = int(name.partition("INT")[2]) - name.startswith("I")
    negative = any(is_float(x.dtype) and (x < 0).any() for feeds in runs for x in feeds.values() if hasattr(x, "dtype"))
    return _largest(runs) >= 2**bits or negative and name.startswith("U")


def _e8m0_unsaturated(node: Any, runs: list[Any]) -> bool:
    given = {a.name: a.i for a in node.attribute}
    types = {str(x.dtype) for feeds in runs for x in feeds.values() if isinstance(x, np.ndarray)}
    target = given.get("to") == onnx.TensorProto.FLOAT8E8M0 or "float8_e8m0fnu" in types
    return not given.get("saturate", 1) and target


def _any_zero(runs: list[Any], *types: str) -> bool:
    fed = [x for feeds in runs for x in feeds.values() if isinstance(x, np.ndarray) and x.dtype.name in types]
    return any(not x.all() for x in fed)


def _largest(runs: list[Any]) -> float:
    """The largest magnitude among floats that are fed; infinite where there is a NaN."""
    arrays = [x for feeds in runs for x in feeds.values() if isinstance(x, np.ndarray) and is_float(x.dtype) and x.size]
    with np.errstate(all="ignore"):
        sizes = [float(np.abs(x.astype(np.float64)).max()) for x in arrays]
    return max((np.inf if size != size else size for size in sizes), default=0.0)


def tolerance(model: onnx.ModelProto, runs: list[Any]) -> Tolerance:
    """What may differ in answers to this model. A sum has at most as many terms as the largest input has elements.
    What several nodes hand on to each other may have been near 1 before it cancelled."""
    names = [node.op_type for node in nodes(model.graph)]
    fed = [x for feeds in runs for x in feeds.values() if isinstance(x, np.ndarray)]
    sizes = [int(np.prod(t.dims)) for t in model.graph.initializer] + [x.size for x in fed]
    types = {onnx.helper.tensor_dtype_to_np_dtype(t.data_type) for t in model.graph.initializer}
    types |= {x.dtype for x in fed}
    types |= {np.dtype("float32")} if "FlexAttention" in names else set()  # the reference's scale
    return Tolerance(
        max(sizes, default=1) + 1,
        int(any(word in name for name in names for word in QUANTISED)),
        float(len(model.graph.node) > 1 or not APPROXIMATE.isdisjoint(names)),
        max((epsilon(d) for d in types if d in FLOATS), default=0.0),
    )


def trusted(peer: str, model: onnx.ModelProto) -> bool:
    """Whether a peer is right about operators like these."""
    known, partly = BUGS.get(peer, {}), PARTLY.get(peer, [])
    return not any(
        node.op_type in known or any(node.op_type == op and wrong(node) for op, wrong, _ in partly)
        for node in nodes(model.graph)
    )
