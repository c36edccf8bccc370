"""`pyruntime tune MODEL`: finds the fastest schedules of its kernels on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from pyruntime.cli import common
from pyruntime.cli.parser import between
from pyruntime.cli.progress import doing
from pyruntime.errors import InvalidInput
from pyruntime.native.tools.tuning import tune

EXAMPLES = {
    "model.onnx": "print what other schedules gain",
    "model.onnx --save c.json": "then `pyruntime export model.onnx model.pyrt --choices c.json`",
    "model.onnx --provider webgpu": "tune for this GPU",
}


def main(argv: list[str]) -> int:
    parser = common.parser("tune", "Measure other schedules of the kernels, and choose the fastest.", EXAMPLES)
    common.add_feeds(parser)
    parser.add_argument(
        "--seconds", type=between(float, 0, 1e6), default=2.0, help="time for each candidate (default 2)"
    )
    parser.add_argument("--save", type=Path, metavar="C.json", help="save the chosen schedules")
    args = parser.parse_args(argv)
    if args.choices is not None:
        raise InvalidInput("`tune` takes no --choices: it finds them")
    session = common.session(args)
    feeds = common.feeds(args, session.get_inputs())
    with doing(f"measuring {args.model.name}"):
        tuned = tune(session, feeds, args.seconds)
    for kernel in tuned.kernels:
        values = ", ".join(f"{knob} {value}" for knob, value in kernel.chosen.items())
        more = f" and {len(kernel.nodes) - 1} equal" if len(kernel.nodes) > 1 else ""
        print(f"  {kernel.before / kernel.after:.2f} x  {values}  {common.short(kernel.nodes[0])}{more}")
    before, after = common.duration(tuned.before), common.duration(tuned.after)
    print(f"run {before} by default, {after} tuned: {tuned.gain:.2f} times as fast; tuning took {tuned.took:.1f} s")
    if args.save is not None:
        args.save.write_text(json.dumps(tuned.choices, indent=1) + "\n")
        print(f"choices saved to {args.save}")
    return 0
