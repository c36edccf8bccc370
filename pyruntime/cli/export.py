"""`pyruntime export MODEL OUT`: compile once, into a file that `run` and `InferenceSession` open without compiling."""

from __future__ import annotations

from pathlib import Path

from pyruntime.cli import common
from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.program_file import is_program

EXAMPLES = {
    "model.onnx model.pyrt --weights": "all in one file",
    "model.onnx model.pyrt": "a small one, for a page that has the model, too",
}


def main(argv: list[str]) -> int:
    parser = common.parser("export", "Compile a model into a file that runs without compiling.", EXAMPLES)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--weights", action="store_true", help="put the weights into the file: no model needed")
    args = parser.parse_args(argv)
    if is_program(args.model):
        raise InvalidInput(f"{args.model} is a Program already", hint="give the ONNX model that it was made from")
    data = common.session(args).export(args.weights)
    args.out.write_bytes(data)
    rest = "" if args.weights else f"; it reads weights from {args.model.name}, which must lie beside it"
    print(f"{args.out}: {common.size(len(data))}{rest}")
    return 0
