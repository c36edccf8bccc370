"""Compares a program's results on this engine with those on onnxruntime."""

from __future__ import annotations

import math
from typing import Any


def assert_same(found: Any, expected: Any, tolerance: float = 1e-4, where: str = "") -> None:
    """Compares plain data: floats within the tolerance, relative and absolute; everything else must be equal."""
    numbers = isinstance(expected, int | float) and not isinstance(expected, bool)
    if numbers and (isinstance(expected, float) or isinstance(found, float)):
        assert math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance), f"{where}: {found}, not {expected}"
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_same(a, b, tolerance, f"{where}[{number}]")
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_same(found[key], expected[key], tolerance, f"{where}.{key}")
    else:
        assert found == expected, where
