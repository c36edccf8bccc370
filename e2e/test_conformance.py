"""Official cases in Chromium, isolated and not: every tenth of those that pass. All of them:
make conformance WHERE=chromium."""

from __future__ import annotations

import pytest

from kit.chromium import Engine
from kit.conformance.cases import load
from kit.conformance.chromium import run
from kit.conformance.compare import assert_equal
from kit.conformance.failing import passing
from kit.conformance.pool import Pool

BATCHES, STRIDE = 4, 10


@pytest.mark.parametrize("batch", range(BATCHES))
def test_passing_cases_pass(batch: int, engine: Engine) -> None:
    cases = load()
    names = passing("wasm.chromium")[batch * STRIDE :: BATCHES * STRIDE]
    for case in map(cases.__getitem__, names):
        for feeds, expected in case.data:
            assert_equal(expected, run(engine, "wasm", case.model, feeds)[0], case.rtol, case.atol, case.name)


def test_a_worker_that_hangs_is_replaced(engine: Engine) -> None:
    case = load()["test_abs"]
    limit, engine.limit = engine.limit, 0.0
    try:
        with pytest.raises(TimeoutError):
            engine.open(case.model)
    finally:
        engine.limit = limit
    ((feeds, expected),) = case.data
    assert_equal(expected, run(engine, "wasm", case.model, feeds)[0], case.rtol, case.atol)


def test_the_harness_runs_cases_in_chromium(built: None) -> None:
    with Pool("chromium", "wasm", jobs=1) as pool:
        assert not [result for result in pool.run(["test_abs", "test_sequence_insert_at_back"]) if result.error]
