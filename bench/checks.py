"""python -m bench checks: the cost of checking indices from data (ADR 43), natively on one thread.

Each model is compiled twice, with checks and without, and both run in turns. Times are processor time, so that other
work on the machine counts less: those of the fastest runs, their ratio, and the median over the turns of the ratios of
medians. `work` does not depend on other work on the machine: the additional WebAssembly instructions of a run, which
wasmtime counts as fuel. Models without checks have the same code twice and are not timed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bench import models
from bench.instructions import count
from pyruntime import InferenceSession
from pyruntime.frontend import requirements
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, dim, select

LEAST = 0.05  # seconds of a turn, which has as many runs as fit


def trusted(i: Expr, extent: Any, node: str, *, from_end: bool = False) -> Expr:
    """`expr.checked` without the check."""
    i = cast(i, I32)
    return select(i < 0, i + (extent if isinstance(extent, Expr) else dim(extent)), i) if from_end else i


@contextmanager
def indices_trusted() -> Iterator[None]:
    with patch.object(requirements, "checked", trusted):
        yield


def turn(session: InferenceSession, feeds: Any, runs: int) -> list[float]:
    """Return the milliseconds of each run."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        session.run(None, feeds)
        times.append(1e3 * (time.process_time() - start))
    return times


def code(session: InferenceSession) -> list[Any]:
    return [program.program.part(program.header["modules"]["wasm"]) for program in session._native.executors.values()]


def one(name: str, turns: int) -> tuple[float, float]:
    """Print the line of a model. Returns the median ratio of its times, and the ratio of its instructions."""
    feeds = models.feeds(name)
    checked = InferenceSession(models.path(name))
    checked.run(None, feeds)
    with indices_trusted():
        free = InferenceSession(models.path(name))
        free.run(None, feeds)
    nodes = max(len(executor.checked) for executor in checked._native.executors.values())
    if code(checked) == code(free):
        print(f"{name:22}{nodes:7}{'the same code':>49}", flush=True)
        return 1.0, 1.0
    counted = count(name)
    with indices_trusted():
        work = counted / count(name)
    runs = max(1, round(1e3 * LEAST / turn(checked, feeds, 1)[0]))
    pairs = []
    for n in range(turns):
        first, second = (turn(session, feeds, runs) for session in ((checked, free) if n % 2 else (free, checked)))
        pairs.append((first, second) if n % 2 else (second, first))
    ratio = statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)
    with_checks, without = (min(map(min, side)) for side in zip(*pairs, strict=True))
    more = [f"{100 * (r - 1):+8.2f}%" for r in (with_checks / without, ratio, work)]
    print(f"{name:22}{nodes:7}{without:11.3f}{with_checks:11.3f}{''.join(more)}", flush=True)
    return ratio, work


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench checks", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: the zoo and Silero")
    parser.add_argument("--turns", type=int, default=31, help="of each model (default 31)")
    args = parser.parse_args(argv)
    os.environ["PYRUNTIME_DISABLE_PROGRAM_CACHE"] = "1"  # cached Programs have checks
    print(f"{'model':22}{'checks':>7}{'without ms':>11}{'with ms':>11}{'fastest':>9}{'median':>9}{'work':>9}")
    ratios = [one(name, args.turns) for name in args.models or models.names()]
    for what, of in zip(("time", "work"), zip(*ratios, strict=True), strict=True):
        mean = math.exp(statistics.fmean(map(math.log, of)))
        words = f"{100 * (mean - 1):+.2f} % in the geometric mean, {100 * (max(of) - 1):+.2f} % at most"
        print(f"checks: {len(of)} models, {what}: {words}")
    return 0
