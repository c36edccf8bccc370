"""A fixed part of what `make fuzz` runs, and the fuzzer's own judgement: it must see what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fuzz.case import FAILURES
from fuzz.compare import Tolerance, difference, spread
from fuzz.pool import Worker

SEED = 7
LOOSE = Tolerance(4)
# Of a target: together a minute of one core.
CASES = {"operators": 60, "graphs": 60, "sequences": 50, "models": 60, "feeds": 60, "hostile": 40, "programs": 60}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


@pytest.mark.parametrize("target", CASES)
def test_cases(worker: Worker, target: str) -> None:
    verdicts = {index: worker.fuzz(target, SEED, index) for index in range(CASES[target])}
    failed = [f"{n}: {v.outcome}: {v.detail}" for n, v in verdicts.items() if v.outcome in FAILURES]
    assert not failed, "\n".join(failed)
    assert sum(v.outcome == "no case" for v in verdicts.values()) < CASES[target] // 3


def test_cases_are_the_same_each_time(worker: Worker) -> None:
    once, again = (worker.make("operators", SEED, 1) for _ in range(2))
    assert once is not None and again is not None
    assert once.model == again.model and once.note == again.note


F, D = np.float32, np.int32


@pytest.mark.parametrize(
    ("got", "want", "seen"),
    [
        (F([1, 2]), F([1, 2.0000002]), False),
        (F([1, 2]), F([1, 2.001]), True),
        (F([1e-30, 1]), F([0, 1]), False),  # far below the largest
        (F([np.nan]), F([np.nan]), False),
        (F([np.nan]), F([1]), True),
        (F([np.inf]), F([3e38]), True),
        (F([1]), F([[1]]), True),
        (F([1]), np.float64([1]), True),
        (D([1, 2]), D([1, 3]), True),
        (np.array(["a"], object), np.array(["b"], object), True),
        (np.array(["inf", "1e-9", "-0"], object), np.array(["INF", "1e-09", "-0.0"], object), False),
        (np.array(["1.5"], object), np.array(["1.25"], object), True),
        ([F([1])], [F([1]), F([2])], True),
        (None, F([1]), True),
    ],
)
def test_differences(got: object, want: object, seen: bool) -> None:
    assert bool(difference(got, want, LOOSE)) is seen


def test_what_moves_by_itself_is_no_difference() -> None:
    base, moved = [F([1.0, 5.0])], [[F([1.0, 5.1])], [F([1.0, 4.9])]]
    noise = spread(moved, base)
    assert difference([F([1.0, 5.2])], base, LOOSE) and not difference([F([1.0, 5.2])], base, LOOSE, noise)
    assert difference([F([1.2, 5.0])], base, LOOSE, noise)
