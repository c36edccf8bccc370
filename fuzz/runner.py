"""Runs targets in turn on worker processes, counts outcomes, and reports one failure for each cause."""

from __future__ import annotations

import argparse
import itertools
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence

from fuzz.case import FAILURES, OUTCOMES, Verdict
from fuzz.minimise import minimise
from fuzz.pool import Worker
from fuzz.report import as_test

SHARES = {"models": 2}  # cases a turn, if not one: then an hour on two busy cores judges 3000 changed models


class Tally:
    """Counts by target and outcome, and the first failure of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.first: dict[tuple[str, str, str], tuple[int, Verdict]] = {}
        self.lock = threading.Lock()

    def add(self, target: str, index: int, verdict: Verdict) -> bool:
        """Counts a verdict. Returns whether it is a failure of a new kind."""
        with self.lock:
            self.counts[target, verdict.outcome] += 1
            key = (target, verdict.outcome, verdict.kind)
            if verdict.outcome not in FAILURES or key in self.first:
                return False
            self.first[key] = (index, verdict)
            return True

    def of(self, outcome: str) -> int:
        return sum(n for (_, o), n in self.counts.items() if o == outcome)

    def table(self) -> str:
        targets = sorted({t for t, _ in self.counts})
        lines = [f"{'':14}" + "".join(f"{o:>9}" for o in OUTCOMES)]
        lines += [f"{t:14}" + "".join(f"{self.counts[t, o]:>9}" for o in OUTCOMES) for t in targets]
        return "\n".join(lines)

    def summary(self) -> str:
        cases = sum(n for (_, o), n in self.counts.items() if o != "no case")
        wrong, crash, hang, untyped = map(self.of, FAILURES)
        return f"fuzz: {cases} cases: {wrong} wrong, {crash} crashes, {hang} hangs, {untyped} untyped"


def run(options: argparse.Namespace) -> int:
    """0 if nothing failed."""
    if options.case:
        return _one(options)
    tally, targets = Tally(), options.targets.split(",")
    numbers = _turns(targets, options.first)
    end, lock = time.monotonic() + options.seconds, threading.Lock()
    faults: list[str] = []

    def work() -> None:
        worker = Worker(options.pages)
        while time.monotonic() < end:
            with lock:
                target, index = next(numbers)
            try:
                verdict = worker.fuzz(target, options.seed, index)
                if tally.add(target, index, verdict):
                    _report(worker, options, target, index, verdict)
            except Exception:
                faults.append(f"{target}/{index}")
                print(f"fault of the fuzzer itself in {faults[-1]}:\n{traceback.format_exc()}", flush=True)
                worker.stop()
        worker.stop()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(tally.table())
    if faults:
        print(f"faults of the fuzzer itself: {' '.join(faults)}")
    print(tally.summary())
    return int(bool(faults) or any(map(tally.of, FAILURES)))


def _turns(targets: Sequence[str], first: int) -> Iterator[tuple[str, int]]:
    """Endless pairs of a target and the number of a case."""
    for turn in itertools.count():
        for target in targets:
            share = SHARES.get(target, 1)
            yield from ((target, first + turn * share + n) for n in range(share))


def _report(worker: Worker, options: argparse.Namespace, target: str, index: int, verdict: Verdict) -> None:
    """Prints a verdict; then minimises a failure, which takes a while, and prints it as a test."""
    case = worker.make(target, options.seed, index)
    title = f"{verdict.outcome} --seed {options.seed} --case {target}/{index}: {verdict.kind}: {verdict.detail}"
    print(title + (f"\n{case.note}" if case else ""), flush=True)
    if case and not options.keep and verdict.outcome in FAILURES:
        name = f"{target}/{options.seed}/{index}"
        small, found = minimise(case, verdict, lambda c: worker.judge(c, name))
        print(as_test(small, found, name), flush=True)


def _one(options: argparse.Namespace) -> int:
    target, _, index = options.case.partition("/")
    worker = Worker(options.pages)
    verdict = worker.fuzz(target, options.seed, int(index))
    _report(worker, options, target, int(index), verdict)
    worker.stop()
    return int(verdict.outcome in FAILURES)
