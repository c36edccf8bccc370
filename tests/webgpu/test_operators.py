"""ONNX Runtime's own operators on the native GPU, against ONNX Runtime."""

from __future__ import annotations

import pytest

from kit.conformance.compare import assert_equal
from pyruntime import InferenceSession
from tests.ops.one_of_each import Example, examples

pytest.importorskip("wgpu")


@pytest.mark.parametrize("example", examples(), ids=lambda e: e.name)
def test_operator(example: Example) -> None:
    session = InferenceSession(example.model, providers=["webgpu"])
    tolerance = max(example.tolerance, 1e-3)
    assert_equal(example.expected(), session.run(None, example.feeds), tolerance, tolerance)
