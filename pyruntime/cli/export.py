"""`pyruntime export MODEL OUT`: compiles a model into a file that sessions open without compiling, or writes it with
weights of fewer bits."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pyruntime.cli import common
from pyruntime.cli.parser import between, check_out
from pyruntime.cli.progress import doing
from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.program_file import is_program, needs_of_file
from pyruntime.native.tools.wasm_module import as_module
from pyruntime.placement.provider_list import AUTO
from pyruntime.providers import BASE, ENGINES

EXAMPLES = {
    "model.onnx model.pyrt --weights": "a file that needs no model",
    "model.onnx model.pyrt": "a small file, which reads the weights from the model",
    "model.onnx model.pyrt --weights --relaxed": "faster code, for places that have relaxed SIMD",
    "model.onnx model.pyrt --weights --provider webgpu": "code for the GPU, and for places without one",
    "model.onnx model.pyrt --weights --provider webgpu --assume f16": "shaders that need half floats",
    "model.onnx model.pyrt --weights --adapter style.safetensors": "with places for LoRA adapters of the same modules",
    "model.onnx model.wasm --module": "a module for edge workers, which import it",
    "model.onnx small.pyrt --bits 4": "weights of 4 bits",
    "model.onnx small.onnx --onnx --bits 4 --inputs x.npz --max-error 0.05": "an ONNX model within an error",
}


def main(argv: list[str]) -> int:
    parser = common.parser("export", "Compile a model into a file that opens without compiling.", EXAMPLES)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--weights", action="store_true", help="put the weights into the file; it then needs no model")
    code = parser.add_mutually_exclusive_group()
    text = "code that every place of the README's table runs (default)"
    code.add_argument("--portable", action="store_false", dest="relaxed", default=False, help=text)
    text = "code with relaxed SIMD: Chromium 114, Firefox 146, Node.js 21 and later, wasmtime"
    code.add_argument("--relaxed", action="store_true", help=text)
    text = "let shaders use f16, subgroups, dot4, storage_buffers=N, binding_bytes=N or shared_bytes=N, "
    text += "or suit software adapters; may be repeated"
    parser.add_argument("--assume", action="append", default=[], metavar="WHAT", help=text)
    text = "without code for places whose GPU lacks what the shaders need"
    parser.add_argument("--gpu-only", action="store_true", help=text)
    text = "write a .wasm file, for edge workers and bundlers: places that import a module, and compile no bytes"
    parser.add_argument("--module", action="store_true", help=text)
    text = "leave places for LoRA adapters of the same modules as this one; may be repeated"
    parser.add_argument("--adapter", type=Path, action="append", default=[], metavar="FILE", help=text)
    _add_bits(parser)
    args = parser.parse_args(argv)
    check_out(args.out, args.model)
    if is_program(args.model):
        raise InvalidInput(f"{args.model} is already a Program", hint="export the ONNX model")
    if args.module:
        return _export_module(args)
    if args.bits is None:
        if args.onnx or args.keep or args.max_error is not None:
            raise InvalidInput("--onnx, --keep and --max-error need --bits", hint="for example --bits 8")
        return _export(args, args.weights)
    if args.onnx and (args.adapter or args.assume or args.relaxed or args.gpu_only):
        raise InvalidInput("--adapter, --assume, --relaxed and --gpu-only are of Programs", hint="leave out --onnx")
    with tempfile.TemporaryDirectory() as folder:
        small = args.out if args.onnx else Path(folder, args.model.name)
        _quantize(args, small)
        if args.onnx:
            return 0
        args.model = small
        return _export(args, True)


def _export(args: argparse.Namespace, with_weights: bool) -> int:
    if args.gpu_only and args.provider != "webgpu":
        raise InvalidInput("--gpu-only needs --provider webgpu")
    named = [args.provider] if args.gpu_only or args.provider in (BASE, AUTO) else [args.provider, BASE]
    if args.provider in ENGINES or args.provider == AUTO:
        args.provider = BASE  # this host needs no GPU
    adapters = {str(path): path for path in args.adapter}
    data = common.session(args, adapters).export(with_weights, args.relaxed, named, args.assume)
    args.out.write_bytes(data)
    rest = "" if with_weights else f"; it reads weights from {args.model.name}, which must be in the same folder"
    print(f"{args.out}: {common.size(len(data))}{rest}")
    if needs := needs_of_file(data):
        found = [f"{name} {value}" for name, value in needs.items() if value is not False]
        print(f"its shaders need of a GPU: {', '.join(found)}")
    elif "webgpu" in named:
        print("it has no shaders: no kernel of this model pays on a GPU (--gpu-only writes them all the same)")
    return 0


def _export_module(args: argparse.Namespace) -> int:
    if args.bits or args.provider not in (BASE, AUTO):
        raise InvalidInput("--module writes code for WebAssembly", hint="first --bits N --onnx, then --module")
    args.threads = 1
    adapters = {str(path): path for path in args.adapter}
    data = as_module(common.session(args, adapters).export(True, args.relaxed, [BASE]))
    args.out.write_bytes(data)
    print(f"{args.out}: {common.size(len(data))}")
    print(f"import module from './{args.out.name}'; import {{ InferenceSession }} from 'pyruntime/module';")
    return 0


def _add_bits(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument_group(
        "fewer bits", "constant weights of MatMul, Gemm, Gather and convolutions become codes"
    )
    out.add_argument("--bits", type=int, choices=(4, 8, 16), help="bits of a weight; the file contains the weights")
    text = "leave layers with such names as they are; may be repeated"
    out.add_argument("--keep", action="append", default=[], metavar="PATTERN", help=text)
    text = "give layers more bits until each output is within this error, relative to its size"
    out.add_argument("--max-error", type=between(float, 0), metavar="E", help=text)
    text = "weights with fewer elements stay as they are (default 16384)"
    out.add_argument("--smallest", type=between(int, 0), default=16384, metavar="N", help=text)
    out.add_argument("--onnx", action="store_true", help="write an ONNX model, which other runtimes open, too")
    common.add_feeds(out)


def _quantize(args: argparse.Namespace, out: Path) -> None:
    """Writes the model with fewer bits to `out`, and prints what became of its layers."""
    from pyruntime.native.tools.quantization import quantize

    samples = []
    if args.inputs is not None or args.random:
        session = common.session(args)
        samples.append(common.feeds(args, session.get_inputs()))
        session.release()
    with doing(f"quantising {args.model.name}"):
        found = quantize(
            args.model,
            args.bits,
            samples=samples,
            max_error=args.max_error,
            keep=args.keep,
            smallest=args.smallest,
        )
        found.save(out)
    rows: list[list[object]] = [["layer", "operator", "weight", "bits", "before", "after", "error"]]
    for a in found.layers:
        error = "" if a.error is None else f"{a.error:.2g}"
        sizes = [common.size(a.before), common.size(a.after)]
        rows.append([common.short(a.name), a.op, common.shape(a.shape), a.bits, *sizes, error])
    print(common.table(rows, "lllrrrr"))
    if worst := max((a for a in found.layers if a.error is not None), key=lambda a: a.error or 0, default=None):
        print(f'largest error of a layer: {worst.error:.2g} in "{worst.name}"')
    for name, off in found.errors.items():
        print(f'error of output "{name}": {off:.2g}')
    print(f"{args.model}: {common.size(args.model.stat().st_size)}; {out.name}: {common.size(found.size)}")
