"""python -m bench checks: what the checks of indices from data cost (ADR 43), natively on one thread.

Each model is compiled twice, as always and with indices trusted, and both run in turns. Times are of the processor, so
that other work on the machine counts less. Models whose code is the same either way cost nothing and are not timed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench import models
from pyruntime import InferenceSession
from pyruntime.frontend import tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, dim, select

LEAST = 0.1  # seconds of a turn, which has as many runs as that takes


def trusted(i: Expr, extent: Any, node: str, *, from_end: bool = False) -> Expr:
    """`expr.checked` without the check."""
    i = cast(i, I32)
    return select(i < 0, i + (extent if isinstance(extent, Expr) else dim(extent)), i) if from_end else i


@contextmanager
def indices_trusted() -> Iterator[None]:
    real, tracer.checked = tracer.checked, trusted  # type: ignore[attr-defined]
    try:
        yield
    finally:
        tracer.checked = real  # type: ignore[attr-defined]


def turn(session: InferenceSession, feeds: Any, runs: int) -> float:
    """Milliseconds of a run."""
    start = time.thread_time()
    for _ in range(runs):
        session.run(None, feeds)
    return 1e3 * (time.thread_time() - start) / runs


def code(session: InferenceSession) -> list[Any]:
    return [program.program.part(program.header["modules"]["wasm"]) for program in session._programs.values()]


def one(name: str, turns: int) -> float:
    """Prints the line of a model; gives the ratio of its times."""
    feeds = models.feeds(name)
    checked = InferenceSession(models.path(name))
    checked.run(None, feeds)
    with indices_trusted():
        free = InferenceSession(models.path(name))
        free.run(None, feeds)
    nodes = max(len(executor.checked) for executor in checked._programs.values())
    if code(checked) == code(free):
        print(f"{name:22}{nodes:7}{'the same code':>31}", flush=True)
        return 1.0
    runs = max(1, round(1e3 * LEAST / turn(checked, feeds, 1)))
    pairs = []
    for n in range(turns):
        both = [checked, free] if n % 2 else [free, checked]
        times = {id(session): turn(session, feeds, runs) for session in both}
        pairs.append((times[id(checked)], times[id(free)]))
    with_checks, without = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"{name:22}{nodes:7}{without:11.3f}{with_checks:11.3f}{100 * (ratio - 1):+8.2f}%", flush=True)
    return ratio


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench checks", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: the zoo and Silero")
    parser.add_argument("--turns", type=int, default=31, help="of each model (default 31)")
    args = parser.parse_args(argv)
    print(f"{'model':22}{'checks':>7}{'without ms':>11}{'with ms':>11}{'median':>9}")
    ratios = [one(name, args.turns) for name in args.models or models.names()]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    mean, most = 100 * (mean - 1), 100 * (max(ratios) - 1)
    print(f"checks: {len(ratios)} models: {mean:+.2f} % in the geometric mean, at most {most:+.2f} %")
    return 0
