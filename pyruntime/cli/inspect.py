"""`pyruntime inspect MODEL`: describes a model and its compiled Program."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pyruntime.cli import common
from pyruntime.cli.progress import doing
from pyruntime.errors import InvalidInput, InvalidModel, SessionFailed, UnsupportedOp
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.native.tools.inspection import inspect
from pyruntime.native.tools.url_source import is_url

EXAMPLES = {
    "model.onnx": "the model, its Program and its memory",
    "model.onnx --json": "machine-readable",
    "model.onnx --kernels": "kernels and their loops",
    "model.onnx --code --node MatMul": "the WebAssembly of an operator",
}


def main(argv: list[str]) -> int:
    about = "Describe a model: inputs, operators, memory, compiled Program, and operators that are not supported. Of a \
model at an address (https://…) only parts are fetched."
    parser = common.parser("inspect", about, EXAMPLES, model=lambda text: text if is_url(text) else Path(text))
    parser.add_argument(
        "--kernels", action="store_true", help="print only the kernels after all passes, and their loops"
    )
    parser.add_argument("--code", action="store_true", help="like --kernels, with WebAssembly or WGSL")
    parser.add_argument(
        "--node", default="", metavar="NAME", help="only the kernels of a node, given by its name or operator"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the whole report of `pyruntime.inspect` as JSON, sizes in bytes"
    )
    common.add_feeds(parser)
    args = parser.parse_args(argv)
    if args.kernels or args.code:
        return _kernels(args)
    options, providers = common.session_options(args)
    options.free_dimension_overrides = common.dims(args)
    try:
        with doing(f"inspecting {args.model}"):
            report = inspect(args.model, options, providers)
    except InvalidModel as error:
        raise error.at(str(args.model)) from None
    if args.json:
        print(json.dumps(report))
    else:
        _print(report)
    if report["unsupported"]:
        raise UnsupportedOp(f"{args.model} has operators that are not supported", hint="see above")
    return 0


def _kernels(args: argparse.Namespace) -> int:
    session = common.session(args)
    try:
        text = session.listing(None, args.node, args.code)
    except SessionFailed:
        text = session.listing(common.feeds(args, session.get_inputs()), args.node, args.code)
    if not text:
        raise InvalidInput(
            f'no kernel belongs to a node "{args.node}"', hint="a fused kernel has the name of its last node"
        )
    print(text)
    return 0


def _print(report: dict[str, Any]) -> None:
    weights, memory = report["weights"], report["memory"]
    types = ", ".join(f"{common.size(size)} {name}" for name, size in weights["types"].items())
    facts = [
        ("graph", report["name"]),
        ("opsets", ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in report["opsets"].items())),
        ("producer", report["producer"]),
        ("IR version", report["ir"]),
        ("weights", f"{weights['tensors']} tensors, {common.size(weights['bytes'])}" + (f": {types}" if types else "")),
        ("files", common.size(report["size"])),
        ("fetched", report["fetched"] and f"{report['fetched']} bytes, {report['fetched'] / report['size']:.2%}"),
    ]
    print(common.table([f for f in facts if f[1]]))
    for kind in ("inputs", "outputs"):
        _values(kind, [NodeArg(**value) for value in report[kind]])
    counts = report["operators"]
    print(f"operators ({sum(counts.values())} nodes)")
    print(common.table([(count, name) for name, count in counts.items()], "r") if counts else "  none")
    if report["unsupported"]:
        print("not supported\n" + "\n".join(f"  {text}" for text in report["unsupported"]))
    if memory is not None:
        print("memory" + (f", if {', '.join(memory['assumed'])} are 1" if memory["assumed"] else ""))
        rows = ("weights", "loading", "run", "peak")
        print(common.table([(key, common.size(memory[key])) for key in rows] + [("fits", report["fits"]["why"])]))
    if report["program"] is not None:
        _program(report["program"])


def _values(title: str, values: list[NodeArg]) -> None:
    print(title)
    print(common.table([(v.name, v.type, common.shape(v.shape)) for v in values]) if values else "  none")


def _program(report: dict[str, Any]) -> None:
    print("program")
    print(common.table([
        ("kernel calls", ", ".join(f"{n} on {place}" for place, n in sorted(report["calls"].items())) or "none"),
        ("functions", f"{report['functions']} distinct, {common.size(report['code'])} of code"),
        ("steps", report["steps"]),
        ("nodes", ", ".join(f"{count} {place}" for place, count in report["nodes"].items())),
    ]))  # fmt: skip
