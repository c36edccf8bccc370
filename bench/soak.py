"""python -m bench soak: checks that nothing grows or becomes slower while sessions come and go for a long time.

Rounds (soak_rounds.py) natively and in pages of Chromium, with and without cross-origin isolation, all in turns. Memory
is measured after each cycle of rounds, and each session's metrics are compared with what the driver counted; the first
fifth of the time, five minutes at most, does not count. Exits with 1 if something grew beyond its slack (growth.py) or
a round failed.
"""

from __future__ import annotations

import argparse
import logging
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from bench import growth
from bench.growth import Growth, Sample
from bench.soak_rounds import AFFINE, ROUNDS, relu
from bench.soak_seats import Native, Page, Seat
from kit import chromium
from kit import small_models as models

WARM = 300  # seconds at most
LINES = 10  # lines printed in the whole time
TIMED = 30  # runs, of which the fastest counts, because other programs use the processors, too
SHAPES = 15  # shapes that recur
CHAIN = models.chain().SerializeToString()


class Kept:
    """Sessions that live as long as the soak: one is timed, one gets new shapes all the time."""

    def __init__(self, seat: Seat, stack: ExitStack) -> None:
        self.seat = seat
        self.timed = stack.enter_context(seat.open(CHAIN))
        self.shapes = [stack.enter_context(seat.open(AFFINE, *way)) for way in seat.ways]

    def run(self, n: int) -> None:
        for k in range(5):
            x = np.ones((1 + 7 * ((5 * n + k) % SHAPES), 4), np.float32)
            for session in self.shapes:
                np.testing.assert_allclose(session.run(None, {"x": x})[0], relu(x), rtol=1e-4)

    def measure(self) -> Sample:
        times = self.seat.repeat(self.timed, {"x": np.ones((4, 8), np.float32)}, TIMED)
        found = self.seat.measure() | {("latency", growth.LATENCY): min(times)}
        return {(self.seat.name, *key): value for key, value in found.items()}


@contextmanager
def seats(gpu: bool) -> Iterator[list[Seat]]:
    """Starts all of them."""
    chromium.build()
    with chromium.serve() as isolated, chromium.serve(isolated=False) as plain, chromium.launch() as browser:
        pages = [Page(browser.new_context(), server.url, server is isolated) for server in (isolated, plain)]
        yield [Native(gpu), *pages]


class Soak:
    """Runs the rounds, and measures what they leave behind."""

    def __init__(self, all_seats: list[Seat], stack: ExitStack) -> None:
        self.seats = all_seats
        self.kept = [Kept(seat, stack) for seat in all_seats]
        self.growth = Growth()
        self.cycles = self.rounds = 0
        self.failures: list[str] = []

    def cycle(self) -> None:
        for seat, kept in zip(self.seats, self.kept, strict=True):
            for job in (*ROUNDS, lambda _, n, kept=kept: kept.run(n)):
                try:
                    job(seat, self.cycles)
                except Exception:
                    self.failures.append(f"{seat.name}, cycle {self.cycles}:\n{traceback.format_exc()}")
                    print(self.failures[-1], flush=True)
                self.rounds += 1
        self.cycles += 1

    def sample(self) -> Sample:
        found = {key: value for kept in self.kept for key, value in kept.measure().items()}
        return found | {("chromium", what, growth.MEGABYTES): size for what, size in growth.of_chromium().items()}


def show(minutes: float, soak: Soak, sample: Sample) -> None:
    """Print a line for each place."""
    print(f"{minutes:.1f} min, {soak.rounds} rounds, {len(soak.failures)} failed")
    places: dict[str, list[str]] = {}
    for (place, what, unit), value in sample.items():
        number = f"{value:.0f}" if unit == growth.COUNT else f"{value:.2f} {unit}"
        places.setdefault(place, []).append(f"{what} {number}")
    for place, words in places.items():
        print(f"  {place:14}" + "  ".join(words), flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--no-gpu", action="store_true", help="natively without one")
    args = parser.parse_args(argv)
    seconds = 60 * args.minutes
    logging.disable()  # errors and warnings are made on purpose
    warnings.simplefilter("ignore")
    with seats(not args.no_gpu) as all_seats, ExitStack() as stack:
        soak = Soak(all_seats, stack)
        start = time.monotonic()
        shown = 0.0
        while (passed := time.monotonic() - start) < seconds:
            soak.cycle()
            sample = soak.sample()
            if passed >= min(WARM, seconds / 5):
                soak.growth.add(sample)
            if passed >= shown:
                show(passed / 60, soak, sample)
                shown += seconds / LINES
        show((time.monotonic() - start) / 60, soak, sample)
    return report(args.minutes, soak)


def report(minutes: float, soak: Soak) -> int:
    grown = soak.growth.grown()
    print(
        "".join(f"grown: {words}\n" for words in grown) + "".join(f"failed: {words}\n" for words in soak.failures),
        end="",
    )
    rss = soak.growth.total("rss", "pages", "gpu process", "browser")
    heap = soak.growth.total("page heap", "worker heap", "python heap")
    linear, gpu = soak.growth.total("linear memory"), soak.growth.total("gpu", "tensors")
    print(
        f"soak: {minutes:g} minutes, {soak.rounds} rounds: rss {rss:+.1f} MB, heaps {heap:+.2f} MB, "
        f"linear memory {linear:+.2f} MB, gpu {gpu:+.2f} MB; latency x{soak.growth.slower():.2f}; "
        f"{len(grown)} grown, {len(soak.failures)} failed"
    )
    return int(bool(grown or soak.failures))
