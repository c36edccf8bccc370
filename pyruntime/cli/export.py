"""`pyruntime export MODEL OUT`: compiles a model into a file that sessions open without compiling."""

from __future__ import annotations

from pathlib import Path

from pyruntime.cli import common
from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.program_file import is_program

EXAMPLES = {
    "model.onnx model.pyrt --weights": "a file that needs no model",
    "model.onnx model.pyrt": "a small file, which reads the weights from the model",
    "model.onnx model.pyrt --weights --relaxed": "faster code, for places that have relaxed SIMD",
}


def main(argv: list[str]) -> int:
    parser = common.parser("export", "Compile a model into a file that opens without compiling.", EXAMPLES)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--weights", action="store_true", help="put the weights into the file; it then needs no model")
    code = parser.add_mutually_exclusive_group()
    text = "code that every place of the README's table runs (default)"
    code.add_argument("--portable", action="store_false", dest="relaxed", help=text)
    text = "code with relaxed SIMD: Chromium 114, Firefox 146, Node.js 21 and later, wasmtime"
    code.add_argument("--relaxed", action="store_true", help=text)
    args = parser.parse_args(argv)
    if is_program(args.model):
        raise InvalidInput(f"{args.model} is already a Program", hint="export the ONNX model")
    data = common.session(args).export(args.weights, args.relaxed)
    args.out.write_bytes(data)
    rest = "" if args.weights else f"; it reads weights from {args.model.name}, which must be in the same folder"
    print(f"{args.out}: {common.size(len(data))}{rest}")
    return 0
