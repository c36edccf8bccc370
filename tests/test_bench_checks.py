"""`python -m bench checks` compares code with checks of indices and code without, not the same twice."""

from __future__ import annotations

import numpy as np

from bench.checks import code, indices_trusted
from pyruntime import InferenceSession
from tests.ops.node import floats, ints, node_model


def test_trusted_indices_are_other_code() -> None:
    m, feeds = node_model("Gather", [floats(5, 3), ints(4, 0)], 13)
    checked = InferenceSession(m.SerializeToString())
    want = checked.run(None, feeds)
    with indices_trusted():
        free = InferenceSession(m.SerializeToString())
        np.testing.assert_array_equal(free.run(None, feeds), want)
    assert code(checked) != code(free)
