"""That a soak finds what grows, and its native rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bench.growth import COUNT, LATENCY, MEGABYTES, Growth
from bench.soak_rounds import ROUNDS
from bench.soak_seats import Native

SERIES = {
    "a leak": (MEGABYTES, [100 + 0.5 * n for n in range(30)], True),
    "noise": (MEGABYTES, [100 + 10 * (n % 3) for n in range(30)], False),
    "one odd sample": (MEGABYTES, [100, *[100] * 28, 300], False),
    "what warms up late and stays": (MEGABYTES, [100] * 2 + [130] * 28, False),
    "a file more every while": (COUNT, [20 + n // 10 for n in range(30)], True),
    "a constant": (COUNT, [3] * 30, False),
    "twice as slow": (LATENCY, [1.0] * 15 + [2.0] * 15, True),
}


@pytest.mark.parametrize("name", SERIES)
def test_growth(name: str) -> None:
    unit, values, grows = SERIES[name]
    growth = Growth()
    for value in values:
        growth.add({("here", "it", unit): value})
    assert bool(growth.grown()) is grows


def left(seat: Native) -> dict[str, float]:
    return {what: value for (what, unit), value in seat.measure().items() if unit == COUNT}


@pytest.mark.filterwarnings("ignore:output .* is declared")  # of damaged models
@pytest.mark.parametrize("job", ROUNDS, ids=lambda job: job.__name__)
def test_a_native_round(job: Callable[[Native, int], None]) -> None:
    """Leaves no host of WebAssembly, no open file and, after a moment, no thread, besides what the first one leaves:
    wasmtime's compiler has threads of its own."""
    seat = Native(gpu=False)
    job(seat, 0)
    before = left(seat)
    job(seat, 1)
    for _ in range(50):
        after = left(seat)
        if all(after[what] <= before[what] for what in before):
            return
        time.sleep(0.1)
    assert after == before
