"""python -m bench limits [MODEL ...]: the kernels of the zoo and the field that are far from what the machine can do.

On one thread, each kernel called on its own, in a page or with --native by wasmtime. A kernel cannot take less than its
operations (bench/flops.py) at the 128-bit peak of float32 (pyruntime/native/tools/peak.py), nor less than its bytes at
the memory's bandwidth (`bench llm`). Both are measured again after every few models, and the best counts, like the best
time of each call: other work makes a machine slower, never faster. Listed are kernels that take more than twice the
larger of both, and more than 3 % of their model's time, the largest loss first; before them their kinds, with the sum
of what they lose: a kernel's share of its model's time, times what it is short of its limit.
Products of 8-bit codes can exceed that peak, and data in caches can exceed that bandwidth. Only products have
operations: a loop of many exponentials is listed even if it is optimal.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench import chromium, models, profile
from bench.llm import bandwidth
from bench.profile import Call
from pyruntime.native.tools.advising import peak
from pyruntime.onnx.graph import operator_of

HALF, NOTED = 0.5, 0.03  # shares of the limit, and of the model's time
AGAIN = 10  # number of models after which the machine is measured again


class Slow(NamedTuple):
    """A kernel below half of its limit: model, call, its share of the model's time, its share of the limit."""

    model: str
    call: Call
    time: float
    limit: float

    @property
    def lost(self) -> float:
        return self.time * (1 - self.limit)

    @property
    def kind(self) -> str:
        """The function of the kernel, without its number, and the operator."""
        return f"{re.sub(r'_[0-9]+$', '', self.call.kernel)} of {operator_of(self.call.node)}"


class Place(NamedTuple):
    """A place where kernels run: gives the calls of a model, and the peak of one thread in operations per second."""

    calls: Callable[[str, int], list[Call]]
    peak: Callable[[], float]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench limits", description=__doc__)
    known = models.everything()
    parser.add_argument("models", nargs="*", choices=[*known, []], help="default: all", metavar="MODEL")  # [] is none
    parser.add_argument("--runs", type=int, default=10, help="the best time of each call counts (default 10)")
    parser.add_argument("--native", action="store_true", help="by wasmtime instead of in a page")
    args = parser.parse_args(argv)
    operations, bytes_ = 0.0, 0.0
    calls: dict[str, list[Call]] = {}
    with natively() if args.native else in_pages() as place:
        for n, name in enumerate(args.models or known):
            if n % AGAIN == 0:
                operations, bytes_ = max(operations, place.peak()), max(bytes_, bandwidth(1))
            calls[name] = place.calls(name, args.runs)
            print(f"{name:26}{sum(c.seconds for c in calls[name]) * 1e3:9.2f} ms", flush=True)
    print(f"peak {operations / 1e9:.1f} GFLOP/s, bandwidth {bytes_ / 1e9:.1f} GB/s, one thread")
    print(report({name: slow(name, found, operations, bytes_) for name, found in calls.items()}))
    return 0


def slow(model: str, calls: list[Call], operations: float, bytes_: float) -> list[Slow]:
    """operations, bytes_: a second, at most."""
    total = sum(call.seconds for call in calls)
    rows = [
        Slow(model, call, call.seconds / total, max(call.flops / operations, call.bytes / bytes_) / call.seconds)
        for call in calls
        if call.seconds > NOTED * total
    ]
    return [row for row in rows if row.limit < HALF]


def report(found: dict[str, list[Slow]]) -> str:
    """Return a list of kinds and kernels with their numbers, the largest loss first."""
    rows = sorted((s for of_model in found.values() for s in of_model), key=lambda s: -s.lost)
    kinds: dict[str, list[Slow]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    lines = [f"{'lost':>6}{'kernels':>9}{'models':>8}  kind"]
    for kind, of_kind in sorted(kinds.items(), key=lambda item: -sum(s.lost for s in item[1])):
        lines.append(f"{sum(s.lost for s in of_kind):6.2f}{len(of_kind):9}{len({s.model for s in of_kind}):8}  {kind}")
    lines.append(f"{'of limit':>9}{'of time':>9}  {'model':26} kernel of node")
    for model, call, share, limit in rows:
        lines.append(f"{100 * limit:7.0f} %{100 * share:7.1f} %  {model:26} {call.kernel} of {call.node}"[:140])
    where = sum(map(bool, found.values()))
    return "\n".join([*lines, f"limits: {len(rows)} kernels below half of theirs, in {where} of {len(found)} models"])


@contextmanager
def natively() -> Iterator[Place]:
    yield Place(profile.native, peak)


@contextmanager
def in_pages() -> Iterator[Place]:
    with chromium.chromium() as browser:
        yield Place(lambda name, runs: profile.in_page(browser, name, runs), lambda: max(browser.peak().values()))


__all__ = ["Place", "Slow", "main", "report", "slow"]
