"""The harness itself, and every official case: what failing.txt lists fails, all else passes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from kit.conformance.cases import CATEGORIES, load
from kit.conformance.compare import assert_equal
from kit.conformance.failing import PATH, PLACES, UNKNOWN, Failure, failing, read, surprises, update, write
from kit.conformance.pool import Pool, Result

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
def test_as_listed(batch: int, workers: Pool) -> None:
    wrong = surprises(workers.run(sorted(load())[batch::BATCHES]), "wasm.native")
    assert not wrong, "\n".join(wrong)


def test_the_list_is_tidy() -> None:
    """Sorted, of cases that there are, each with a reason that somebody wrote."""
    listed = read(PATH.read_text())
    assert write(listed) == PATH.read_text()
    assert listed.keys() <= load().keys()
    assert not [name for name, failure in listed.items() if failure.reason.startswith(UNKNOWN)]


def test_surprises_are_seen_and_recorded() -> None:
    (name, *_), place, elsewhere = failing(PLACES[0]), *PLACES[:2]
    results = [Result("test_abs", "AssertionError: no", 0.0), Result(name, "", 0.0)]
    assert [text.split()[:2] for text in surprises(results, place)] == [["test_abs", "fails:"], [name, "passes"]]
    assert not surprises(results, "reference.")
    before = read(PATH.read_text())
    after = update(before, results, place)
    assert after["test_abs"] == Failure("? AssertionError: no", (place,))
    assert place not in after[name].places and elsewhere in after[name].places
    assert read(write(after)) == after
    passes = [Result("test_abs", "", 0.0), Result(name, "AssertionError: as ever", 0.0)]
    assert write(update(after, passes, place)) == write(before)


@pytest.mark.parametrize("line", ["test_abs", "test_abs: ", "test_abs @ moon: why", "test_abs: a\ntest_abs: b"])
def test_a_damaged_list_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="failing.txt"):
        read(line)
