"""Which constants of a model are parameters, and why: by what the exporter notes, by how operators read them, and by
their numbers.

In this order: a file that lists the parameters of its module is believed; settings of operators are none; what
operators declare as weights are parameters; of other constants, the numbers and the use decide. Names of a TorchScript
file are of parameters or buffers: where only that speaks for a parameter, it is trained and a doubt is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from pyruntime.onnx.graph import Graph, Node, Weight, all_nodes
from pyruntime.onnx.weight_values import numbers_of
from pyruntime.training.graph.constant_values import SINES, collapsed, repeats, rule, unlike_a_weight
from pyruntime.training.graph.torch_notes import PARAMETER, TorchNotes

Inputs = Mapping[str, tuple[int, ...]]
# Inputs of operators that are settings, buffers or scales, not weights
_SETTINGS: Inputs = {
    "Attention": (3,), "BatchNormalization": (3, 4), "Clip": (0, 1, 2), "DequantizeLinear": (1,), "Div": (1,),
    "Dropout": (1,), "DynamicQuantizeMatMul": (2,), "GatherBlockQuantized": (2,), "GroupQueryAttention": (7, 8),
    "MatMulBnb4": (2,), "MatMulIntegerToFloat": (2, 3), "MatMulNBits": (2,), "MultiHeadAttention": (5,),
    "NegativeLogLikelihoodLoss": (2,), "NonMaxSuppression": (3, 4), "OneHot": (2,), "Pad": (2,), "Pow": (0, 1),
    "QLinearConv": (1, 4, 6), "QLinearMatMul": (1, 4, 6), "QuantizeLinear": (1,), "Range": (0, 1, 2),
    "Resize": (1, 2), "RoiAlign": (1,), "SoftmaxCrossEntropyLoss": (2,), "Upsample": (1,),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod"), (0, 1)),
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
_PRODUCTS = {"Conv": 0, "ConvTranspose": 1, "FusedMatMul": -1, "MatMul": -1}  # the axis of a weight's output channels
_PASSING = (  # the numbers of their first input, or nearly
    "Cast", "DequantizeLinear", "Flatten", "Identity", "QuantizeLinear", "Reshape", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div")
_LEARNABLE = ("Div", "Max", "Min", "Pow")  # their settings may be learned: temperatures, powers of pooling
_FEW = 2  # numbers that a mask may have
_MANY = 16  # elements of a constant that may be learned even though it is subtracted from inputs


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a constant is trained without the option trainable. reason: ends the sentence "it …"; is_doubtful: the
    file tells too little"""

    is_trained: bool
    reason: str
    is_doubtful: bool = False


@dataclass(slots=True)
class _Use:
    """How a node reads a constant, through nodes that only move its numbers. other: the node that makes the other
    operand of an element-wise operator; is_raw: whether that operand depends on inputs alone, without weights"""

    node: Node
    place: int
    other: Node | None = None
    is_raw: bool = False


@dataclass(slots=True)
class _Uses:
    settings: list[_Use] = field(default_factory=list[_Use])
    weights: list[_Use] = field(default_factory=list[_Use])
    others: list[_Use] = field(default_factory=list[_Use])


