"""python -m bench gpu: what the native WebGPU adapter can do, and how near the kernels come.

Measures copies and multiply-adds by small shaders, then products, attention, reductions, convolutions and elementwise
operators (kit/gpu_cases.py), and networks on the GPU and on WebAssembly. --report writes all of it for others to
compare with; --compare prints two reports side by side. The page "Your GPU" of the demo site writes the same reports.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import gpu_report, machine
from bench.gpu_measure import LONG, RUNS, WARM_UP, measure, network
from bench.gpu_probes import Probes
from kit import gpu_cases
from pyruntime.providers.webgpu.wgpu_host import GpuHost


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("--filter", default="", metavar="RE", help="only cases and networks whose name matches")
    how = "tune schedules first (default: unless the adapter is software)"
    parser.add_argument("--tune", action=argparse.BooleanOptionalAction, help=how)
    parser.add_argument("--report", type=Path, metavar="OUT.json", help="write the report to this file")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A.json", "B.json"), help="two reports, as ratios")
    args = parser.parse_args(argv)
    if args.compare:
        return compare(*args.compare)
    report = measured(re.compile(args.filter), args.tune)
    print(*gpu_report.slow_lines(report), sep="\n")
    if args.report:
        args.report.write_text(json.dumps(report, indent=1) + "\n")
        print(f"written to {args.report}")
    return int(any("failed" in each for each in [*report["cases"], *report["models"]]))


def compare(a: Path, b: Path) -> int:
    try:
        print(*gpu_report.compare(gpu_report.read(a), gpu_report.read(b)), sep="\n")
    except gpu_report.NotComparable as error:
        print(f"bench gpu: {error}")
        return 1
    return 0


def measured(chosen: re.Pattern[str], tune: bool | None) -> gpu_report.Report:
    """The report; prints each line of it."""
    host, table = GpuHost(), gpu_cases.everything()
    tune = not host.adapter.software if tune is None else tune
    report = about(host, table["work"], tune)
    print(gpu_report.title(report), flush=True)
    peaks = report["peaks"] = limits(host, table["probes"])
    print(", ".join(f"{name} {rate / 1e9:.1f} G/s" for name, rate in peaks.items()), flush=True)
    for case in table["cases"]:
        if chosen.search(case["name"]):
            report["cases"].append(measure(case, peaks, host.adapter.software, host.adapter.f16, tune))
            print(gpu_report.line(report["cases"][-1]), flush=True)
    for case in table["models"]:
        if chosen.search(case["name"]):
            report["models"].append(network(case))
            print(network_line(report["models"][-1]), flush=True)
    gpu_report.settle(report)
    report["complete"] = len(report["cases"] + report["models"]) == len(table["cases"] + table["models"])
    return report


def about(host: GpuHost, work: str, tune: bool) -> gpu_report.Report:
    """A report without measurements."""
    adapter = host.device.adapter
    told = {key: str(adapter.info.get(key, "")) for key in ("vendor", "architecture", "device", "description")}
    system = f"CPython {platform.python_version()}, wgpu {version('wgpu')}, {platform.system()}"
    return {
        "format": gpu_report.FORMAT, "version": gpu_report.VERSION, "work": work, "complete": False,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine": machine.commit(),
        "host": {"kind": "native", "name": system, "processor": machine.processor(), "load": machine.load()},
        "adapter": {**told, "software": host.adapter.software, "backend": str(adapter.info.get("backend_type", ""))},
        "features": sorted(map(str, adapter.features)),
        "limits": {camel(name): value for name, value in sorted(adapter.limits.items())},
        "clock": "timestamp-query" if host.adapter.timestamps else "queue",
        "settings": {"warmUp": WARM_UP, "runs": RUNS, "milliseconds": LONG, "tune": tune},
        "peaks": {}, "cases": [], "models": [], "slow": [],
    }  # fmt: skip


def camel(name: str) -> str:
    """The name of a limit, as in browsers."""
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def limits(host: GpuHost, probes: dict[str, Any]) -> gpu_report.Peaks:
    shaders = Probes(host.device, host.adapter.timestamps)
    types = ["float32", "float16"] if host.adapter.f16 else ["float32"]
    return {name: shaders.peak(probes[name]) for name in types} | {"bandwidth": shaders.copies(probes["copy"])}


def network_line(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"{found['name']:38} failed: {found['failed']}"
    gpu, cpu = (found[place]["median"] for place in ("webgpu", "wasm"))
    return f"{found['name']:38} {gpu:10.3f} ms, on WebAssembly {cpu:.3f} ms, error {found['error']}"


__all__ = ["main"]
