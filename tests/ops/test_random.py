"""Random operators: ONNX gives distributions, so moments and reproducibility are tested."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.ops.node import f32, only, run_node

N = 1200


def test_uniform_and_normal() -> None:
    u = run_node("RandomUniform", [], 22, shape=[N], low=2.0, high=4.0, seed=1.0)[0]
    assert (
        u.dtype == np.float32
        and u.min() >= 2
        and u.max() < 4
        and abs(u.mean() - 3) < 0.06
        and abs(u.std() - 0.577) < 0.06
    )
    z = run_node("RandomNormal", [], 22, shape=[N // 4, 4], mean=1.0, scale=2.0, dtype=11, seed=1.0)[0]
    assert z.shape == (N // 4, 4) and z.dtype == np.float64 and abs(z.mean() - 1) < 0.2 and abs(z.std() - 2) < 0.15
    assert abs(np.corrcoef(z.ravel()[:-1], z.ravel()[1:])[0, 1]) < 0.1


def test_seeds() -> None:
    one = run_node("RandomUniform", [], 22, shape=[8], seed=1.0)[0]
    np.testing.assert_array_equal(one, run_node("RandomUniform", [], 22, shape=[8], seed=1.0)[0])
    assert not np.array_equal(one, run_node("RandomUniform", [], 22, shape=[8], seed=2.0)[0])


def test_like() -> None:
    x = np.zeros((3, 4), np.float16)
    assert run_node("RandomNormalLike", [x], 22)[0].dtype == np.float16
    assert run_node("RandomUniformLike", [x], 22, True, dtype=1)[0].shape == (3, 4)


def test_bernoulli() -> None:
    p = np.repeat(f32([0, 0.25, 1]), N // 3)
    y = run_node("Bernoulli", [p], 22, dtype=6)[0].reshape(3, -1)
    assert y.dtype == np.int32 and y[0].sum() == 0 and y[2].all() and abs(y[1].mean() - 0.25) < 0.06


def test_multinomial() -> None:
    logits = np.log(f32([[0.1, 0.2, 0.7], [1e-30, 1, 1e-30]]))
    y = run_node("Multinomial", [logits], 22, sample_size=400, dtype=7)[0]
    assert y.shape == (2, 400) and y.dtype == np.int64 and (y[1] == 1).all()
    assert np.allclose(np.bincount(y[0], minlength=3) / 400, [0.1, 0.2, 0.7], atol=0.08)


def test_dropout() -> None:
    x = np.ones((N,), np.float32)
    y, mask = run_node("Dropout", [x, np.float32(0.25), np.array(True)], 13, outputs=2)
    assert mask.dtype == bool and abs(mask.mean() - 0.75) < 0.05
    np.testing.assert_allclose(y, mask / 0.75, rtol=1e-6)
    for dtype, digits in (
        ("float64", 1e-15),
        ("float16", 1e-3),
        (ml_dtypes.bfloat16, 8e-3),
        (ml_dtypes.float8_e4m3fn, 0.07),
    ):
        thirds = (np.ones(N) / 3).astype(dtype)
        y, mask = run_node("Dropout", [thirds, np.float32(0.25).astype(dtype), np.array(True)], 22, outputs=2)
        assert y.dtype == thirds.dtype and abs(mask.mean() - 0.75) < 0.05
        want = mask * thirds.astype(np.float64) / 0.75
        np.testing.assert_allclose(y.astype(np.float64), want, rtol=digits)
    for opset, attrs, kind in (
        (22, {}, np.bool_),
        (10, {}, np.bool_),
        (7, {}, np.float32),
        (6, {"is_test": 1}, np.float32),
    ):
        y, mask = run_node("Dropout", [x[:5]], opset, outputs=2, **only(**attrs))
        np.testing.assert_array_equal(y, x[:5])
        assert mask.dtype == kind and mask.all()
