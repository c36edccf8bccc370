"""Runs find out in which order weights are best read (docs/design/weight-bandwidth.md#read-order-trial): none gives
other results than the one before."""

from __future__ import annotations

import numpy as np
import pytest

from kit.chromium import Engine
from kit.small_models import one_row

RUNS = 80  # fifty until code is warm, and some for each order


@pytest.mark.parametrize("kind", ["halves", "codes"])
def test_results_stay_the_same(engine: Engine, kind: str) -> None:
    session = engine.open(one_row(kind).SerializeToString())
    x = np.random.default_rng(1).standard_normal((1, 1024)).astype(np.float16 if kind == "halves" else np.float32)
    first, *others = [session.run(None, {"x": x})[0] for _ in range(RUNS)]
    for other in others:
        np.testing.assert_array_equal(first, other)
