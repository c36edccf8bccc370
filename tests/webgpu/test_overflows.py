"""Half floats whose sums, squares and scores exceed 65,504: kernels keep them in float32."""

from __future__ import annotations

import pytest

from kit.overflows import CASES, Case
from pyruntime import InferenceSession

pytest.importorskip("wgpu")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_half_floats_do_not_overflow(case: Case) -> None:
    (got,) = InferenceSession(case.model(half=True), providers=["webgpu"]).run(None, case.feeds())
    case.check(got)
