"""Products by WGSL's dot4I8Packed, for models that let the rows be rounded to 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit import low_bits
from kit.byte_products import CASES, FEW, Case
from kit.gpu import GPU
from pyruntime import InferenceSession

pytest.importorskip("wgpu")
ROWS = (1, FEW, FEW + 1, 33)


def functions(session: InferenceSession, x: Any) -> list[str]:
    return [call.kernel for call in session.profile({"x": x})]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results(case: Case) -> None:
    data, weights = case.build()
    session = InferenceSession(data, providers=["webgpu"])
    for rows in ROWS:
        x = case.feed(rows)
        case.check(session.run(None, {"x": x})[0], x, weights)
        rounds = rows * int(np.prod(case.batch)) > FEW
        assert len(functions(session, x)) == (3 if rounds else 1)


def test_exact_levels_do_not_round() -> None:
    data, weights = (case := low_bits.Case(4, False, 1)).build()
    x = case.feed(33)
    session = InferenceSession(data, providers=["webgpu"])
    case.check(session.run(None, {"x": x})[0], x, weights)
    assert len(functions(session, x)) == 1


def test_long_blocks_are_not_rounded() -> None:
    """Float32 would not represent the sums of their integers."""
    case = Case(block=2048, K=2048)
    data, weights = case.build()
    x = case.feed(33)
    session = InferenceSession(data, providers=["webgpu"])
    want = x.astype(np.float64) @ weights.T
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert len(functions(session, x)) == 1


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite(bad: float) -> None:
    """They make the results of their row infinite or NaN, and no others."""
    data, weights = CASES[0].build()
    x = CASES[0].feed(8)
    x[3, 7] = bad
    got = InferenceSession(data, providers=["webgpu"]).run(None, {"x": x})[0]
    assert not np.isfinite(got[3]).any()
    others = np.arange(8) != 3
    CASES[0].check(got[others], x[others], weights)


def test_exported_programs() -> None:
    """Only those that assume it use it, and an adapter without it opens their other half."""
    data, weights = CASES[1].build()
    x = CASES[1].feed(16)
    model = InferenceSession(data)
    for assume, calls in (([], 1), (["dot4"], 3)):
        program = model.export(weights=True, providers=["webgpu"], assume=assume)
        session = InferenceSession(program, providers=[GPU])
        assert len(functions(session, x)) == calls
    CASES[1].check(session.run(None, {"x": x})[0], x, weights)
