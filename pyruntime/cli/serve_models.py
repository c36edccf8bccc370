"""`pyruntime serve --model NAME=PATH`: a server of models by the Open Inference Protocol (docs/use/serving.md)."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pyruntime.cli.parser import Parser
from pyruntime.errors import InvalidInput, NotSupported

EXAMPLES = {
    "--model digits=demo/digits/digits.onnx": "REST on port 8080, gRPC on port 8081, this machine's programs only",
    "--model a=a.onnx --model b=b.onnx --host 0.0.0.0": "two models, for all",
    "--model a=a.onnx --batch 16 --wait 2": "requests run together",
}
# The least and the most
RANGES = {
    "port": (0, 65535), "grpc_port": (0, 65535), "requests": (1, 1 << 20), "body": (1, 2047), "batch": (1, 1 << 20),
    "workers": (1, 1 << 10), "timeout": (1e-3, 1e6), "wait": (0, 1e6), "drain": (0, 1e6),
}  # fmt: skip


def parser() -> Parser:
    out = Parser("serve", "Serve models by the Open Inference Protocol.", EXAMPLES)
    out.add_argument("--model", action="append", required=True, metavar="NAME=PATH", help="an ONNX model, or a Program")
    out.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: no other machine)")
    out.add_argument("--port", type=int, default=8080, help="of REST (default 8080; 0: a free one)")
    out.add_argument("--grpc-port", type=int, default=8081, help="of gRPC (default 8081; 0: a free one)")
    out.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds of a request (default 30)")
    out.add_argument("--requests", type=int, default=64, metavar="N", help="a model's at the same time (default 64)")
    out.add_argument("--body", type=int, default=64, metavar="MB", help="size of a request (default 64)")
    out.add_argument("--batch", type=int, default=1, metavar="N", help="rows that run together (default 1: none)")
    out.add_argument("--wait", type=float, default=5.0, metavar="MS", help="milliseconds to wait for them (default 5)")
    out.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (default: cores)")
    out.add_argument("--threads", type=int, default=0, metavar="N", help="threads of a kernel (default 1)")
    out.add_argument("--provider", default="wasm", metavar="NAME", help="preferred provider: wasm (default), webgpu")
    out.add_argument("--memory", type=int, metavar="MB", help="limit of a model's memory; its runs take turns then")
    out.add_argument("--drain", type=float, default=5.0, metavar="S", help="from SIGTERM to closed ports (default 5)")
    return out


def main(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    for name, (least, most) in RANGES.items():
        if not least <= getattr(args, name) <= most:
            raise InvalidInput(f"--{name.replace('_', '-')} {getattr(args, name)} is not from {least:g} to {most:g}")
    paths: dict[str, Path] = {}
    for text in args.model:
        name, _, path = text.partition("=")
        if not (name and path) or "/" in name or name in paths:
            raise InvalidInput(f"--model {text} is not of the form NAME=PATH with a new NAME")
        paths[name] = Path(path)
    sys.argv[1:] = []  # KServe parses it when it is imported
    try:
        from pyruntime import InferenceSession, SessionOptions
        from pyruntime.serving.model import Limits, ServedModel
        from pyruntime.serving.server import serve
    except ModuleNotFoundError as error:
        raise NotSupported(f"{error.name} is not installed", hint='pip install "pyruntime-onnx[serve]"') from None

    limits = Limits(args.requests, args.body << 20, args.timeout, args.drain, args.batch, args.wait, args.workers)
    options = SessionOptions(intra_op_num_threads=args.threads)
    if args.memory is not None:
        options.memory_limit = args.memory << 20
    providers = [args.provider, "wasm"] if args.provider not in ("wasm", "auto") else [args.provider]
    opened = [ServedModel(name, InferenceSession(path, options, providers), limits) for name, path in paths.items()]
    asyncio.run(serve(opened, limits, args.host, args.port, args.grpc_port))
    return 0
