"""Results near 0 keep their digits, although WGSL lets compilers simplify (1 + x) - 1 to x, as lavapipe does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from tests.ops.node import node_model

pytest.importorskip("wgpu")

SMALL = np.float32(10) ** np.linspace(-12, -0.001, 50, dtype=np.float32)
AROUND = np.concatenate([-SMALL, [0], SMALL]).astype(np.float32)
OPS: dict[str, tuple[np.ndarray, Callable[[Any], Any]]] = {
    "Asinh": (AROUND, np.arcsinh),
    "Atanh": (AROUND, np.arctanh),
    "Acosh": (1 + SMALL, np.arccosh),
    "Softplus": (np.linspace(-80, 80, 161, dtype=np.float32), lambda x: np.logaddexp(0, x)),
}


@pytest.mark.parametrize("op", OPS)
def test_digits(op: str) -> None:
    x, function = OPS[op]
    m, feeds = node_model(op, [x], 22)
    (got,) = InferenceSession(m.SerializeToString(), providers=["webgpu"]).run(None, feeds)
    np.testing.assert_allclose(got, function(x.astype(np.float64)), rtol=6e-7)
