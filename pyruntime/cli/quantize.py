"""`pyruntime quantize MODEL OUT`: weights and activations of 8 bits, by samples."""

from __future__ import annotations

from pyruntime.cli import common, samples
from pyruntime.cli.parser import Parser, between, check_out
from pyruntime.cli.progress import doing

EXAMPLES = {
    "model.onnx small.onnx --samples x.npz": "ranges of activations from the arrays of a file",
    "model.onnx small.onnx --samples . --calibration entropy": "from all .npz files of a folder",
}


def main(argv: list[str]) -> int:
    from pyruntime.native.tools.quantization import quantize_static

    parser = Parser("quantize", "Write a model whose weights and activations have 8 bits.", EXAMPLES)
    samples.add_arguments(parser)
    text = "ranges of activations: range (default), percentile or entropy"
    parser.add_argument("--calibration", default="range", metavar="NAME", help=text)
    parser.add_argument("--percentile", type=between(float, 0, 100), default=99.99, metavar="P", help="default 99.99")
    text = "leave layers with such names as they are; may be repeated"
    parser.add_argument("--keep", action="append", default=[], metavar="PATTERN", help=text)
    text = "leave weights floats before QuantizeLinear, for training"
    parser.add_argument("--trainable", action="store_true", help=text)
    args = parser.parse_args(argv)
    check_out(args.out, args.model)
    given = samples.read(args)
    with doing(f"quantising {args.model.name}"):
        found = quantize_static(
            args.model,
            samples.feeds(given, args),
            calibration=args.calibration,
            percentile=args.percentile,
            keep=args.keep,
            trainable=args.trainable,
        )
    found.save(args.out)
    rows: list[list[object]] = [["layer", "operator", "weight", "before", "after"]]
    for a in found.layers:
        rows.append([common.short(a.name), a.op, common.shape(a.shape), common.size(a.before), common.size(a.after)])
    print(common.table(rows, "lllrr"))
    print(samples.report(args, given))
    return 0
