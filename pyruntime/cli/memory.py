"""`pyruntime memory MODEL`: the memory of a run, and a drawing of the address and lifetime of each buffer."""

from __future__ import annotations

from pathlib import Path

from pyruntime.cli import common
from pyruntime.cli.parser import between
from pyruntime.cli.progress import doing
from pyruntime.cli.timeline import draw, page, record

EXAMPLES = {
    "model.onnx --dim batch=8": "with a batch of eight",
    "model.onnx --html plan.html": "a page that draws every buffer",
}


def main(argv: list[str]) -> int:
    parser = common.parser("memory", "Print and draw the memory plan of a run.", EXAMPLES)
    common.add_feeds(parser)
    parser.add_argument(
        "--svg",
        type=Path,
        metavar="M.svg",
        help="save a drawing: a rectangle for each buffer, over kernel calls and addresses",
    )
    parser.add_argument("--html", type=Path, metavar="M.html", help="save the drawing as a page")
    parser.add_argument(
        "--top", type=between(int, 0), default=8, metavar="N", help="number of buffers to list at the peak (default 8)"
    )
    args = parser.parse_args(argv)
    session = common.session(args)
    feeds = common.feeds(args, session.get_inputs())
    with doing(f"running {args.model.name}"):
        session.run(None, feeds)
        spans = record(session, feeds)
    report = session.memory()
    rows = [("", "weights", "peak", "requested", "reuse", "fragmentation")]
    for name, s in report.providers.items():
        numbers = (common.size(s.weights), common.size(s.peak), common.size(s.requested))
        rows.append((name, *numbers, f"{s.reuse:.1f} x", f"{100 * s.fragmentation:.0f} %"))
    print(common.table(rows, "lrrrrr"))
    print(f"linear memory: {common.size(report.arena)}")
    end = max((s.end for s in spans), default=0)
    sizes = [sum(s.size for s in spans if s.start <= t < s.end) for t in range(end)]
    if sizes:
        peak = sizes.index(max(sizes))
        print(f"alive at the peak, call {peak} of {end}")
        alive = sorted((s for s in spans if s.start <= peak < s.end), key=lambda s: -s.size)[: args.top]
        listed = [(common.size(s.size), f"calls {s.start} to {s.end - 1}", common.short(s.name)) for s in alive]
        print(common.table(listed, "r"))
    for path, text in ((args.svg, draw), (args.html, page)):
        if path is not None:
            weights = {name: s.weights for name, s in report.providers.items()}
            path.write_text(text(spans, args.model.name, weights), encoding="utf-8")
            print(f"drawing saved to {path}")
    return 0
