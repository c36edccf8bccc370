"""Reports of GPUs: what a measurement says about the limits of the adapter, and the comparison of two reports.

`gpu_report.schema.json` describes the format (docs/benchmarks.md#reports-of-gpus). demo/gpu/report.js is the twin.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT, VERSION = "pyruntime GPU report", 1
HALF = 0.5  # of the nearer bound; kernels below are listed

Peaks = dict[str, float]  # "float32" and perhaps "float16": operations a second; "bandwidth": bytes a second
Report = dict[str, Any]


class NotComparable(Exception):
    """Two reports are not of the same work, or one is no report."""


def peak(type_: str, peaks: Peaks) -> float:
    return peaks.get(type_) or peaks["float32"]


def seconds_at_peak(case: dict[str, Any], peaks: Peaks) -> float:
    return float(case["flops"] / peak(case["type"], peaks))


def entry(case: dict[str, Any], peaks: Peaks, measured: dict[str, Any]) -> dict[str, Any]:
    """The entry of a case: what was measured, rates, and shares of the adapter's limits."""
    seconds = max(measured["milliseconds"]["median"], 1e-6) / 1e3
    told = {key: case[key] for key in ("name", "type", "flops", "bytes")}
    rates = {"gflops": case["flops"] / seconds / 1e9, "gbs": case["bytes"] / seconds / 1e9}
    of_peak, of_bandwidth = seconds_at_peak(case, peaks) / seconds, case["bytes"] / peaks["bandwidth"] / seconds
    bound = "peak" if of_peak > of_bandwidth else "bandwidth"
    shares = {"ofPeak": of_peak, "ofBandwidth": of_bandwidth, "bound": bound, "share": max(of_peak, of_bandwidth)}
    return {**told, **measured, **rates, **shares}


def settle(report: Report) -> None:
    """List the cases below half of the nearer bound, and keep the shaders of these alone, of software adapters none."""
    done = [case for case in report["cases"] if "share" in case]
    slow = sorted((case for case in done if case["share"] < HALF), key=lambda case: float(case["share"]))
    report["slow"] = [case["name"] for case in slow]
    for case in done:
        for kernel in case["kernels"] if case["share"] >= HALF or report["adapter"]["software"] else []:
            kernel.pop("source", None)


def line(case: dict[str, Any]) -> str:
    """A case as a line of text."""
    if "share" not in case:
        return f"{case['name']:38} {case.get('skipped') or 'failed: ' + case['failed']}"
    took = case["milliseconds"]
    rate = f"{case['gflops']:9.1f} GFLOP/s" if case["flops"] else " " * 17
    bound = f"{case['share']:5.0%} of {case['bound']}"
    spread = f"{took['low']:.3f} to {took['high']:.3f}"
    return f"{case['name']:38} {took['median']:10.3f} ms ({spread}) {rate} {case['gbs']:8.1f} GB/s {bound}"


def slow_lines(report: Report) -> Iterator[str]:
    """The cases below half of the nearer bound, with their kernels."""
    by_name = {case["name"]: case for case in report["cases"]}
    yield f"below half of the nearer bound: {len(report['slow'])} of {sum('share' in c for c in report['cases'])}"
    for case in map(by_name.__getitem__, report["slow"]):
        yield f"{case['name']}: {case['share']:.0%} of the {case['bound']}, {case['milliseconds']['median']:.3f} ms"
        for kernel in case["kernels"]:
            how = f"workgroup {kernel['workgroup']} {' '.join(kernel['uses'])}" if "workgroup" in kernel else "CPU"
            yield f"  {kernel['milliseconds']:.3f} ms kernel {kernel['kernel']}, {kernel['node']}, {how}"
        if case["choices"]:
            yield f"  tuned: {json.dumps(case['choices'])}"


def read(path: Path) -> Report:
    """Errors: NotComparable for a file that is no report, or of another version"""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        told = report["format"], report["version"]
    except (ValueError, TypeError, KeyError):
        raise NotComparable(f"{path} is no report of a GPU") from None
    if told != (FORMAT, VERSION):
        raise NotComparable(f"{path} is {told[0]} {told[1]}; this command reads {FORMAT} {VERSION}")
    return dict(report)


def compare(a: Report, b: Report) -> Iterator[str]:
    """Both side by side. Ratios are times of `a` over those of `b`. Errors: NotComparable"""
    if a["work"] != b["work"]:
        raise NotComparable(f"the reports are of different work: {a['work']} and {b['work']}")
    for letter, report in (("A", a), ("B", b)):
        yield f"{letter}: {title(report)}{'' if report['complete'] else '; not all cases'}"
    for key, unit in (("float32", "GFLOP/s"), ("float16", "GFLOP/s"), ("bandwidth", "GB/s")):
        pair = [report["peaks"].get(key) for report in (a, b)]
        if all(pair):
            yield f"{key:38} {pair[0] / 1e9:12.1f} {pair[1] / 1e9:12.1f} {unit:7} B/A {pair[1] / pair[0]:7.2f}"
    ratios = []
    for name, *pair in [*_pairs(a, b, "cases", "milliseconds"), *_pairs(a, b, "models", "webgpu")]:
        ratios.append(pair[0] / pair[1])
        yield f"{name:38} {pair[0]:12.3f} {pair[1]:12.3f} ms      A/B {ratios[-1]:7.2f}"
    if ratios:
        yield f"{f'geometric mean of {len(ratios)}':38} {'':34}A/B {statistics.geometric_mean(ratios):7.2f}"


def title(report: Report) -> str:
    """The adapter, the host, and how it was measured."""
    told = " ".join(filter(None, (report["adapter"].get(key) for key in ("vendor", "architecture", "device"))))
    software = ", software" if report["adapter"]["software"] else ""
    how = f"clock {report['clock']}, {'tuned' if report['settings']['tune'] else 'default'} schedules"
    return f"{told}{software}; {report['host']['name']}; {report['date']}; {how}"


def _pairs(a: Report, b: Report, part: str, key: str) -> Iterator[tuple[str, float, float]]:
    """Names and medians of what both have measured."""
    theirs = {each["name"]: each for each in b[part]}
    for each in a[part]:
        other = theirs.get(each["name"], {})
        if key in each and key in other:
            yield each["name"], max(each[key]["median"], 1e-6), max(other[key]["median"], 1e-6)