class Evidence:
    """Of the constants of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.notes = TorchNotes(graph)
        self._numbers: dict[str, Sequence[float]] = {}

    def finding(self, name: str) -> Finding:
        uses, kind = self.uses.get(name) or _Uses(), self.notes.kind(name)
        if kind == PARAMETER:
            return Finding(True, "is a parameter of the PyTorch module")
        if uses.settings:
            return self._by_setting(name, uses.settings)
        if kind:
            return Finding(False, f"is {'a buffer' if kind == 'BUFFER' else 'a constant'} of the PyTorch module")
        return self._by_role(name, uses.weights[0]) if uses.weights else self._by_numbers(name, uses.others)

    def _by_setting(self, name: str, uses: Sequence[_Use]) -> Finding:
        use = uses[0]
        reason = f"is input {use.place} of {use.node.label}: a setting, not a weight"
        if self.notes.kind(name) or any(each.node.op not in _LEARNABLE for each in uses):
            return Finding(False, reason)
        if self.notes.is_named(name):
            return replace(self._by_numbers(name, uses), is_doubtful=True)
        return Finding(False, reason, not use.is_raw and len(set(self._numbers_of(self.graph.weights[name]))) > 1)

    def _by_role(self, name: str, use: _Use) -> Finding:
        w = self.graph.weights[name]
        if use.node.op == "Gather" and w.dtype.name in ("float32", "float64"):
            if (kind := rule(self._numbers_of(w), w.shape)) and sum(d > 1 for d in w.shape) > 1:
                return Finding(False, f"is a table of {kind}")
        what = "an embedding" if use.node.op == "Gather" else "the bias" if use.node.op == "Add" else "a weight"
        return Finding(True, f"is {what} of {use.node.label if use.other is None else use.other.label}")

    def _by_numbers(self, name: str, uses: Sequence[_Use]) -> Finding:
        w = self.graph.weights[name]
        numbers = self._numbers_of(w)
        if why := unlike_a_weight(numbers):
            return Finding(False, why)
        distinct, is_named = len(set(numbers)), self.notes.is_named(name)
        is_computed = self.notes.is_torch and not is_named
        pattern, shape = collapsed(numbers, w.shape)
        if repeats(pattern):
            return Finding(is_named and distinct > _FEW, "repeats few numbers", is_named or distinct > _FEW)
        is_flat = sum(d > 1 for d in shape) < 2  # some weights begin as a line
        if kind := rule(pattern, shape):
            return Finding((is_named or is_flat) and kind != SINES, f"has the numbers of {kind}",
                           is_named or is_flat or kind != SINES)  # fmt: skip
        is_uniform = distinct == 1
        if any(use.node.op == "Where" for use in uses):
            return Finding(False, f"is what {uses[0].node.label} fills in", is_named or not is_uniform)
        if self._has_weights and (raw := [use for use in uses if use.is_raw]):
            is_mean = any(use.node.op in ("Sub", "Div") for use in raw)  # of pixels, or their deviation
            may_be_learned = len(numbers) >= _MANY and not is_uniform if is_mean else len(numbers) > 1
            return Finding(
                is_named and not is_mean, "changes inputs before any weight does", is_named or may_be_learned
            )
        if is_computed and is_uniform and sum(d > 1 for d in w.shape) != 1:
            return Finding(False, "is a constant that the exporter computed", len(numbers) > 1)
        if is_computed and not is_uniform and sum(d > 1 for d in w.shape) != 1:
            return Finding(True, "may be a parameter that the exporter folded, by its numbers", True)
        if len(numbers) <= 1 and not is_named:
            return Finding(False, "is a single number that no operator declares as a weight")
        return Finding(True, f"may be learned, by its numbers and by {uses[0].node.label}, which reads it")

    @cached_property
    def _has_weights(self) -> bool:
        """Whether operators declare any constant as a weight: then one that changes inputs before is no layer."""
        return any(uses.weights for uses in self.uses.values())

    def _numbers_of(self, w: Weight) -> Sequence[float]:
        if w.name not in self._numbers:
            self._numbers[w.name] = numbers_of(w)
        return self._numbers[w.name]

    # ── uses ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def uses(self) -> dict[str, _Uses]:
        """How nodes read the initializers, in inner graphs, too."""
        found: dict[str, _Uses] = {}
        origin: dict[str, str] = {}  # of values that have the numbers of an initializer
        makers: dict[str, Node] = {}
        raw = {v.name for v in self.graph.inputs}  # values of inputs alone
        for node in all_nodes(self.graph):
            names = [origin.get(name, name) for name in node.inputs]
            is_standard = node.domain == ""
            weights = [n for n in names if n in self.graph.weights]
            if is_standard and node.op in _PASSING and names[:1] == weights[:1]:
                origin[node.outputs[0]] = names[0]
            elif is_standard and (node.op in _PASSING or node.op in _ELEMENTWISE):
                if all(name in raw or name in weights for name in names):
                    raw.update(node.outputs)
            self._note(found, node, names, makers, raw)
            makers |= dict.fromkeys(node.outputs, node)
        return found

    def _note(
        self, found: dict[str, _Uses], node: Node, names: list[str], makers: Mapping[str, Node], raw: set[str]
    ) -> None:
        settings = _OTHER_SETTINGS.get(node.domain, {}).get(node.op, _SETTINGS.get(node.op, ()))
        for place, name in enumerate(names):
            if name not in self.graph.weights or place == 0 and node.op in _PASSING and node.domain == "":
                continue
            uses = found.setdefault(name, _Uses())
            use = _Use(node, place)
            if node.op in _ELEMENTWISE and node.domain == "" and len(names) == 2:
                other = node.inputs[1 - place]
                use.other, use.is_raw = makers.get(other), other in raw
            if place in settings:
                uses.settings.append(use)
                continue
            if place in _WEIGHTS.get(node.op, ()):
                uses.weights.append(use)
                continue
            if node.op in _ELEMENTWISE and node.domain == "" and len(names) == 2:
                if node.op == "Add" and self._is_product(use.other, name):
                    uses.weights.append(use)
                    continue
            uses.others.append(use)

    def _is_product(self, product: Node | None, bias: str) -> bool:
        """Whether what is added to a node's result is its bias: the node is a product with a weight, and the constant
        has a number for each output channel."""
        if product is None or product.op not in _PRODUCTS or len(product.inputs) < 2:
            return False
        w = self.graph.weights.get(self._source(product.inputs[1]))
        if w is None or len(w.shape) < 2:
            return False
        count = prod(self.graph.weights[bias].shape)
        is_turned = product.inputs[1] not in self.graph.weights and product.op == "MatMul"
        return count in (w.shape[-2:] if is_turned else (w.shape[_PRODUCTS[product.op]],))

    def _source(self, name: str) -> str:
        """The initializer whose numbers a value has."""
        makers = self._movers
        while name in makers:
            name = makers[name]
        return name

    @cached_property
    def _movers(self) -> dict[str, str]:
        nodes = (n for n in all_nodes(self.graph) if n.op in _PASSING and n.domain == "" and n.inputs)
        return {node.outputs[0]: node.inputs[0] for node in nodes}
