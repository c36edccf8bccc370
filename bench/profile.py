"""python -m bench profile MODEL: time, GFLOP/s, GB/s and share of each kernel of a run, each called on its own.

Natively, or with --chromium in a page. Operations are those of products and convolutions (see bench/flops.py); bytes
are the sizes of the buffers that a call reads and writes, so GB/s is the bandwidth that memory would need without
caches.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench import flops, models
from bench.chromium import BUILD, Chromium, chromium
from pyruntime import InferenceSession
from pyruntime.native.execution.timing import Timing
from pyruntime.native.tools.advising import best
from pyruntime.runtime.explain import evaluate


class Call(NamedTuple):
    """One kernel call: label of its node, name of its function, best time, floating-point operations, bytes."""

    node: str
    kernel: str
    seconds: float
    flops: int
    bytes: int


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench profile", description=__doc__)
    parser.add_argument("model", choices=models.everything(), metavar="MODEL", help="of the zoo or the field")
    parser.add_argument("--chromium", action="store_true", help="in a page instead of natively")
    parser.add_argument("--runs", type=int, default=10, help="the best time of each call counts (default 10)")
    parser.add_argument("--top", type=int, default=25, help="calls to list (default 25)")
    parser.add_argument("--trace", type=Path, help="where the Chrome trace goes (default build/bench/MODEL.trace.json)")
    args = parser.parse_args(argv)
    calls = (in_chromium if args.chromium else native)(args.model, args.runs)
    print(report(calls, args.top))
    path = args.trace or BUILD / f"{args.model}.trace.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(trace(calls)))
    print(f"trace for chrome://tracing or Perfetto: {path}")
    return 0


def native(name: str, runs: int) -> list[Call]:
    session = InferenceSession(models.path(name))
    feeds = models.feeds(name)
    session.run(None, feeds)
    found = best([session.profile(feeds) for _ in range(runs)])
    executor: Any = session._native.latest()
    sizes = _sizes(executor.header, executor.env)
    calls = [Call(c.node, c.kernel, c.seconds, 0, sizes.get((c.node, c.kernel), 0)) for c in found]
    return with_flops(name, calls, session.explain()["nodes"])


def _sizes(header: Mapping[str, Any], env: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return the bytes of the buffers of each call, by its node and kernel; of the last call if these repeat."""
    sizes = [evaluate(buffer["size"], env) or 0 for buffer in header["buffers"]]
    calls = [call for block in header["blocks"][1:] for step in block["steps"] for call in step.get("calls", ())]
    return {(call["node"], call["kernel"]): sum(sizes[b] for b in set(call["buffers"])) for call in calls}


def in_chromium(name: str, runs: int) -> list[Call]:
    with chromium() as browser:
        return in_page(browser, name, runs)


def in_page(browser: Chromium, name: str, runs: int) -> list[Call]:
    with browser.page() as page:
        info = models.info(name)
        profiled, nodes = page.evaluate("([info, runs]) => bench.profile(info, runs)", [info, runs])
    bytes_of = {(c["node"], c["kernel"]): c["bytes"] for c in profiled[0]}
    found = best([[Timing(c["node"], c["kernel"], c["milliseconds"] / 1000) for c in run] for run in profiled])
    calls = [Call(c.node, c.kernel, c.seconds, 0, bytes_of[c.node, c.kernel]) for c in found]
    return with_flops(name, calls, nodes)


def with_flops(name: str, calls: list[Call], explained: list[dict[str, Any]]) -> list[Call]:
    """Assign a node's products to the same number of its longest calls, in the order of execution; products of a fused
    node go to the longest call of the node that contains it."""
    into = {label: node["into"] for node in explained if node.get("into") for label in _labels(node["node"])}
    of_node: dict[str, list[int]] = {}
    for n, call in enumerate(calls):
        for label in _labels(call.node):
            of_node.setdefault(label, []).append(n)
    totals = [0] * len(calls)
    for label, products in flops.by_node(name).items():
        there = of_node.get(label) or [n for other in _labels(into.get(label, "")) for n in of_node.get(other, ())]
        each = products if len(there) >= len(products) else [sum(products)]
        longest = sorted(sorted(there, key=lambda n: -calls[n].seconds)[: len(each)])
        for n, operations in zip(longest, each, strict=False):
            totals[n] += operations
    return [call._replace(flops=n) for call, n in zip(calls, totals, strict=True)]


def _labels(node: str) -> list[str]:
    return re.findall(r'"([^"]*)"', node)


def report(calls: list[Call], top: int) -> str:
    total = sum(call.seconds for call in calls) or 1e-12
    operations = sum(call.flops for call in calls)
    lines = [f"{len(calls)} kernel calls, {1e3 * total:.2f} ms, {operations / total / 1e9:.1f} GFLOP/s"]
    lines.append(f"{'us':>10}{'share':>8}{'GFLOP/s':>10}{'GB/s':>8}  kernel of node")
    for call in sorted(calls, key=lambda c: -c.seconds)[:top]:
        seconds = call.seconds or 1e-9
        rate = f"{call.flops / seconds / 1e9:.1f}" if call.flops else "-"
        where = f"{call.kernel} of {call.node}"[:90]
        share = f"{100 * call.seconds / total:.1f} %"
        lines.append(f"{1e6 * call.seconds:10.1f}{share:>8}{rate:>10}{call.bytes / seconds / 1e9:8.1f}  {where}")
    return "\n".join(lines)


def trace(calls: list[Call]) -> dict[str, Any]:
    """Chrome's trace events: the calls one after the other, in microseconds."""
    events, now = [], 0.0
    for call in calls:
        length = 1e6 * call.seconds
        args = {"kernel": call.kernel, "flops": call.flops, "bytes": call.bytes}
        event = {"name": call.node, "cat": "kernel", "ph": "X", "ts": now, "dur": length, "pid": 1, "tid": 1}
        events.append({**event, "args": args})
        now += length
    return {"traceEvents": events, "displayTimeUnit": "ms"}
