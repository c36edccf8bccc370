"""The harness itself, and no step back: every official case that is recorded as passing still does."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from kit.conformance.cases import CATEGORIES, load
from kit.conformance.compare import assert_equal
from kit.conformance.pool import Pool
from kit.conformance.report import baseline

BATCHES = 24


def test_the_suite_is_whole() -> None:
    counts = dict.fromkeys(CATEGORIES, 0)
    for case in load().values():
        counts[case.category] += 1
    assert list(counts.values()) == [1404, 480, 23, 82, 35, 9]


def test_a_good_runtime_passes() -> None:
    names = [name for name in load() if name.startswith(("test_softmax", "test_sequence_", "test_strnorm"))]
    with Pool("reference", "") as pool:
        assert not [result for result in pool.run(names) if result.error]


def test_a_worker_that_hangs_or_dies_is_replaced() -> None:
    with Pool("reference", "", jobs=1) as pool:
        pool.limit = 0.0
        assert pool.run(["test_abs"])[0].error.startswith("TimeoutError")
        pool.limit = 20.0
        died, passed = pool.run(["no such case", "test_abs"])
    assert died.error.startswith("Crash: exit code 1")
    assert not passed.error


@pytest.mark.parametrize(
    "actual",
    [
        np.array([1.0, 2.1], np.float32),
        np.array([1.0, np.nan], np.float32),
        np.array([1.0, 2.0]),
        np.array([[1.0, 2.0]], np.float32),
        [1.0, 2.0],
        None,
    ],
)
def test_differences_are_seen(actual: object) -> None:
    with pytest.raises(AssertionError):
        assert_equal([np.array([1.0, 2.0], np.float32)], [actual], 1e-3, 1e-7)


def test_integers_are_compared_exactly() -> None:
    stored = pickle.loads(pickle.dumps(np.array([2**60])))
    assert_equal([stored], [np.array([2**60])], 0, 0)
    with pytest.raises(AssertionError):
        assert_equal([stored], [np.array([2**60 + 1])], 0, 0)


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    with Pool("native", "wasm") as pool:
        yield pool


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_step_back(batch: int, workers: Pool) -> None:
    names = baseline("native", "wasm")[batch::BATCHES]
    assert names, "no baseline: record one by python -m kit.conformance --update"
    lost = [result for result in workers.run(names) if result.error]
    assert not lost, "\n".join(f"{result.name}: {result.error}" for result in lost)
