"""Appends sampling of the next token to a decoder's graph, so that a run returns a token instead of logits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32, I64
from pyruntime.onnx.graph import Graph, Node, TensorType, Value, uses

_OPSET = 20
_PRODUCTS = (("", "MatMul"), ("com.microsoft", "MatMulNBits"))
_STEPS: tuple[tuple[str, str, str, Mapping[str, object]], ...] = (
    ("zero", "Constant", "", {"value_int": 0}), ("one", "Constant", "", {"value_int": 1}),
    ("axis", "Constant", "", {"value_ints": (1,)}), ("flat", "Constant", "", {"value_ints": (-1,)}),
    ("cold", "Constant", "", {"value_float": 0.0}), ("tiny", "Constant", "", {"value_float": 1e-6}),
    ("scores", "Cast", "row", {"to": F32.code}),
    ("heat", "Max", "temperature tiny", {}), ("scaled", "Div", "scores heat", {}),
    # the top_k most likely tokens, in order
    ("size", "Shape", "row", {"start": 1}), ("all", "LessOrEqual", "top_k zero", {}),
    ("requested", "Where", "all size top_k", {}), ("fewer", "Min", "requested size", {}),
    ("count", "Reshape", "fewer flat", {}),
    ("best which", "TopK", "scaled count", {"axis": 1}), ("share", "Softmax", "best", {"axis": 1}),
    # the first of them whose probabilities sum to top_p
    ("before", "CumSum", "share one", {"exclusive": 1}), ("most", "Max", "top_p tiny", {}),
    ("inside", "Less", "before most", {}), ("kept", "Where", "inside share cold", {}),
    ("number", "Cast", "inside", {"to": I64.code}), ("numbers", "ReduceSum", "number axis", {"keepdims": 1}),
    # one of them, by a random number from 0 to 1
    ("sums", "CumSum", "kept one", {}), ("total", "ReduceSum", "kept axis", {"keepdims": 1}),
    ("column", "Unsqueeze", "random axis", {}), ("drawn", "Mul", "total column", {}),
    ("passed", "LessOrEqual", "sums drawn", {}), ("pass", "Cast", "passed", {"to": I64.code}),
    ("passes", "ReduceSum", "pass axis", {"keepdims": 1}), ("last", "Sub", "numbers one", {}),
    ("place", "Min", "passes last", {}), ("greedy", "LessOrEqual", "temperature cold", {}),
    ("chosen", "Where", "greedy zero place", {}), ("found", "GatherElements", "which chosen", {"axis": 1}),
    ("token", "Squeeze", "found axis", {}),
)  # fmt: skip


def with_sampling(graph: Graph, logits: str | None) -> Graph:
    """The graph with the output `token` in place of the output `logits`, and new inputs; the graph itself if logits is
    None.

    logits: (N, V) or (N, S, V), of which the last position counts
    new inputs: `temperature` (0: greedy), `top_k` (0: off), `top_p`, and `random` (N, each from 0 to 1)
    Errors: InvalidInput if the output does not exist or has another shape or type, or if the model uses these names."""
    if logits is None:
        return graph
    dims = _dims(graph, logits)
    inputs = [("temperature", F32, ()), ("top_k", I64, ()), ("top_p", F32, ()), ("random", F32, dims[:1])]
    own = {name: name for name, *_ in inputs} | {"token": "token"}
    taken = own.keys() & _names(graph)
    if taken:
        raise InvalidInput(f"a model with a value {', '.join(map(repr, sorted(taken)))} cannot be sampled")

    def named(names: str) -> tuple[str, ...]:
        return tuple(own.get(name, f"{logits}/sampling/{name}") for name in names.split())

    (row,) = named("row")
    first = [Node("Identity", "", _OPSET, row, (logits,), (row,))]
    if len(dims) == 3:
        (end,) = named("flat")
        first = [Node("Squeeze", "", _OPSET, row, (f"{row}/last", *named("axis")), (row,))]
        first.insert(0, Node("Gather", "", _OPSET, f"{row}/last", (logits, end), (f"{row}/last",), {"axis": 1}))
    steps = [Node(op, "", _OPSET, named(out)[0], named(of), named(out), attrs) for out, op, of, attrs in _STEPS]
    values = (Value("token", TensorType(I64, dims[:1])) if v.name == logits else v for v in graph.outputs)
    more = [Value(name, TensorType(dtype, shape)) for name, dtype, shape in inputs]
    made = replace(graph, inputs=(*graph.inputs, *more), outputs=tuple(values))
    before = graph.nodes if len(dims) == 2 else _of_last_rows(made, logits)
    return replace(made, nodes=(*before, *steps[:6], *first, *steps[6:]))


def _names(graph: Graph) -> set[str]:
    """Names of all values of the main graph. Names in branches and loops do not matter: they hide outer ones."""
    made = {name for node in graph.nodes for name in node.outputs}
    return {v.name for v in (*graph.inputs, *graph.outputs)} | graph.weights.keys() | made


def _of_last_rows(graph: Graph, logits: str) -> tuple[Node, ...]:
    """Return the nodes. If nothing else reads the product that makes the logits, it is computed for the last position
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
    end, row = f"{logits}/sampling/end", f"{logits}/sampling/position"
    taken = [Node("Constant", "", _OPSET, end, (), (end,), {"value_ints": (-1,)}),
             Node("Gather", "", _OPSET, row, (product.inputs[0], end), (row,), {"axis": 1})]  # fmt: skip
    at = graph.nodes.index(product)
    less = replace(product, inputs=(row, *product.inputs[1:]))
    return (*graph.nodes[:at], *taken, less, *graph.nodes[at + 1 :])


def _dims(graph: Graph, logits: str) -> tuple[int | str | None, ...]:
    found = next((v.type for v in graph.outputs if v.name == logits), None)
    if found is None:
        names = ", ".join(v.name for v in graph.outputs)
        raise InvalidInput(f'output "{logits}" does not exist', hint=f"outputs are {names}")
    if isinstance(found, TensorType) and found.dtype is not None and found.dtype.is_float:
        if found.shape is not None and len(found.shape) in (2, 3):
            return found.shape
    raise InvalidInput(f'output "{logits}" cannot be logits', hint="logits are floats of shape (N, V) or (N, S, V)")
