"""Finds where the values of a half-float model leave the range of half floats: evaluates the model in float32.

The graph is rewritten: half-float inputs and weights are cast to float32, and nodes that choose half floats choose
float32. Its outputs are two numbers for each value that is a half float in the model, so that the values themselves
need not stay in memory: the largest finite magnitude, and whether there is an infinity. `pyruntime.runtime.ranges`
judges them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.frontend.trace_graph import Spec, TensorSpec, trace_graph
from pyruntime.ir.dtype import F16, F32
from pyruntime.ir.kernel import Tensor
from pyruntime.onnx.graph import Function, Graph, Node, TensorType, Value, Weight, uses
from pyruntime.onnx.weight_values import elements

TYPES = ("to", "dtype", "output_dtype", "softmax_precision", "stash_type")  # attributes that are element types
LARGEST = 3.4028234663852886e38  # float32
SMALL = 1 << 16  # elements of a weight that may be a mask with infinities; larger ones are factors
OLDEST = 9  # the first opset with Where
Constants = Mapping[str, TensorSpec]


class HalfRanges:
    """graph: computes the two numbers of each half-float value; constants: of this graph; entries: the values, in the
    order of the outputs of `graph`, as `first_beyond` takes them."""

    def __init__(self, graph: Graph, specs: Mapping[str, Spec], constants: Constants | None) -> None:
        """graph: as `Settings.prepare` returned it. Errors: InvalidInput without half floats, or for old models"""
        opset = graph.opsets.get("", OLDEST)
        given, made = _half_values(graph, specs, constants or {})
        if not made:
            raise InvalidInput("the model computes no half floats", hint="`ranges` checks models of float16")
        if opset < OLDEST:
            raise InvalidInput(f"`ranges` needs opset {OLDEST} or later, the model has {opset}")
        names = [*given, *made]
        position = {name: n for n, name in enumerate(names)}
        self.entries = [_entry(name, made.get(name), position) for name in names]
        widened = {n: replace(c, dtype=F32) if c.dtype is F16 else c for n, c in (constants or {}).items()}
        self.constants = None if constants is None else widened
        widening = _Widening(opset)
        self.graph = _measured(widening.main(graph), [widening.names.get(name, name) for name in names], opset)


def _half_values(graph: Graph, specs: Mapping[str, Spec], constants: Constants) -> tuple[list[str], dict[str, Node]]:
    """Names of half floats that are given (inputs and small weights), and the nodes of those that are computed."""
    traced = trace_graph(graph, specs, elements, constants).values
    halves = {name for name, x in traced.items() if isinstance(x, Tensor) and x.dtype is F16}
    made = {name: node for node in graph.nodes for name in node.outputs if name in halves}
    given = [name for name in halves - made.keys() if _is_small(graph.weights.get(name))]
    return sorted(given), made


def _is_small(weight: Weight | None) -> bool:
    return weight is None or weight.size <= SMALL * F16.size


def _entry(name: str, node: Node | None, position: Mapping[str, int]) -> dict[str, Any]:
    sources = [] if node is None else sorted(position[n] for n in uses(node) if n in position)
    return {"node": "" if node is None else node.label, "output": name, "inputs": sources}


class _Widening:
    """Rewrites graphs so that they compute in float32. names: the float32 values of inputs and weights."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.names: Mapping[str, str] = {}

    def main(self, graph: Graph) -> Graph:
        halves = [v.name for v in graph.inputs if isinstance(v.type, TensorType) and v.type.dtype is F16]
        functions = {key: self._function(f) for key, f in graph.functions.items()}
        self.names = {name: f"{name}/float32" for name in _casts(graph, halves)}
        return replace(self._graph(graph, halves, {}), functions=functions)

    def _graph(self, graph: Graph, halves: Iterable[str], renamed: Mapping[str, str]) -> Graph:
        """halves: inputs that stay half floats; renamed: names of outer values by the names that the graph uses"""
        own = {*(v.name for v in graph.inputs), *graph.weights, *(n for node in graph.nodes for n in node.outputs)}
        casts = _casts(graph, halves)
        names = {a: b for a, b in renamed.items() if a not in own} | {name: f"{name}/float32" for name in casts}
        first = [self._cast(name, names[name]) for name in casts]
        nodes = tuple(part for node in graph.nodes for part in self._node(node, names))
        outputs = tuple(replace(v, name=names.get(v.name, v.name), type=_wide(v.type)) for v in graph.outputs)
        inputs = tuple(v if v.name in casts else replace(v, type=_wide(v.type)) for v in graph.inputs)
        return replace(graph, inputs=inputs, outputs=outputs, nodes=(*first, *nodes), values={})

    def _function(self, function: Function) -> Function:
        nodes = tuple(part for node in function.nodes for part in self._node(node, {}))
        return replace(function, nodes=nodes, values={}, defaults=self._attributes(function.defaults, {}))

    def _node(self, node: Node, names: Mapping[str, str]) -> list[Node]:
        """The node, and a cast after it if it makes half floats from the value of an attribute."""
        inputs = tuple(names.get(name, name) for name in node.inputs)
        node = replace(node, inputs=inputs, attrs=self._attributes(node.attrs, names))
        value = node.attrs.get("value")
        if not (isinstance(value, Weight) and value.dtype is F16):
            return [node]
        (name,) = node.outputs
        half = f"{name}/float16"
        return [replace(node, outputs=(half,)), self._cast(half, name)]

    def _attributes(self, attrs: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
        return {key: self._attribute(key, value, names) for key, value in attrs.items()}

    def _attribute(self, key: str, value: object, names: Mapping[str, str]) -> object:
        if isinstance(value, Graph):
            return self._graph(value, (), names)
        if isinstance(value, tuple) and value and isinstance(value[0], Graph):
            return tuple(self._graph(item, (), names) for item in value)
        return F32.code if key in TYPES and value == F16.code else value

    def _cast(self, name: str, to: str) -> Node:
        return Node("Cast", "", self.opset, to, (name,), (to,), {"to": F32.code})


def _wide(kind: Any) -> Any:
    return replace(kind, dtype=F32) if isinstance(kind, TensorType) and kind.dtype is F16 else kind


def _casts(graph: Graph, halves: Iterable[str]) -> dict[str, None]:
    """Names of the inputs and weights that are cast to float32."""
    return dict.fromkeys([*halves, *(name for name, w in graph.weights.items() if w.dtype is F16)])


def _measured(graph: Graph, names: Sequence[str], opset: int) -> Graph:
    """The graph with two outputs for each of these values: the largest finite magnitude, and 1 for an infinity."""
    nodes: list[Node] = []

    def add(op: str, inputs: Sequence[str], output: str, **attrs: object) -> str:
        nodes.append(Node(op, "", opset, output, tuple(inputs), (output,), attrs))
        return output

    def measure(name: str) -> list[str]:
        size = add("Abs", [name], f"{name}/magnitude")
        finite = add("Where", [add("Less", [size, endless], f"{name}/is_finite"), size, zero], f"{name}/finite")
        beyond = add("Cast", [add("Greater", [size, most], f"{name}/beyond")], f"{name}/infinite", to=F32.code)
        return [add("ReduceMax", [x], f"{x}/largest", keepdims=0) for x in (finite, beyond)]

    zero, most, endless = (
        add("Constant", [], f"/ranges/{value}", value_float=value) for value in (0.0, LARGEST, math.inf)
    )
    outputs = tuple(Value(made, TensorType(F32, ())) for name in names for made in measure(name))
    return replace(graph, nodes=(*graph.nodes, *nodes), outputs=outputs)
