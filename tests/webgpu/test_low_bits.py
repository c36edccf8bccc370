"""Weights of few bits on the GPU: they lie there as codes, and results equal those of float64."""

from __future__ import annotations

import pytest

from kit.low_bits import CASES, Case, K, N
from pyruntime import InferenceSession

pytest.importorskip("wgpu")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_codes_stay(case: Case) -> None:
    data, weights = case.build()
    session = InferenceSession(data, providers=["webgpu"])
    assert session.memory().providers["webgpu"].weights <= case.most * K * N + 1024
    for rows in (1, 33):
        x = case.feed(rows)
        case.check(session.run(None, {"x": x})[0], x, weights)
