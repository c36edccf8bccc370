"""Which weights a session trains: those that the options name, or else what operators declare as weights and other
constants that may be weights."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from math import isfinite, prod

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import BF16, F16, F32, F64
from pyruntime.onnx.graph import Graph, Node, Weight, subgraphs, uses
from pyruntime.onnx.weight_values import elements
from pyruntime.training.graph.recipe import Recipe, matches

Inputs = Mapping[str, tuple[int, ...]]
# Inputs of operators that are settings, buffers or scales, not weights
_SETTINGS: Inputs = {
    "Attention": (3,), "BatchNormalization": (3, 4), "Clip": (1, 2), "DequantizeLinear": (1,), "Dropout": (1,),
    "DynamicQuantizeMatMul": (2,), "GatherBlockQuantized": (2,), "GroupQueryAttention": (7, 8), "MatMulBnb4": (2,),
    "MatMulIntegerToFloat": (2, 3), "MatMulNBits": (2,), "MultiHeadAttention": (5,), "NegativeLogLikelihoodLoss": (2,),
    "NonMaxSuppression": (3, 4), "OneHot": (2,), "Pad": (2,), "Pow": (1,), "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6), "QuantizeLinear": (1,), "Range": (0, 1, 2), "Resize": (1, 2), "RoiAlign": (1,),
    "SoftmaxCrossEntropyLoss": (2,), "Upsample": (1,),
}  # fmt: skip
_OTHER_SETTINGS: Mapping[str, Inputs] = {  # where an operator of com.microsoft has other inputs than ONNX's
    "": {"RotaryEmbedding": (1, 2)},
    "com.microsoft": {"Attention": (5,), "RotaryEmbedding": (2, 3)},
}
# Inputs that are weights, also of one element
_WEIGHTS: Inputs = {
    "BatchNormalization": (1, 2), "Conv": (1, 2), "ConvTranspose": (1, 2), "DeformConv": (1, 3), "FusedConv": (1, 2),
    "FusedGemm": (1, 2), "FusedMatMul": (1,), "GRU": (1, 2, 3), "Gather": (0,), "Gemm": (1, 2),
    "GroupNormalization": (1, 2), "InstanceNormalization": (1, 2), "LSTM": (1, 2, 3, 7), "LayerNormalization": (1, 2),
    "MatMul": (1,), "PRelu": (1,), "RMSNormalization": (1,), "RNN": (1, 2, 3),
}  # fmt: skip
_FEATURES = {"Conv": 0, "ConvTranspose": 1, "FusedMatMul": -1, "MatMul": -1}  # the axis of a weight's output channels
_PASSING = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # the same numbers
_LARGE = 1e4  # no weight is this large; masks of attention are


def trained_weights(graph: Graph, recipe: Recipe) -> list[str]:
    """Names of the weights that a step changes, in the model's order: by the patterns of the options, or else by
    `_by_default`. Errors: InvalidInput"""
    used = {name for node in graph.nodes for name in uses(node)}
    floats = [n for n, w in graph.weights.items() if w.dtype in (F16, BF16, F32, F64) and n in used]
    known = ", ".join(floats[:8]) + (", …" if len(floats) > 8 else "")
    for pattern in (*(recipe.trainable or ()), *recipe.frozen):
        found = [n for n in graph.weights if matches(n, (pattern,))]
        if not found:
            raise InvalidInput(f'no weight has a name like "{pattern}"', hint=f"weights are {known or 'none'}")
        if pattern in recipe.frozen or any(n in floats for n in found):
            continue
        w = graph.weights[found[0]]
        text = f'"{w.name}" is {w.dtype}: it cannot be trained' if found[0] in used else f'nothing reads "{found[0]}"'
        raise InvalidInput(text, hint="train adapters beside it with the option lora")
    if recipe.trainable is None:
        floats = _by_default(graph, floats)
    else:
        floats = [n for n in floats if matches(n, recipe.trainable)]
    found = [n for n in floats if not matches(n, recipe.frozen)]
    if not found:
        raise InvalidInput("the model has no weight to train", hint=f"weights are {known or 'none'}")
    return found


def _by_default(graph: Graph, floats: list[str]) -> list[str]:
    """What operators declare as weights, and other floats of more than one element, without settings and masks."""
    roles = _Roles(graph)
    found = [n for n in floats if n not in roles.settings]
    return [
        n for n in found
        if n in roles.weights or prod(graph.weights[n].shape) > 1 and not _is_mask(graph.weights[n])
    ]  # fmt: skip


class _Roles:
    """settings, weights: names of the initializers that operators read as such, in inner graphs, too"""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.settings: set[str] = set()
        self.weights: set[str] = set()
        origin: dict[str, str] = {}  # of values that have the numbers of an initializer
        makers: dict[str, Node] = {}
        for node in _all_nodes(graph):
            names = [origin.get(name, name) for name in node.inputs]
            if node.op in _PASSING and node.domain == "":
                origin[node.outputs[0]] = names[0]
            settings = _OTHER_SETTINGS.get(node.domain, {}).get(node.op, _SETTINGS.get(node.op, ()))
            for places, role in ((settings, self.settings), (_WEIGHTS.get(node.op, ()), self.weights)):
                role.update(names[n] for n in places if n < len(names))
            if node.op == "Add":
                self.weights.update(b for a, b in (names, names[::-1]) if self._has_one_channel(makers.get(a), origin))
            makers |= dict.fromkeys(node.outputs, node)

    def _has_one_channel(self, product: Node | None, origin: Mapping[str, str]) -> bool:
        """Whether a node is a product with one output channel: what is added to it is its bias."""
        if product is None or product.op not in _FEATURES or len(product.inputs) < 2:
            return False
        w = self.graph.weights.get(origin.get(product.inputs[1], product.inputs[1]))
        if w is None or len(w.shape) < 2:
            return False
        is_turned = product.inputs[1] in origin and product.op == "MatMul"
        return 1 in w.shape[-2:] if is_turned else w.shape[_FEATURES[product.op]] == 1


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in subgraphs(node):
            yield from _all_nodes(inner)


def _is_mask(w: Weight) -> bool:
    """Whether a constant has numbers that are not finite, or larger than those of weights."""
    codes = {"float32": "f", "float64": "d"}.get(w.dtype.name)
    numbers = array(codes, w.read()) if codes else elements(w)
    return not all(isfinite(x) and abs(x) < _LARGE for x in map(float, numbers))  # type: ignore[arg-type]
