"""`pyruntime bench MODEL`: times of compilation, of the first run, and of later runs."""

from __future__ import annotations

import json
import statistics
import time

from pyruntime.cli import common
from pyruntime.cli.parser import between
from pyruntime.cli.progress import counted

EXAMPLES = {
    "model.onnx": "random inputs; 1 for named dims",
    "model.onnx --threads 4 --runs 100": "on four threads",
    "model.onnx --json": "machine-readable",
}


def main(argv: list[str]) -> int:
    parser = common.parser("bench", "Measure compilation, the first run and the median run.", EXAMPLES)
    common.add_feeds(parser)
    parser.add_argument(
        "--runs", type=between(int, 1), default=20, metavar="N", help="runs after the first (default 20)"
    )
    parser.add_argument("--json", action="store_true", help="print seconds and bytes as JSON")
    args = parser.parse_args(argv)
    start = time.perf_counter()
    session = common.session(args)
    compiled = time.perf_counter()
    feeds = common.feeds(args, session.get_inputs())
    times = []
    for _ in counted("run", range(1 + args.runs)):
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    first, *warm = times
    memory = session.memory()
    found = {
        "compile": compiled - start, "first": first, "median": statistics.median(warm), "fastest": min(warm),
        "slowest": max(warm), "runs": len(warm), "weights": memory.weights, "peak": memory.peak,
    }  # fmt: skip
    if args.json:
        print(json.dumps(found))
        return 0
    rows = [(name, common.duration(found[name])) for name in ("compile", "first", "median", "fastest", "slowest")]
    print(common.table([*rows, *[(name, common.size(found[name])) for name in ("weights", "peak")]], "lr"))
    return 0
