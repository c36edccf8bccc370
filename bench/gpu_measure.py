"""Measures the cases of kit/gpu_cases.py on the native WebGPU adapter. demo/gpu/measure.js is the twin.

Kernels run alone, `repeat` times in a row, so that they last LONG altogether; a time is the mean of them. Medians are
over RUNS such times after a warm-up. Results are compared with those of WebAssembly.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.gpu_report import Peaks, entry, seconds_at_peak
from kit.gpu_cases import Case, opened
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import PyRuntimeError

LONG = 5.0  # milliseconds of the repeated kernels of a case
MOST = 500  # repetitions
GUESS = 20  # repetitions of a first estimate: clocks of pages have steps of 0.1 ms
RUNS, BUDGET, LEAST = 9, 3.0, 3  # runs; seconds of a case, but so many runs
WARM_UP = 2
LONGEST = 0.05  # seconds at the peak; longer cases are skipped
FEW = 3e8  # operations; software adapters skip more
COMPARED = 5e9  # operations; larger results are not compared
LISTED = 10  # kernels of a network

Times = dict[str, Any]


def spread(times: list[float]) -> Times:
    """Milliseconds: the median, the lowest and the highest."""
    return {"median": statistics.median(times), "low": min(times), "high": max(times), "runs": len(times)}


def measure(case: Case, peaks: Peaks, software: bool, half: bool, tune: bool) -> dict[str, Any]:
    """The entry of a case in a report."""
    if case["type"] == "float16" and not half:
        return {"name": case["name"], "skipped": "the adapter has no half floats (shader-f16)"}
    if case["flops"] > FEW if software else seconds_at_peak(case, peaks) > LONGEST:
        return {"name": case["name"], "skipped": "too long on this adapter"}
    try:
        return entry(case, peaks, _measured(case, tune))
    except PyRuntimeError as error:
        return {"name": case["name"], "failed": str(error)}


def opened_on(place: str, model: bytes) -> InferenceSession:
    """A session on one thread, as in the page."""
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(model, options, providers=[place])


def _measured(case: Case, tune: bool) -> dict[str, Any]:
    model, feeds = opened(case)
    session = opened_on("webgpu", model)
    found: dict[str, Any] = {"choices": {}, "error": None}
    if tune:
        found["choices"] = session.tune(feeds, 0).choices
    results = session.run(None, feeds)
    if case["flops"] <= COMPARED:
        found["error"] = difference(results, opened_on("wasm", model).run(None, feeds))
    repeat = _repeat(session, feeds)
    runs = _sampled(lambda: [1e3 * call.seconds for call in session.profile(feeds, repeat=repeat)])
    found |= {"milliseconds": spread([sum(run) for run in runs]), "repeat": repeat}
    medians = [statistics.median(times) for times in zip(*runs, strict=True)]
    return {**found, "kernels": kernels(session, session.profile(feeds), medians)}


def _repeat(session: InferenceSession, feeds: dict[str, np.ndarray]) -> int:
    """How often kernels run, by their times in the warm-up."""
    repeat, took = 1, 0.0
    for _ in range(WARM_UP):
        took = 1e3 * sum(call.seconds for call in session.profile(feeds, repeat=repeat))
        repeat = 1 if took >= LONG else GUESS
    return max(1, min(MOST, math.ceil(LONG / max(took, LONG / MOST))))


def _sampled(run: Callable[[], Any]) -> list[Any]:
    runs, end = [], time.perf_counter() + BUDGET
    while len(runs) < LEAST or (len(runs) < RUNS and time.perf_counter() < end):
        runs.append(run())
    return runs


def kernels(session: InferenceSession, calls: list[Any], medians: list[float]) -> list[dict[str, Any]]:
    """What is known of each kernel, the slowest first."""
    sources = shaders(session.listing(code=True))
    found = [
        {"node": call.node, "kernel": call.kernel, "milliseconds": took, **about(sources.get(call.kernel, ""))}
        for call, took in zip(calls, medians, strict=True)
    ]
    return sorted(found, key=lambda kernel: -kernel["milliseconds"])


def shaders(listing: str) -> dict[str, str]:
    """The WGSL of each kernel in a listing, by its number."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in listing.splitlines():
        if head := re.fullmatch(r"  code (\d+)", line):
            lines = found.setdefault(head[1], [])
        elif lines is not None and line.startswith("    "):
            lines.append(line[4:])
        else:
            lines = None
    return {number: "\n".join(lines) for number, lines in found.items()}


def about(source: str) -> dict[str, Any]:
    """Workgroup and features of a shader, by its text; nothing for a kernel on the CPU."""
    size = re.search(r"@workgroup_size\((.*?)\)", source)
    if size is None:
        return {"place": "wasm"}
    words = {"shared": "var<workgroup>", "subgroups": "subgroup", "half": "f16"}
    uses = [name for name, word in words.items() if word in source]
    return {"place": "webgpu", "workgroup": size[1].replace(" ", ""), "uses": uses, "source": source}


def network(case: Case) -> dict[str, Any]:
    """A network on both providers, which take turns, and its slowest kernels."""
    model, feeds = opened(case)
    try:
        sessions = {place: opened_on(place, model) for place in ("webgpu", "wasm")}
        results = {place: session.run(None, feeds) for place, session in sessions.items()}
        for _ in range(WARM_UP):
            for session in sessions.values():
                session.run(None, feeds)
        runs = _sampled(lambda: [_timed(session, feeds) for session in sessions.values()])
    except PyRuntimeError as error:
        return {"name": case["name"], "failed": str(error)}
    times = dict(zip(sessions, (spread(list(took)) for took in zip(*runs, strict=True)), strict=True))
    calls = sessions["webgpu"].profile(feeds)
    listed = kernels(sessions["webgpu"], calls, [1e3 * call.seconds for call in calls])[:LISTED]
    for kernel in listed:
        kernel.pop("source", None)
    error = difference(results["webgpu"], results["wasm"])
    return {"name": case["name"], **times, "error": error, "kernels": listed}


def _timed(session: InferenceSession, feeds: dict[str, np.ndarray]) -> float:
    """Milliseconds of a run."""
    start = time.perf_counter()
    session.run(None, feeds)
    return 1e3 * (time.perf_counter() - start)


def difference(got: list[Any], want: list[Any]) -> float | None:
    """The largest difference, relative to the largest value of its output; None if a value is not finite."""
    found = 0.0
    for a, b in zip(got, want, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        found = max(found, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return found if math.isfinite(found) else None
