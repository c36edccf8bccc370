"""`pyruntime serve --model NAME=PATH`: a server of models by the Open Inference Protocol (docs/use/serving.md)."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pyruntime.cli.parser import Parser, between, threads
from pyruntime.errors import InvalidInput, InvalidModel, NotSupported

EXAMPLES = {
    "--model digits=demo/digits/digits.onnx": "REST on port 8080, gRPC on port 8081, this machine's programs only",
    "--model a=a.onnx --model b=b.onnx --host 0.0.0.0": "two models, for all",
    "--model a=a.onnx --batch 16 --wait 2": "requests run together",
}


# Name, type, default, metavar, help
NUMBERS = (
    ("port", between(int, 0, 65535), 8080, "N", "of REST (default 8080; 0: a free one)"),
    ("grpc-port", between(int, 0, 65535), 8081, "N", "of gRPC (default 8081; 0: a free one)"),
    ("timeout", between(float, 1e-3, 1e6), 30.0, "S", "seconds of a request (default 30)"),
    ("requests", between(int, 1, 1 << 20), 64, "N", "a model's at the same time (default 64)"),
    ("body", between(int, 1, 2047), 64, "MB", "size of a request (default 64)"),
    ("batch", between(int, 1, 1 << 20), 1, "N", "rows that run together (default 1: none)"),
    ("wait", between(float, 0, 1e6), 5.0, "MS", "milliseconds to wait for them (default 5)"),
    ("workers", between(int, 1, 1024), os.cpu_count(), "N", "runs at a time (default: cores)"),
    ("threads", threads, 0, "N", "threads of a kernel (default 1)"),
    ("memory", between(int, 1), None, "MB", "limit of a model's memory; its runs take turns then"),
    ("drain", between(float, 0, 1e6), 5.0, "S", "from SIGTERM to closed ports (default 5)"),
)


def parser() -> Parser:
    out = Parser("serve", "Serve models by the Open Inference Protocol.", EXAMPLES)
    out.add_argument("--model", action="append", required=True, metavar="NAME=PATH", help="an ONNX model, or a Program")
    out.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: no other machine)")
    out.add_argument("--provider", default="wasm", metavar="NAME", help="preferred provider: wasm (default), webgpu")
    for name, kind, default, metavar, text in NUMBERS:
        out.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)
    return out


def main(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    paths: dict[str, Path] = {}
    for text in args.model:
        name, _, path = text.partition("=")
        if not (name and path) or "/" in name or name in paths:
            raise InvalidInput(f"--model {text} is not of the form NAME=PATH with a new NAME")
        paths[name] = Path(path)
    sys.argv[1:] = []  # KServe parses it when it is imported
    try:
        from pyruntime import InferenceSession, SessionOptions
        from pyruntime.cli.common import check_provider
        from pyruntime.serving.model import Limits, ServedModel
        from pyruntime.serving.server import serve
    except ModuleNotFoundError as error:
        raise NotSupported(f"{error.name} is not installed", hint='pip install "pyruntime-onnx[serve]"') from None

    check_provider(args.provider)
    limits = Limits(args.requests, args.body << 20, args.timeout, args.drain, args.batch, args.wait, args.workers)
    options = SessionOptions(intra_op_num_threads=args.threads)
    if args.memory is not None:
        options.memory_limit = args.memory << 20
    providers = [args.provider, "wasm"] if args.provider not in ("wasm", "auto") else [args.provider]
    opened = []
    for name, path in paths.items():
        try:
            opened.append(ServedModel(name, InferenceSession(path, options, providers), limits))
        except InvalidModel as error:
            raise error.at(str(path)) from None
    asyncio.run(serve(opened, limits, args.host, args.port, args.grpc_port))
    return 0
