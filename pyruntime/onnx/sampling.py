"""Appends sampling of the next token to a decoder's graph, so that a run returns a token instead of logits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32, I32, I64, U32
from pyruntime.onnx.graph import Function, Graph, Node, TensorType, Value, all_nodes, uses

_OPSET = 20
_PRODUCTS = (("", "MatMul"), ("com.microsoft", "MatMulNBits"))
# The scale of all rows depends on the largest value of each.
_MIXING = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
_Steps = tuple[tuple[str, str, str, Mapping[str, object]], ...]
_STEPS: _Steps = (
    ("zero", "Constant", "", {"value_int": 0}), ("one", "Constant", "", {"value_int": 1}),
    ("axis", "Constant", "", {"value_ints": (1,)}), ("flat", "Constant", "", {"value_ints": (-1,)}),
    ("cold", "Constant", "", {"value_float": 0.0}), ("tiny", "Constant", "", {"value_float": 1e-6}),
    ("heat", "Max", "temperature tiny", {}), ("scaled", "Div", "scores heat", {}),
    # the top_k most likely tokens, in order
    ("size", "Shape", "row", {"start": 1}), ("all", "LessOrEqual", "top_k zero", {}),
    ("requested", "Where", "all size top_k", {}), ("fewer", "Min", "requested size", {}),
    ("count", "Reshape", "fewer flat", {}),
    ("best which", "TopK", "scaled count", {"axis": 1}), ("share", "Softmax", "best", {"axis": 1}),
    # the first of them whose probabilities sum to top_p
    ("before", "CumSum", "share one", {"exclusive": 1}), ("most", "Max", "top_p tiny", {}),
    ("inside", "Less", "before most", {}), ("kept", "Where", "inside share cold", {}),
    ("drawable", "Greater", "kept cold", {}),
    ("number", "Cast", "drawable", {"to": I64.code}), ("numbers", "ReduceSum", "number axis", {"keepdims": 1}),
    # one of them, by a random number from 0 to 1
    ("sums", "CumSum", "kept one", {}), ("total", "ReduceSum", "kept axis", {"keepdims": 1}),
    ("drawn", "Mul", "total column", {}),
    ("passed", "LessOrEqual", "sums drawn", {}), ("pass", "Cast", "passed", {"to": I64.code}),
    ("passes", "ReduceSum", "pass axis", {"keepdims": 1}), ("last", "Sub", "numbers one", {}),
    ("place", "Min", "passes last", {}), ("greedy", "LessOrEqual", "temperature cold", {}),
    ("chosen", "Where", "greedy zero place", {}), ("found", "GatherElements", "which chosen", {"axis": 1}),
)  # fmt: skip
# What differs between one token of the last position (N), and tokens of several positions (N, P) with a penalty.
_ONE: tuple[_Steps, _Steps] = (
    (("scores", "Cast", "row", {"to": F32.code}), ("column", "Unsqueeze", "random axis", {})),
    (("token", "Squeeze", "found axis", {}),),
)
_SEVERAL: tuple[_Steps, _Steps] = (
    (
        ("tall", "Constant", "", {"value_ints": (-1, 1)}), ("column", "Reshape", "random tall", {}),
        ("plain", "Cast", "row", {"to": F32.code}), ("picked", "GatherND", "plain repeated", {}),
        ("less", "Div", "picked repetition_penalty", {}), ("more", "Mul", "picked repetition_penalty", {}),
        ("likely", "Greater", "picked cold", {}), ("penalised", "Where", "likely less more", {}),
        ("free", "ScatterND", "plain repeated penalised", {}),
    ),
    (
        ("shape", "Shape", "random", {}), ("token", "Reshape", "found shape", {}),
        # A mask changes no other token's probability, as in transformers' beam search.
        ("unmasked", "Div", "free heat", {}), ("logs", "LogSoftmax", "unmasked", {"axis": 1}),
        ("log", "GatherElements", "logs which", {"axis": 1}), ("lowest", "Constant", "", {"value_float": -3.4e38}),
        ("barred", "Less", "best lowest", {}), ("best_scores", "Where", "barred best log", {}),
        ("best_tokens", "Identity", "which", {}),
    ),
)  # fmt: skip

# Tokens that a mask forbids in a row: those whose bit t % 32 of word t // 32 is not set.
_FREE: _Steps = (("scores", "Identity", "free", {}),)
_MASKED: _Steps = (
    ("never", "Constant", "", {"value_float": -math.inf}), ("third", "Constant", "", {"value_ints": (2,)}),
    ("numbered", "Constant", "", {"value_ints": (*range(32),)}), ("shift", "Cast", "numbered", {"to": U32.code}),
    ("unsigned", "Cast", "masks", {"to": U32.code}), ("word", "Unsqueeze", "unsigned third", {}),
    ("shifted", "BitShift", "word shift", {"direction": "RIGHT"}),
    ("two", "Cast", "third", {"to": U32.code}), ("bits", "Mod", "shifted two", {}),
    ("none", "Cast", "zero", {"to": U32.code}), ("unset", "Equal", "bits none", {}),
    ("many", "Shape", "masks", {"end": 1}), ("words", "Shape", "masks", {"start": 1}),
    ("span", "Constant", "", {"value_ints": (32,)}), ("length", "Mul", "words span", {}),
    ("wide", "Concat", "many length", {"axis": 0}), ("padded", "Reshape", "unset wide", {}),
    ("start", "Constant", "", {"value_ints": (0,)}), ("width", "Shape", "free", {"start": 1}),
    ("forbidden", "Slice", "padded start width axis", {}), ("own", "Gather", "free masked", {"axis": 0}),
    ("possible", "Where", "forbidden never own", {}),
    ("targets", "Unsqueeze", "masked axis", {}), ("scores", "ScatterND", "free targets possible", {}),
)  # fmt: skip


def with_sampling(graph: Graph, logits: str | None, positions: int = 0, masks: bool = False) -> Graph:
    """The graph with the output `token` in place of the output `logits`, and new inputs; the graph itself if logits is
    None.

    logits: (N, V) or (N, S, V), of which the last position counts
    positions: 0, or P: a token for each of the last min(S, P) positions
    new inputs: `temperature` (0: greedy), `top_k` (0: off), `top_p`, and `random` (N; with positions (N, min(S, P));
        each from 0 to 1). With positions also `repetition_penalty` and `repeated` (R, 2): pairs of a row
        n · min(S, P) + p and a token, whose score is divided by the penalty if it is positive, else multiplied; and the
        outputs `best_tokens` and `best_scores` (rows, min(top_k, V)): the likeliest tokens and their log probabilities,
        without a mask's effect on that of others; -inf for a token that a mask forbids
    masks: with positions, also the inputs `masked` (M), such rows, and `masks` (M, ceil(V / 32)): a row may have token
        t if bit t % 32 of word t // 32 is 1. None if the model does not declare V
    Errors: InvalidInput if the output does not exist or has another shape or type, or if the model uses these names."""
    if logits is None:
        return graph
    dims = _dims(graph, logits)
    if positions and len(dims) == 2:
        raise InvalidInput(f'output "{logits}" has no positions to sample', hint="sample_positions is for (N, S, V)")
    if masks and not positions:
        raise InvalidInput("sample_masks needs sample_positions", hint="sample_positions=1 samples the last position")
    mixed = ":mixed" if any(node.op in _MIXING for node in all_nodes(graph)) else ""
    count = (*dims[:1], f"positions:{positions}{mixed}") if positions else dims[:1]
    inputs = [("temperature", F32, ()), ("top_k", I64, ()), ("top_p", F32, ()), ("random", F32, count)]
    if positions:
        inputs += [("repetition_penalty", F32, ()), ("repeated", I64, ("repeated", 2))]
    if masks and isinstance(dims[-1], int):
        inputs += [("masked", I64, ("masked",)), ("masks", I32, ("masked", -(-dims[-1] // 32)))]
    outputs = {"token": TensorType(I64, count)}
    if positions:
        rows = ("sampled", "likeliest")
        outputs |= {"best_tokens": TensorType(I64, rows), "best_scores": TensorType(F32, rows)}
    own = {name: name for name in (*(name for name, *_ in inputs), *outputs)}
    taken = own.keys() & _names(graph)
    if taken:
        raise InvalidInput(f"a model with a value {', '.join(map(repr, sorted(taken)))} cannot be sampled")

    def named(names: str) -> tuple[str, ...]:
        return tuple(own.get(name, f"{logits}/sampling/{name}") for name in names.split())

    before, after = _SEVERAL if positions else _ONE
    if positions:
        before = (*before, *(_MASKED if masks and isinstance(dims[-1], int) else _FREE))
    steps = [
        Node(op, "", _OPSET, named(out)[0], named(of), named(out), attrs)
        for out, op, of, attrs in (*_STEPS[:6], *before, *_STEPS[6:], *after)
    ]
    values = [Value("token", outputs.pop("token")) if v.name == logits else v for v in graph.outputs]
    values += [Value(name, kind) for name, kind in outputs.items()]
    more = [Value(name, TensorType(dtype, shape)) for name, dtype, shape in inputs]
    made = replace(graph, inputs=(*graph.inputs, *more), outputs=tuple(values))
    if positions:
        made = _left_padded(made)
    nodes = made.nodes if len(dims) == 2 else _of_last_rows(made, logits, max(1, positions))
    (row,) = named("row")
    return replace(made, nodes=(*nodes, *_rows(logits, row, len(dims), positions), *steps))


def _left_padded(part: Any) -> Any:
    """A graph or a function whose GroupQueryAttention takes texts of different lengths as other models do: each ends in
    the last place. Its own rule, by which each begins in the first place, would move new keys among the past ones."""
    if isinstance(part, Graph):
        functions = {key: _left_padded(function) for key, function in part.functions.items()}
        return replace(part, nodes=_left_padded(part.nodes), functions=functions)
    if isinstance(part, Function):
        return replace(part, nodes=_left_padded(part.nodes))
    if isinstance(part, Node):
        attrs = {name: _left_padded(value) for name, value in part.attrs.items()}
        is_own = (part.domain, part.op) == ("com.microsoft", "GroupQueryAttention")
        return replace(
            part, attrs=attrs | ({"left_padded": 1} if is_own and not attrs.get("sliding_window_cache") else {})
        )
    return tuple(map(_left_padded, part)) if isinstance(part, tuple) else part


def _rows(logits: str, row: str, rank: int, positions: int) -> list[Node]:
    """Nodes that make a row (V) of each position that is sampled."""
    if rank == 2:
        return [Node("Identity", "", _OPSET, row, (logits,), (row,))]
    last, shape = f"{row}/last", f"{row}/shape"
    nodes = _last(logits, last, max(1, positions))
    if positions == 0:
        axis = f"{row}/axis"
        constant = Node("Constant", "", _OPSET, axis, (), (axis,), {"value_ints": (1,)})
        return [*nodes, constant, Node("Squeeze", "", _OPSET, row, (last, axis), (row,))]
    size, whole = f"{row}/size", f"{row}/whole"
    return [
        *nodes,
        Node("Constant", "", _OPSET, shape, (), (shape,), {"value_ints": (-1,)}),
        Node("Shape", "", _OPSET, size, (last,), (size,), {"start": 2}),
        Node("Concat", "", _OPSET, whole, (shape, size), (whole,), {"axis": 0}),
        Node("Reshape", "", _OPSET, row, (last, whole), (row,)),
    ]


def _last(value: str, name: str, positions: int) -> list[Node]:
    """Nodes that take the last positions, along axis 1."""
    if positions == 1:
        end = Node("Constant", "", _OPSET, f"{name}/end", (), (f"{name}/end",), {"value_ints": (-1,)})
        return [end, Node("Gather", "", _OPSET, name, (value, f"{name}/end"), (name,), {"axis": 1})]
    ends = {"from": -positions, "to": (1 << 63) - 1, "axis": 1}
    parts = [
        Node("Constant", "", _OPSET, f"{name}/{part}", (), (f"{name}/{part}",), {"value_ints": (n,)})
        for part, n in ends.items()
    ]
    return [*parts, Node("Slice", "", _OPSET, name, (value, *(f"{name}/{part}" for part in ends)), (name,))]


def _names(graph: Graph) -> set[str]:
    """Names of all values of the main graph. Names in branches and loops do not matter: they hide outer ones."""
    made = {name for node in graph.nodes for name in node.outputs}
    return {v.name for v in (*graph.inputs, *graph.outputs)} | graph.weights.keys() | made


def _of_last_rows(graph: Graph, logits: str, positions: int) -> tuple[Node, ...]:
    """Return the nodes. If nothing else reads the product that makes the logits, it is computed for the last positions
    only, because it is most of the work for a prompt."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    reads = Counter(name for node in graph.nodes for name in uses(node)) + Counter(v.name for v in graph.outputs)
    name, own = logits, 0  # reads of `name` by nodes that this loop has passed
    while name in makers and makers[name].op == "Cast" and reads[name] == own:
        name, own = makers[name].inputs[0], 1
    product = makers.get(name)
    if product is None or reads[name] != own or (product.domain, product.op) not in _PRODUCTS:
        return graph.nodes
    weight = graph.weights.get(product.inputs[1])
    if weight is None or product.op == "MatMul" and len(weight.shape) != 2:
        return graph.nodes
    row = f"{logits}/sampling/position"
    at = graph.nodes.index(product)
    less = replace(product, inputs=(row, *product.inputs[1:]))
    return (*graph.nodes[:at], *_last(product.inputs[0], row, positions), less, *graph.nodes[at + 1 :])


def _dims(graph: Graph, logits: str) -> tuple[int | str | None, ...]:
    found = next((v.type for v in graph.outputs if v.name == logits), None)
    if found is None:
        names = ", ".join(v.name for v in graph.outputs)
        raise InvalidInput(f'output "{logits}" does not exist', hint=f"outputs are {names}")
    if isinstance(found, TensorType) and found.dtype is not None and found.dtype.is_float:
        if found.shape is not None and len(found.shape) in (2, 3):
            return found.shape
    raise InvalidInput(f'output "{logits}" cannot be logits', hint="logits are floats of shape (N, V) or (N, S, V)")
