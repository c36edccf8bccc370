"""`pyruntime run MODEL`: runs a model once, and prints or saves its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.cli import common
from pyruntime.cli.progress import doing

EXAMPLES = {
    "model.onnx --random": "random inputs",
    "model.onnx --inputs x.npz --out y.npz": "inputs and outputs as NumPy files",
    "model.onnx --random --dim batch=8 --provider webgpu": "on the GPU, with a batch of eight",
}


def main(argv: list[str]) -> int:
    parser = common.parser("run", "Run a model and print its outputs.", EXAMPLES)
    common.add_feeds(parser)
    parser.add_argument("--out", type=Path, metavar="Y.npz", help="save the outputs to this file")
    args = parser.parse_args(argv)
    session = common.session(args)
    feeds = common.feeds(args, session.get_inputs(), default_random=False)
    with doing(f"running {args.model.name}"):
        outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    print(common.table([[name, *summary(value)] for name, value in outputs.items()]))
    if args.out is not None:
        tensors = {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
        np.savez(args.out, **tensors)  # type: ignore[arg-type]
        print(f"{len(tensors)} of {len(outputs)} outputs saved to {args.out}")
    return 0


def summary(value: Any) -> tuple[str, str]:
    """Type and shape; and the elements if they are few, otherwise their range and mean."""
    if value is None:
        return "nothing", ""
    if isinstance(value, list):
        return f"sequence of {len(value)}", ", ".join(" ".join(summary(v)[:1]) for v in value[:4])
    kind = f"{'string' if value.dtype == object else value.dtype} {common.shape(value.shape)}"
    if value.size <= 6 or value.dtype == object:
        rest = " …" if value.size > 6 else ""
        return kind, " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in value.ravel()[:6].tolist()) + rest
    numbers = value.astype(np.float64)
    text = f"min {np.nanmin(numbers):.6g}  mean {np.nanmean(numbers):.6g}  max {np.nanmax(numbers):.6g}"
    nans = int(np.isnan(numbers).sum())
    return kind, f"{text}  {nans} NaN" if nans else text
