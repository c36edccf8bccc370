"""`pyruntime inspect MODEL`: what a model is, and what the compiler makes of it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyruntime.ops  # noqa: F401  fills the operator table
from pyruntime.cli import common
from pyruntime.errors import InvalidInput, InvalidModel, SessionFailed, UnsupportedOp
from pyruntime.frontend import registry
from pyruntime.frontend.feed_checks import NodeArg, arguments
from pyruntime.native.program_file import is_program
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Node, Weight

EXAMPLES = {
    "model.onnx": "what it is and what becomes of it",
    "model.onnx --kernels": "its kernels and their loops",
    "model.onnx --code --node MatMul": "the WebAssembly of one operator",
}


def main(argv: list[str]) -> int:
    parser = common.parser("inspect", "What a model is, what becomes of it, and what is not supported.", EXAMPLES)
    parser.add_argument("--kernels", action="store_true", help="only its kernels after the passes, and their loops")
    parser.add_argument("--code", action="store_true", help="the same, with their WebAssembly or WGSL")
    parser.add_argument("--node", default="", metavar="NAME", help="only those of a node, by its name or operator")
    common.add_feeds(parser)
    args = parser.parse_args(argv)
    if not args.model.is_file():
        raise InvalidInput(f"{args.model} is not a file", hint="the path of an .onnx model is expected")
    if args.kernels or args.code:
        return _kernels(args)
    unsupported: list[str] = []
    if not is_program(args.model):
        try:
            unsupported = _graph(load(args.model))
        except InvalidModel as error:
            raise error.at(str(args.model)) from None
    if unsupported:
        print("not supported\n" + "\n".join(f"  {text}" for text in unsupported))
        raise UnsupportedOp(f"{args.model} has operators that are not supported", hint="see above")
    _compiled(args)
    return 0


def _kernels(args: argparse.Namespace) -> int:
    session = common.session(args)
    try:
        text = session.listing(None, args.node, args.code)
    except SessionFailed:
        text = session.listing(common.feeds(args, session.get_inputs()), args.node, args.code)
    if not text:
        raise InvalidInput(
            f'no kernel is of a node "{args.node}"', hint="what is fused bears the name of its last node"
        )
    print(text)
    return 0


# ── the graph ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _graph(graph: Graph) -> list[str]:
    """Describe it; gives what is not supported, a sentence each."""
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(graph.opsets.items()))
    producer = " ".join(graph.metadata.get(k, "") for k in ("producer_name", "producer_version")).strip()
    facts = [
        ("graph", graph.name),
        ("opsets", opsets),
        ("producer", producer),
        ("IR version", graph.metadata["ir_version"]),
    ]
    weights, nodes = list(_weights(graph)), list(_nodes(graph))
    facts.append(("weights", f"{len(weights)} tensors, {common.size(sum(w.size for w in weights))}"))
    print(common.table([f for f in facts if f[1]]))
    _values("inputs", arguments([v for v in graph.inputs if v.name not in graph.weights]))
    _values("outputs", arguments(graph.outputs))
    counts = Counter(f"{n.domain}.{n.op}" if n.domain else n.op for n in nodes)
    print(f"operators ({len(nodes)} nodes)")
    print(common.table([(count, name) for name, count in counts.most_common()], "r") if counts else "  none")
    return _unsupported(graph, nodes)


def _unsupported(graph: Graph, nodes: list[Node]) -> list[str]:
    """One sentence for each operator and opset that the table does not have, or an attribute of it."""
    found: dict[str, None] = {}
    for node in nodes:
        if (node.domain, node.op, node.overload) in graph.functions:
            continue
        try:
            operator = registry.find(node.domain, node.op, node.opset, node.label)
            attrs = {k: v for k, v in node.attrs.items() if k != "consumed_inputs"}  # as the compiler does
            registry.check(operator, node.inputs, attrs, node.label)
        except UnsupportedOp as error:
            found[str(error)] = None
    return list(found)


def _weights(graph: Graph) -> Iterator[Weight]:
    yield from graph.weights.values()
    for node in _nodes(graph):
        for value in node.attrs.values():
            if isinstance(value, Weight):
                yield value
            elif isinstance(value, Graph):
                yield from value.weights.values()


def _nodes(graph: Graph) -> Iterator[Node]:
    """Of the graph, its inner graphs and its functions."""
    stack = [*graph.nodes, *[n for f in graph.functions.values() for n in f.nodes]]
    while stack:
        node = stack.pop()
        yield node
        for value in node.attrs.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Graph):
                    stack += inner.nodes


def _values(title: str, values: list[NodeArg]) -> None:
    print(title)
    print(common.table([(v.name, v.type, common.shape(v.shape)) for v in values]) if values else "  none")


# ── the Program ───────────────────────────────────────────────────────────────────────────────────────────────────


def _compiled(args: argparse.Namespace) -> None:
    session = common.session(args)
    if is_program(args.model):
        _values("inputs", session.get_inputs())
        _values("outputs", session.get_outputs())
    try:
        told: dict[str, Any] = session.explain()
    except SessionFailed:
        print("program\n  compiled when the model first runs, for the values and lengths of its inputs")
        return
    became = Counter(n["place"] for n in told["nodes"])
    calls = ", ".join(f"{count} on {place}" for place, count in sorted(told["placement"].items())) or "none"
    print("program")
    print(common.table([
        ("kernel calls", calls),
        ("functions", f"{told['functions']} distinct, {common.size(told['code'])} of code"),
        ("steps", told["steps"]),
        ("nodes", ", ".join(f"{count} {place}" for place, count in became.most_common())),
    ]))  # fmt: skip
