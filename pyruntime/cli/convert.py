"""`pyruntime convert MODEL.gguf OUT.onnx`: writes a GGUF file as an ONNX model, on its own codes."""

from __future__ import annotations

from pathlib import Path

from pyruntime.cli.common import size
from pyruntime.cli.parser import Parser, check_out
from pyruntime.cli.progress import doing
from pyruntime.errors import InvalidInput, InvalidModel, not_found
from pyruntime.native.tools.gguf_text import gguf_template, gguf_tokenizer, is_gguf_file
from pyruntime.native.tools.optimized_model import save_optimized

EXAMPLES = {"model.gguf model.onnx": "model.onnx, and tokenizer.json and chat_template.jinja beside it"}


def main(argv: list[str]) -> int:
    parser = Parser("convert", "Write the decoder of a GGUF file as an ONNX model.", EXAMPLES)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a GGUF file")
    parser.add_argument("out", type=Path, metavar="OUT", help="the new ONNX model")
    args = parser.parse_args(argv)
    if not args.model.is_file():
        raise not_found(args.model)
    if not is_gguf_file(args.model):
        raise InvalidInput(f"{args.model} is no GGUF file", hint="such files begin with GGUF")
    check_out(args.out, args.model)
    with doing(f"converting {args.model.name}"):
        save_optimized(args.model, args.out)
    print(f"{args.out}: {size(args.out.stat().st_size)}")
    try:
        _write(args.out.with_name("tokenizer.json"), gguf_tokenizer(args.model))
    except InvalidModel as error:
        print(f"no tokenizer.json: {error}")
    if template := gguf_template(args.model)[0]:
        _write(args.out.with_name("chat_template.jinja"), template.encode())
    return 0


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    print(f"{path}: {size(len(data))}")
