"""python -m bench limits [MODEL ...]: the kernels of the zoo and the field that are far from what the machine can do.

Natively, on one thread, each kernel called on its own. A kernel cannot take less than its operations (bench/flops.py)
at the 128-bit peak of float32 (bench/peak.py), nor less than its bytes at the memory's bandwidth (`bench llm`). Listed
are kernels that take more than twice the larger of both, and more than 3 % of their model's time, the largest loss
first.
Products of 8-bit codes can beat that peak; what caches hold can beat that bandwidth.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import wasmtime

from bench import models, peak
from bench.llm import bandwidth
from bench.profile import Call, native

HALF, NOTED = 0.5, 0.03  # of the limit, of the model's time


class Slow(NamedTuple):
    """A kernel below half of its limit: model, call, its share of the model's time, its share of the limit."""

    model: str
    call: Call
    time: float
    limit: float

    @property
    def lost(self) -> float:
        return self.time * (1 - self.limit)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench limits", description=__doc__)
    known = models.everything()
    parser.add_argument("models", nargs="*", choices=[*known, []], help="default: all", metavar="MODEL")  # [] is none
    parser.add_argument("--runs", type=int, default=5, help="the best time of each call counts (default 5)")
    args = parser.parse_args(argv)
    operations, bytes_ = fastest(), bandwidth()
    print(f"peak {operations / 1e9:.1f} GFLOP/s, bandwidth {bytes_ / 1e9:.1f} GB/s, one thread")
    found: list[Slow] = []
    names = args.models or known
    for name in names:
        found += slow(name, native(name, args.runs), operations, bytes_)
    print(f"{'of limit':>9}{'of time':>9}  {'model':26} kernel of node")
    for model, call, share, limit in sorted(found, key=lambda s: -s.lost):
        print(f"{100 * limit:7.0f} %{100 * share:7.1f} %  {model:26} {call.kernel} of {call.node}"[:140])
    where = len({s.model for s in found})
    print(f"limits: {len(found)} kernels below half of theirs, in {where} of {len(names)} models")
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


def fastest() -> float:
    """Floating-point operations a second of one thread, natively."""
    code, loops = peak.module()
    store = wasmtime.Store()
    module = wasmtime.Module(store.engine, code)
    given = [wasmtime.Memory(store, i.type) for i in module.imports if isinstance(i.type, wasmtime.MemoryType)]
    exports: Any = wasmtime.Instance(store, module, given).exports(store)
    turns, best = 1 << 21, 0.0
    for name, operations in loops.items():
        for _ in range(3):
            start = time.perf_counter()
            exports[name](store, turns)
            best = max(best, turns * operations / (time.perf_counter() - start))
    return best


__all__ = ["Slow", "fastest", "main", "slow"]
