"""`pyruntime profile MODEL`: the time of each kernel of a run."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from pathlib import Path

from pyruntime.cli import common
from pyruntime.cli.parser import between
from pyruntime.cli.progress import counted
from pyruntime.native.execution.timing import Timing
from pyruntime.native.tools.advising import best
from pyruntime.onnx.graph import operator_of

EXAMPLES = {
    "model.onnx --top 5": "the five slowest kernels",
    "model.onnx --advice": "what is far from this machine's limits, and what helps",
    "model.onnx --trace t.json": "for chrome://tracing or Perfetto",
}


def main(argv: list[str]) -> int:
    parser = common.parser("profile", "Measure each kernel, run on its own.", EXAMPLES)
    common.add_feeds(parser)
    parser.add_argument(
        "--runs",
        type=between(int, 1),
        default=10,
        metavar="N",
        help="runs; the best time of each call counts (default 10)",
    )
    parser.add_argument(
        "--top", type=between(int, 0), default=20, metavar="N", help="number of kernels to list (default 20)"
    )
    parser.add_argument("--trace", type=Path, metavar="T.json", help="save a Chrome trace (chrome://tracing, Perfetto)")
    parser.add_argument("--advice", action="store_true", help="what is far from this machine's limits, and what helps")
    args = parser.parse_args(argv)
    session = common.session(args)
    feeds = common.feeds(args, session.get_inputs())
    session.run(None, feeds)
    calls = best([session.profile(feeds) for _ in counted("run", range(args.runs))])
    total = sum(c.seconds for c in calls) or 1e-12
    kinds: dict[str, list[float]] = defaultdict(list)
    for c in calls:
        kinds[operator_of(c.node)].append(c.seconds)
    print(f"{len(calls)} kernel calls, {common.duration(total)}")
    print("by operator")
    rows = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    print(common.table([(*share(sum(t), total), f"{len(t)} x", op) for op, t in rows[: args.top]], "rrr"))
    print("by call")
    slowest = sorted(calls, key=lambda c: -c.seconds)[: args.top]
    print(common.table([(*share(c.seconds, total), c.kernel, common.short(c.node)) for c in slowest], "rr"))
    if args.advice:
        from pyruntime.native.tools.advising import advise

        print("advice")
        for text in advise(session, feeds):
            print(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))
    if args.trace is not None:
        args.trace.write_text(json.dumps(trace(calls)))
        print(f"trace saved to {args.trace}")
    return 0


def share(seconds: float, total: float) -> tuple[str, str]:
    return common.duration(seconds), f"{100 * seconds / total:.1f} %"


def trace(calls: list[Timing]) -> dict[str, object]:
    """The calls one after the other, in microseconds, in Chrome's trace event format."""
    events, now = [], 0.0
    for c in calls:
        name = common.short(c.node, 200)
        args = {"kernel": c.kernel, "node": c.node}
        event = {"name": name, "cat": "kernel", "ph": "X", "ts": now, "dur": 1e6 * c.seconds, "pid": 1, "tid": 1}
        events.append({**event, "args": args})
        now += 1e6 * c.seconds
    return {"traceEvents": events, "displayTimeUnit": "ms"}
