"""python -m bench overhead: the time of a run besides its kernels.

A chain of trivial kernels (running sums of six floats) is timed at several lengths; the line through the times gives,
at zero kernels, the cost of a run alone: binding feeds, looking up the plan, reading results. Also counts the Python
functions that runs in the browser enter.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import machine
from bench.chromium import Chromium, chromium
from bench.planning import MODELS, planning, timed
from kit.chain import chain
from kit.chromium import Engine
from kit.python_calls import counting
from pyruntime import InferenceSession, browser

LENGTHS = (1, 51, 101)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench overhead", description=__doc__)
    parser.add_argument("--runs", type=int, default=3000, help="of each chain (default 3000)")
    runs = parser.parse_args(argv).runs
    with chromium() as opened:
        print(f"\n{machine.describe(opened.version)}; us a run, medians of {runs}")
        heads = ("no kernel", "a kernel", *(f"{n} kernel{'s' * (n > 1)}" for n in LENGTHS))
        print(f"{'':{34}}" + "".join(f"{head:>12}" for head in heads))
        line("in the worker (executor.run)", lambda n: in_worker(opened, n, runs))
        line("in the page (session.run)", lambda n: in_page(opened, n, runs))
        line("native (executor.run)", lambda n: native(n, runs, inner=True))
        line("native (session.run)", lambda n: native(n, runs, inner=False))
        print_planning(opened)
        print(f"Python functions entered by {COUNTED} runs in the browser: {python_calls(opened)}")
    return 0


COUNTED = 100


def line(title: str, measure: Callable[[int], float]) -> None:
    times = [measure(n) for n in LENGTHS]
    slope, start = np.polyfit(LENGTHS, times, 1)
    print(f"{title:{34}}" + "".join(f"{value:12.2f}" for value in (start, slope, *times)), flush=True)


def print_planning(opened: Chromium) -> None:
    print("\nplanning for new shapes: ms that a first run takes longer than a second (ms of the second)")
    for name, (make, feeds) in MODELS.items():
        path = make()
        native_session = InferenceSession(path)
        found = planning(timed(lambda x, s=native_session: s.run(None, x)), feeds)
        print(f"{name + ', native':{34}}{found[0]:12.2f} ({found[1]:.2f})")
        with opened.page() as page:
            found = planning(Engine(page, opened.url).open(path.read_bytes()).repeat, feeds)
        print(f"{name + ', in the page':{34}}{found[0]:12.2f} ({found[1]:.2f})", flush=True)


def in_worker(opened: Chromium, length: int, runs: int) -> float:
    """Measure web/run/executor.js alone, in a worker of the bench, without messages."""
    model = chain(length)
    options = json.dumps({"relaxed": True, "shared": True})
    compiled = browser.create(lambda offset, size, _: model[offset : offset + size], len(model), options).main
    assert compiled is not None
    program = {"header": compiled.json, "blob": list(compiled.blob), "model": list(model)}
    with opened.page() as page:
        found: dict[str, float] = page.evaluate("([p, runs]) => bench.overhead(p, runs)", [program, runs])
    assert not found["python"], "the executor called Python"
    return 1000 * found["median"]


def in_page(opened: Chromium, length: int, runs: int) -> float:
    """Measure the public API: a message to the worker and one back."""
    with opened.page() as page:
        session = Engine(page, opened.url).open(chain(length))
        session.repeat({"x": X}, runs // 10)
        return float(1000 * np.median(session.repeat({"x": X}, runs)))


def native(length: int, runs: int, inner: bool) -> float:
    session = InferenceSession(chain(length))
    executor: Any = session._native.latest()
    action = (lambda: executor.run({"x": X})) if inner else (lambda: session.run(None, {"x": X}))
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return float(1e6 * np.median(times))


def python_calls(opened: Chromium) -> int:
    """Count by the interpreter's own monitoring, minus the functions that the query enters."""
    with opened.page() as page:
        engine = Engine(page, opened.url)
        session = engine.open(chain(LENGTHS[1]))
        session.run(None, {"x": X})
        with counting(engine) as take:
            quiet = len(take())
            session.repeat({"x": X}, COUNTED)
            return len(take()) - quiet
