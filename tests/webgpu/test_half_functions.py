"""Functions of half floats compute in float32 inside: e^12 is finite there, but infinite in float16."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pyruntime import InferenceSession
from tests.ops.compare import by_onnxruntime
from tests.ops.node import node_model

pytest.importorskip("wgpu")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", "Elu Erf Gelu HardSigmoid HardSwish Mish Selu Sigmoid Softplus Tanh".split())
def test_every_half(op: str, dtype: type[np.generic]) -> None:
    """Results equal onnxruntime's float32 results, rounded, up to one unit in the last place or an error near 0."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    x = x[np.abs(x.astype(np.float32)) < 6e4]
    m, feeds = node_model(op, [x], 22)
    (got,) = InferenceSession(m.SerializeToString(), providers=["webgpu"]).run(None, feeds)
    (want,) = by_onnxruntime(*node_model(op, [x.astype(np.float32)], 22))
    unit = 2.0 ** (-10 if dtype is np.float16 else -7)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=unit, atol=1e-6)
