"""Reads model-local functions: FunctionProto -> Function.

Spec: https://github.com/onnx/onnx/blob/main/docs/IR.md#functions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyruntime.errors import InvalidModel, UnsupportedOp
from pyruntime.onnx.graph import Function, Graph, subgraphs
from pyruntime.onnx.node_order import sort_nodes, topological
from pyruntime.onnx.parse_graph import BodyReader, FunctionKey, Scope, normal_domain, read_opsets, text_of
from pyruntime.onnx.protobuf import Field, tags

_FUNCTION = tags(length="1 4 5 6 7 8 9 10 11 12 13 14")
MOST_NODES = 1 << 16  # nodes of a graph after all functions are inlined
DEEPEST = 100  # nesting of calls


class Expansion(NamedTuple):
    """The size of a graph or function after inlining. depth: nesting of calls."""

    nodes: int
    depth: int


def read_functions(
    body: BodyReader, spans: list[Field], opsets: Mapping[str, int], functions: dict[FunctionKey, Function]
) -> dict[FunctionKey, Expansion]:
    """Fill `functions`, and return the expansion of each. No function may call itself, directly or through others."""
    for _, a, b in spans:
        function = _function(body, a, b, opsets)
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise InvalidModel(f'function "{".".join(key[:2])}" at byte {a} is already defined')
        functions[key] = function
    index = {key: i for i, key in enumerate(functions)}
    needs = [{index[key] for key in _calls(function) if key in index} for function in functions.values()]
    order = topological(needs)
    if len(order) < len(needs):
        stuck = min(set(index.values()) - set(order))
        raise InvalidModel(f'function "{".".join(list(functions)[stuck][:2])}" calls itself')
    found: dict[FunctionKey, Expansion] = {}
    for key in [list(functions)[i] for i in order]:
        nodes, depth = expansion(functions[key], found)
        found[key] = Expansion(nodes, depth + 1)
    return found


def check_expansion(graph: Graph, functions: Mapping[FunctionKey, Expansion]) -> None:
    """Errors: UnsupportedOp if inlining all functions of a graph gives too many nodes, or calls are nested too
    deeply."""
    nodes, depth = expansion(graph, functions)
    if depth and nodes > MOST_NODES:
        raise UnsupportedOp(f"its functions, inlined, have {nodes} nodes; up to {MOST_NODES} are supported")
    if depth > DEEPEST:
        raise UnsupportedOp(f"its function calls are nested {depth} deep; up to {DEEPEST} is supported")


def expansion(caller: Function | Graph, functions: Mapping[FunctionKey, Expansion]) -> Expansion:
    """The expansion of a caller, from those of the functions that it calls, also inside subgraphs."""
    nodes, depth = 0, 0
    for node in caller.nodes:
        inner = [functions[key]] if (key := (node.domain, node.op, node.overload)) in functions else []
        inner += [expansion(graph, functions) for graph in subgraphs(node)]
        nodes += 1 + sum(e.nodes for e in inner)
        depth = max([depth, *[e.depth for e in inner]])
    return Expansion(nodes, depth)


def _function(body: BodyReader, start: int, end: int, opsets: Mapping[str, int]) -> Function:
    """opsets: the model's, which apply to domains that the function does not import itself."""
    wire = body.wire
    found = wire.gather(start, end, _FUNCTION)
    inputs, outputs, attrs = (tuple(wire.text(a, b) for _, a, b in found.get(n, ())) for n in (4, 5, 6))
    name, domain, overload = text_of(wire, found, 1), normal_domain(text_of(wire, found, 10)), text_of(wire, found, 13)
    defaults = dict(body.attribute(a, b, Scope(opsets), 0) for _, a, b in found.get(11, ()))
    refs = frozenset(attrs).union(defaults)
    where = f'function "{domain}.{name}"'
    if not name or len(refs) != len(attrs) + len(found.get(11, ())) or len(set(inputs)) != len(inputs):
        raise InvalidModel(f"{where} at byte {start} has no name, or two attributes or inputs with the same name")
    scope = Scope({**opsets, **read_opsets(wire, found.get(9, []))}, refs)
    nodes = [body.node(a, b, scope, 0) for _, a, b in found.get(7, ())]
    nodes = sort_nodes(nodes, set(inputs), outputs, where, nested=False)
    values = dict(body.types.value(a, b) for _, a, b in found.get(12, ()))
    known = {key: value for key, value in values.items() if value is not None}
    return Function(name, domain, overload, inputs, outputs, attrs, defaults, tuple(nodes), known)


def _calls(caller: Function | Graph) -> set[FunctionKey]:
    """The operators of a function's or graph's nodes, also inside subgraphs."""
    calls: set[FunctionKey] = set()
    for node in caller.nodes:
        calls.add((node.domain, node.op, node.overload))
        for graph in subgraphs(node):
            calls |= _calls(graph)
    return calls
