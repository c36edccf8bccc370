"""Caches of float8 in GroupQueryAttention, which ONNX Runtime's CPU does not have: by their definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pyruntime import InferenceSession
from tests.ops.compare import parsed

TEXT = """g (float[1,S,8] q, float[1,S,8] k, float[1,S,8] v, float8e4m3fn[1,1,P,8] pk, float8e4m3fn[1,1,P,8] pv,
   int32[1] last, int32[1] total) => (float[1,S,8] y, float8e4m3fn[1,1,T,8] ok, float8e4m3fn[1,1,T,8] ov)
<float[1] ks = {0.01}, float[1] vs = {0.02}> {
   y, ok, ov = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1, k_quant_type = "PER_TENSOR",
     v_quant_type = "PER_TENSOR", kv_cache_bit_width = 8> (q, k, v, pk, pv, last, total, , , , , , ks, vs)
}"""


@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("rows", [1, 3])
def test_group_query_attention(past: int, rows: int) -> None:
    rng = np.random.default_rng(past + rows)
    q, k, v = (rng.standard_normal((1, rows, 8)).astype(np.float32) for _ in range(3))
    pk, pv = (rng.standard_normal((1, 1, past, 8)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    total = past + rows
    feeds = {"q": q, "k": k, "v": v, "pk": pk, "pv": pv}
    feeds |= {"last": np.array([total - 1], np.int32), "total": np.array([total], np.int32)}
    y, *caches = InferenceSession(parsed(TEXT, **{"com.microsoft": 1}).SerializeToString()).run(None, feeds)
    numbers = []
    for got, old, new, scale in zip(caches, (pk, pv), (k, v), np.float32([0.01, 0.02]), strict=True):
        want = np.concatenate([old[0, 0], (new[0] / scale).astype(ml_dtypes.float8_e4m3fn)])
        np.testing.assert_array_equal(got[0, 0, :total].view(np.uint8), want.view(np.uint8))
        numbers.append(want.astype(np.float32) * scale)
    scores = q[0] @ numbers[0].T / np.sqrt(8)
    scores[np.arange(total) > past + np.arange(rows)[:, None]] = -np.inf
    e = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(y[0], e / e.sum(1, keepdims=True) @ numbers[1], rtol=1e-4, atol=1e-5)
