"""Windows in vector lanes: neighbours and every second element, with borders that are computed lane by lane."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper

from kit.zoo import oracle
from pyruntime import InferenceSession
from tests.ops.compare import model

KINDS = ("float32", "uint8", "int8")


def numbers(kind: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(7)
    return (
        random.standard_normal(shape, np.float32) if kind == "float32" else random.integers(-99, 99, shape).astype(kind)
    )


def check(op: str, x: np.ndarray, **attributes: Any) -> str:
    """The loops."""
    made = model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": x}, ["y"]).SerializeToString()
    (expected,) = oracle(made, {"x": x})
    session = InferenceSession(made)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-6, atol=1e-6, err_msg=str(attributes))
    return session.listing()


@pytest.mark.parametrize("kind", [*KINDS, "float16"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_largest(kind: str, stride: int) -> None:
    """Two borders in one block of lanes, one, or none; 7 columns are fewer than two blocks."""
    for size, pads, width in product((2, 3, 5), ([0, 0, 0, 0], [1, 1, 0, 1]), (7, 23)):
        window = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": pads}
        loops = check("MaxPool", numbers(kind, 2, 3, 11, width), **window)
        assert stride == 3 or "vector for" in loops, window


@pytest.mark.parametrize("stride", [1, 2])
def test_means_and_distances(stride: int) -> None:
    x = numbers("float32", 1, 2, 9, 21)
    for count in (0, 1):
        window = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
        check("AveragePool", x, count_include_pad=count, **window)
    check("MaxPool", x, kernel_shape=[3, 3], strides=[stride, stride], dilations=[2, 2], pads=[2, 2, 2, 2])


@pytest.mark.parametrize("kind", [*KINDS, "int32", "uint16", "int16", "float16"])
def test_each_second_element(kind: str) -> None:
    """A step of two between loads and sums."""
    x = np.abs(numbers("int8", 3, 45)).astype(kind)
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["half"]),
        helper.make_node("Cast", ["half"], ["y"], to=1),
    ]
    given = {"start": [1], "end": [45], "axis": [1], "step": [2]}
    feeds = {"x": x} | {name: np.array(value, np.int64) for name, value in given.items()}
    made = model(nodes, feeds, ["y"]).SerializeToString()
    np.testing.assert_array_equal(InferenceSession(made).run(None, feeds)[0], x[:, 1::2].astype(np.float32))


def test_chains_that_share_their_operands() -> None:
    """Each sine uses its argument many times, on both sides of a guard. The printer must analyse each node once:
    otherwise the compile time doubles with each use."""
    x = np.linspace(-9e4, 9e4, 27, dtype=np.float32)
    nodes = [helper.make_node("Sin", [a], [b]) for a, b in zip("xabc", "abcy", strict=True)]
    session = InferenceSession(model(nodes, {"x": x}, ["y"]).SerializeToString())
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.sin(np.sin(np.sin(np.sin(x)))), atol=1e-6)
