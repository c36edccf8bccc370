"""Compares outputs by the suite's rules: same structure, shapes and element types, values within rtol and atol."""

from __future__ import annotations

from typing import Any

import numpy as np

# As the official runner (onnx/backend/test/runner): two units in the last place, each 2^-7 of the number.
BFLOAT16_RTOL = 2.0**-6


def assert_equal(expected: Any, actual: Any, rtol: float, atol: float, where: str = "outputs") -> None:
    """Raises AssertionError with the first difference. NaN equals NaN; strings must be equal."""
    if expected is None:
        assert actual is None, f"{where}: expected an empty optional, got {type(actual).__name__}"
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), f"{where}: expected a map, got {type(actual).__name__}"
        assert list(expected) == list(actual), f"{where}: keys {list(actual)} instead of {list(expected)}"
        for key, value in expected.items():
            assert_equal(value, actual[key], rtol, atol, f"{where}[{key!r}]")
    elif isinstance(expected, list):
        assert isinstance(actual, list | tuple), f"{where}: expected a sequence, got {type(actual).__name__}"
        assert len(expected) == len(actual), f"{where}: {len(actual)} values instead of {len(expected)}"
        for i, (value, other) in enumerate(zip(expected, actual, strict=True)):
            assert_equal(value, other, rtol, atol, f"{where}[{i}]")
    else:
        _assert_tensor(np.asarray(expected), actual, rtol, atol, where)


def _assert_tensor(expected: np.ndarray, actual: Any, rtol: float, atol: float, where: str) -> None:
    assert isinstance(actual, np.ndarray | np.generic), f"{where}: expected a tensor, got {type(actual).__name__}"
    assert expected.shape == actual.shape, f"{where}: shape {actual.shape} instead of {expected.shape}"
    if expected.dtype.kind in "OU":
        assert actual.dtype.kind in "OU", f"{where}: {actual.dtype} instead of strings"
        assert expected.tolist() == actual.tolist(), f"{where}: {actual.tolist()} instead of {expected.tolist()}"
        return
    assert expected.dtype == actual.dtype, f"{where}: {actual.dtype} instead of {expected.dtype}"
    if expected.dtype.name == "bfloat16":
        rtol = max(rtol, BFLOAT16_RTOL)
    left, right = _plain(np.asarray(actual)), _plain(expected)
    try:
        if rtol == atol == 0:  # assert_allclose would round int64 to doubles
            np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=rtol, atol=atol)
    except AssertionError as error:
        text = " ".join(line.strip() for line in str(error).splitlines()[3:] if line.strip())
        raise AssertionError(f"{where}: {text}") from None


def _plain(array: np.ndarray) -> np.ndarray:
    """Converts element types that NumPy lacks (bfloat16, float8, int4 …) to float32, exactly."""
    return array if array.dtype.type.__module__ == "numpy" else array.astype(np.float32)
