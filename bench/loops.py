"""python -m bench loops: recurrences as Loop and Scan, each step by the executor, as compiled, and in onnxruntime.

Processor time of a step in microseconds, natively, least of several turns in which the three alternate; wall-clock time
if there are several threads. As compiled, a loop is one procedure, or WebAssembly runs its steps. The last columns are:

- the ratio of the loop as compiled to onnxruntime's time
- the ratio of opening it to opening it without a procedure: creating the session and its first run, for the smallest
  number of steps above 1
- how the loop runs
- the largest difference from onnxruntime's results, as a fraction of the largest number among these

--page: see bench/loops_page.py.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime
from onnx import ModelProto

from bench import loops_page, machine
from bench.loop_models import BUILDERS, Feeds, build
from pyruntime import InferenceSession, SessionOptions

Run = Callable[[], list[Any]]
STEP_BY_STEP = ["hoisted_products", "whole_loops"]
REPEATS = "pyruntime.native.execution.control.repeats"  # without it the executor runs each step
LEAST = 0.02  # seconds of a turn


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench loops", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {' '.join(BUILDERS)}; default: all")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 64, 1024, 4096], help="default 1 64 1024 4096")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--page", nargs="*", choices=loops_page.CONFIGURATIONS, help="in Chromium; default: all")
    parser.add_argument("--seconds", type=float, default=2, help="of the turns of a model in the page")
    options = parser.parse_args(argv)
    if options.page is not None:
        page = options.page or [*loops_page.CONFIGURATIONS]
        loops_page.lines(options.models or BUILDERS, options.steps, page, options.seconds)
        return 0
    print(f"{machine.processor()}, load {machine.load()}, {machine.commit()}; threads: {options.threads}, us a step")
    print(f"{'model':20}{'steps':>7}{'executor':>14}{'compiled':>11}{'onnxruntime':>13}{'ratio':>7}{'opening':>9}")
    opened = min((n for n in options.steps if n > 1), default=0)
    for name in options.models or BUILDERS:
        for steps in options.steps:
            line(name, steps, options.threads, options.turns, steps == opened)
    return 0


def line(name: str, steps: int, threads: int, turns: int, opens: bool) -> None:
    """opens: whether to measure opening"""
    model, feeds = build(name, steps)
    raw = model.SerializeToString()
    runs: list[Run | None] = [ours(raw, feeds, threads, STEP_BY_STEP), ours(raw, feeds, threads, []), None]
    try:
        runs[2] = theirs(raw, feeds, threads)
    except Exception:  # an operator that it lacks
        pass
    best = [float("nan") if run is None else float("inf") for run in runs]
    for _ in range(turns):
        for n, run in enumerate(runs):
            if run is not None:
                with patch(REPEATS, lambda *_: None) if n == 0 else nullcontext():
                    best[n] = min(best[n], seconds(run, time.process_time if threads == 1 else time.perf_counter))
    before, after, peer = (1e6 * x / steps for x in best)
    session = InferenceSession(raw, providers=["wasm"])
    how = ", ".join(dict.fromkeys(row["loop"] for row in session.explain()["nodes"] if row["loop"])) or "no loop"
    ratio = f"{opening(model, feeds, threads, turns):9.2f}" if opens else " " * 9
    print(f"{name:20}{steps:7}{before:14.2f}{after:11.2f}{peer:13.2f}{after / peer:7.2f}{ratio}  {how}", end="")
    peer_run = runs[2]
    print("" if peer_run is None else f"  {difference(session.run(None, feeds), peer_run()):.1e}", flush=True)


def opening(model: ModelProto, feeds: Feeds, threads: int, turns: int) -> float:
    """Processor time of opening with one procedure, over that step by step, without compiled code in a cache: least of
    turns in which they alternate."""
    best = [float("inf"), float("inf")]
    for turn in range(turns + 1):  # the first one imports modules
        for n, disabled in enumerate(([], STEP_BY_STEP)):
            model.graph.name = f"turn {turn}"
            with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, XDG_CACHE_HOME=cache):
                start = time.process_time()
                ours(model.SerializeToString(), feeds, threads, disabled)()
                taken = time.process_time() - start
            best[n] = min(best[n], taken if turn else best[n])
    return best[0] / best[1]


def ours(raw: bytes, feeds: Feeds, threads: int, disabled: list[str]) -> Run:
    options = SessionOptions(intra_op_num_threads=threads, disabled_passes=disabled)
    session = InferenceSession(raw, options, providers=["wasm"])
    return lambda: session.run(None, feeds)


def theirs(raw: bytes, feeds: Feeds, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, feeds))


def seconds(run: Run, clock: Callable[[], float] = time.process_time) -> float:
    """Time of a run; short ones are repeated."""
    run()
    start, count = clock(), 0
    while (taken := clock() - start) < LEAST or not count:
        run()
        count += 1
    return taken / count


def difference(got: list[Any], want: list[Any]) -> float:
    pairs = [(a.astype(np.float64), b) for a, b in zip(got, want, strict=True) if a.size]
    return max((float(np.abs(a - b).max() / max(np.abs(b).max(), 1)) for a, b in pairs), default=0.0)
