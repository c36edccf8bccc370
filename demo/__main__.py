"""python -m demo: MobileNet (random weights) and digits (trained), natively and in a worker of headless Chromium.

Prints what ran, how far the results are from the expected ones, and the times; each row in Chromium starts from a
browser profile that never saw a page. Exit status: 1 if a result was wrong or a row could not run, else 0.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kit import light_models, zoo
from kit.chromium import ROOT, Engine, launch, serve
from kit.models import MODELS
from pyruntime import InferenceSession
from pyruntime.providers.webgpu.adapter import NoAdapter

PROVIDERS = ("wasm", "webgpu")
TOLERANCE = 1e-3  # of the largest expected value
BUDGET = 1.5  # seconds of repeated runs


class Unavailable(Exception):
    """The machine lacks a provider."""


@dataclass(frozen=True)
class Example:
    name: str
    path: Path
    feeds: dict[str, np.ndarray]
    expected: list[np.ndarray]

    @property
    def classes(self) -> np.ndarray:
        return self.expected[0].reshape(len(self.expected[0]), -1).argmax(1)


@dataclass
class Row:
    """Times in milliseconds; `python` is the part of `create` that Python compiled in."""

    example: Example
    where: str
    provider: str
    outputs: list[np.ndarray] = field(default_factory=list)
    boot: float | None = None
    create: float = 0.0
    python: float | None = None
    runs: list[float] = field(default_factory=list)
    placement: dict[str, int] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Largest difference, relative to the largest expected value."""
        pairs = zip(self.outputs, self.example.expected, strict=True)
        return max(float(np.abs(got - want).max() / np.abs(want).max()) for got, want in pairs)

    @property
    def right(self) -> int:
        got = self.outputs[0].reshape(len(self.example.classes), -1).argmax(1)
        return int((got == self.example.classes).sum())

    @property
    def passed(self) -> bool:
        return self.error <= TOLERANCE and self.right == len(self.example.classes)

    def cells(self) -> list[str]:
        times = [self.boot, self.create, self.python, self.runs[0], statistics.median(self.runs[1:])]
        kernels = ", ".join(f"{count} {place}" for place, count in sorted(self.placement.items()))
        top = f"{self.right} of {len(self.example.classes)}"
        verdict = "ok" if self.passed else "WRONG"
        first = [self.example.name, self.where, self.provider, verdict, f"{self.error:.1e}", top]
        return [*first, *map(milliseconds, times), kernels]


HEAD = "model|where|provider|result|max error|top-1|boot|create|in Python|first run|median run|kernels".split("|")


def milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


def examples() -> list[Example]:
    mobilenet, digits = "mobilenet_v2", MODELS["digits"]
    feeds = digits.feeds()
    return [
        Example(mobilenet, zoo.materialize(mobilenet), zoo.inputs(mobilenet), zoo.expected(mobilenet)),
        Example("digits", digits.path(), feeds, zoo.oracle(digits.path().read_bytes(), feeds)),
    ]


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = action()
    return result, 1000 * (time.perf_counter() - start)


def native(example: Example, provider: str) -> Row:
    row = Row(example, "native", provider)
    try:
        session, row.create = timed(lambda: InferenceSession(str(example.path), providers=[provider]))
    except (NoAdapter, ModuleNotFoundError) as error:
        if provider == "webgpu":
            raise Unavailable(str(error)) from None
        raise
    row.outputs, first = timed(lambda: session.run(None, example.feeds))
    row.runs = [first]
    while sum(row.runs[1:]) < 1000 * BUDGET:
        row.runs.append(timed(lambda: session.run(None, example.feeds))[1])
    row.placement = session.explain()["placement"]
    return row


def chromium(example: Example, provider: str, run: bool = True) -> Row:
    """Starts a new browser, so that no cache is warm."""
    row = Row(example, "Chromium", provider)
    with serve() as server, launch() as browser:
        engine = Engine(browser.new_page(), server.url)
        row.boot = engine.boot()
        session = engine.open(example.path, executionProviders=[provider])
        row.create, row.python = sum(session.timings.values()), session.timings["compile"]
        if run:
            row.outputs = session.run(None, example.feeds)
            count = max(3, min(200, int(1000 * BUDGET / session.runs[0])))
            row.runs = [*session.runs, *session.repeat(example.feeds, count)]
            row.placement = session.explain()["placement"]
    return row


def attempt(run: Callable[[Example, str], Row], example: Example, provider: str) -> Row:
    """Return the row. Errors: Unavailable if no kernel ran on the provider"""
    row = run(example, provider)
    if provider not in row.placement:
        raise Unavailable("the session placed no kernel on it")
    return row


def table(rows: list[list[str]]) -> str:
    """Columns as wide as they need; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(n) if 3 < i < 11 else cell.ljust(n) for i, (cell, n) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def compile_times() -> str:
    """Boot and compilation in Pyodide of models of all sizes, each in a browser that never saw a page."""
    paths = {"squeezenet": light_models.materialize("squeezenet")}
    paths |= {name: zoo.materialize(name) for name in ("resnet50", "minilm", "whisper_tiny_encoder")}
    rows = [chromium(Example(name, path, {}, []), "wasm", run=False) for name, path in paths.items()]
    return "\n".join(
        f"  {row.example.name:22} boot {milliseconds(row.boot):>8}   compile {milliseconds(row.python):>8}"
        for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument("--provider", choices=PROVIDERS, help="only this one")
    parser.add_argument("--quick", action="store_true", help="leave out compile times of larger models")
    args = parser.parse_args()
    if not (ROOT / "dist" / "worker.mjs").exists():
        sys.exit("dist/ is not built: npm run build")
    rows, notes, failed = [HEAD], [], False
    for example in examples():
        for provider in [args.provider] if args.provider else PROVIDERS:
            for where, run in (("natively", native), ("in Chromium", chromium)):
                try:
                    row = attempt(run, example, provider)
                    rows.append(row.cells())
                    failed |= not row.passed
                except Unavailable as reason:
                    notes.append(f"{provider} is not there {where}: {reason}")
                except Exception as error:
                    notes.append(f"{example.name} on {provider} {where} FAILED: {type(error).__name__}: {error}")
                    failed = True
    print(f"{os.cpu_count()} cores; errors relative to the largest expected value; every browser profile is new\n")
    print(table(rows))
    print("\n" + "\n".join(dict.fromkeys(notes)) if notes else "")
    if not args.quick:
        print("\nPyodide's start and Python's part of creating a session, in a new browser each:")
        print(compile_times())
    print("\ndemo: FAILED" if failed else "\ndemo: all results as expected")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
