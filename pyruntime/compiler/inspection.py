"""Reports what a model contains and how much memory it needs, as plain data (docs/api/python.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyruntime.ops  # noqa: F401  fills the operator table
from pyruntime.compiler.footprint import footprint
from pyruntime.errors import InvalidModel, NeedsValue, PyRuntimeError, UnsupportedOp
from pyruntime.frontend import registry
from pyruntime.frontend.feed_checks import arguments, required_inputs
from pyruntime.onnx.describe import describe_metadata
from pyruntime.onnx.graph import Graph, Node, Weight, subgraphs
from pyruntime.runtime.explain import explain

Report = dict[str, Any]


def inspection(graph: Graph, header: Callable[[], Any]) -> Report:
    """The report on a graph. header: compiles the graph and returns the Program's header, or None if compilation needs
    feeds. The report contains errors of the compiler."""
    nodes = list(_nodes(graph))
    report = {
        "name": graph.name,
        "producer": " ".join(graph.metadata.get(k, "") for k in ("producer_name", "producer_version")).strip(),
        "ir": int(graph.metadata.get("ir_version", 0)),
        "opsets": dict(sorted(graph.opsets.items())),
        "metadata": describe_metadata(graph),
        "inputs": [asdict(a) for a in arguments(required_inputs(graph))],
        "outputs": [asdict(a) for a in arguments(graph.outputs)],
        "operators": dict(Counter(f"{n.domain}.{n.op}" if n.domain else n.op for n in nodes).most_common()),
        "unsupported": _unsupported(graph, nodes),
        "weights": _weights(graph, nodes),
        "refused": "",
        "memory": None,
        "program": None,
    }
    try:
        made = None if report["unsupported"] else header()
    except InvalidModel:
        raise
    except NeedsValue:
        made = None
    except PyRuntimeError as error:
        made, report["refused"] = None, str(error)
    return report if made is None else {**report, "memory": _memory(made), "program": _program(made)}


def constants(header: Any) -> Report:
    """The weights of a Program, given its header."""
    types = Counter[str]()
    for constant in header["constants"]:
        types[constant["dtype"]] += constant.get("size") or constant.get("blob", (0, 0))[1]
    return {"tensors": len(header["constants"]), "bytes": types.total(), "types": dict(types.most_common())}


def _weights(graph: Graph, nodes: list[Node]) -> Report:
    found = [*graph.weights.values()]
    for node in nodes:
        found += [value for value in node.attrs.values() if isinstance(value, Weight)]
        found += [weight for inner in subgraphs(node) for weight in inner.weights.values()]
    types = Counter[str]()
    for weight in found:
        types[weight.dtype.name] += weight.size
    return {"tensors": len(found), "bytes": types.total(), "types": dict(types.most_common())}


def _unsupported(graph: Graph, nodes: list[Node]) -> list[str]:
    """One sentence for each operator, opset or attribute that the engine does not have."""
    found: dict[str, None] = {}
    for node in nodes:
        if (node.domain, node.op, node.overload) in graph.functions:
            continue
        try:
            operator = registry.find(node.domain, node.op, node.opset, node.label)
            attrs = {k: v for k, v in node.attrs.items() if k != "consumed_inputs"}  # the compiler ignores it, too
            registry.check(operator, node.inputs, attrs, node.label)
        except UnsupportedOp as error:
            found[str(error)] = None
    return list(found)


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of the graph, its inner graphs and its functions."""
    stack = [*graph.nodes, *[n for f in graph.functions.values() for n in f.nodes]]
    while stack:
        node = stack.pop()
        yield node
        for inner in subgraphs(node):
            stack += inner.nodes


def _memory(header: Any) -> Report:
    found = footprint(header)
    names = [header["symbols"].get(symbol, symbol) for symbol in found.assumed]
    sizes = {"weights": found.weights, "loading": found.loading, "run": found.run, "peak": found.peak}
    return {**sizes, "linear": found.linear, "further": found.further, "assumed": sorted(set(names))}


def _program(header: Any) -> Report:
    report = explain(header, {})
    places = Counter(n["place"] for n in report["nodes"])
    return {
        "calls": report["placement"],
        "functions": report["functions"],
        "code": report["code"],
        "steps": report["steps"],
        "nodes": dict(places.most_common()),
    }
