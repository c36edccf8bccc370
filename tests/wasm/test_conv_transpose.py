"""ConvTranspose by phases of its stride, against onnxruntime without optimisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit import zoo
from pyruntime import InferenceSession
from tests.wasm.test_routines import floats, model, node

# x, w, attributes: windows below, at and above the stride, what begins inside a phase, rows around eight elements
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 4, 8), (3, 2, 2, 2), {"strides": [2, 2]}),
    ((2, 3, 3, 7), (3, 5, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 4, 9), (2, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 2, 3, 5), (2, 3, 3, 3), {"strides": [2, 2], "pads": [0, 1, 1, 0]}),
    ((1, 2, 3, 5), (2, 3, 1, 1), {"strides": [2, 2]}),
    ((1, 2, 3, 5), (2, 3, 2, 1), {"strides": [3, 3], "output_padding": [1, 2]}),
    ((1, 2, 5, 4), (2, 3, 7, 5), {"strides": [3, 2], "pads": [4, 3, 2, 2]}),
    ((1, 2, 5, 4), (2, 3, 5, 5), {"strides": [4, 4], "pads": [3, 2, 1, 0]}),
    ((1, 2, 5, 6), (2, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 2, 5, 6), (2, 3, 3, 3), {"dilations": [2, 3], "pads": [1, 0, 1, 2]}),
    ((1, 2, 5, 6), (2, 3, 3, 3), {"dilations": [2, 2], "strides": [2, 2]}),
    ((1, 2, 5, 6), (2, 3, 3, 3), {"pads": [3, 3, 3, 3]}),
    ((1, 2, 6, 5), (2, 3, 2, 2), {"strides": [2, 2], "pads": [3, 3, 2, 2]}),
    ((2, 6, 4, 5), (6, 2, 3, 3), {"strides": [2, 2], "group": 3, "pads": [1, 1, 1, 1]}),
    ((2, 4, 4, 5), (4, 1, 4, 4), {"strides": [2, 2], "group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 16, 13, 14), (16, 17, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 9), (3, 2, 5), {"strides": [3], "pads": [2, 1]}),
    ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [2, 1, 2], "pads": [0, 1, 1, 0, 1, 0]}),
    ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": [2, 2], "output_shape": [8, 7]}),
    ((0, 3, 4, 4), (3, 2, 2, 2), {"strides": [2, 2]}),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("after", ["", "bias", "Relu", "Tanh"])
@pytest.mark.parametrize(("x", "w", "attrs"), CASES, ids=str)
def test_conv_transpose(x: Any, w: Any, attrs: dict[str, Any], after: str, symbolic: bool) -> None:
    feeds, weights = {"x": floats(*x)}, {"w": floats(*w)}
    if after:
        weights["b"] = floats(w[1] * attrs.get("group", 1))
    nodes = [node("ConvTranspose", " ".join(["x", *weights]), "y", **attrs)]
    if after not in ("", "bias"):
        nodes.append(node(after, "y", "z"))
    data = model(nodes, feeds, weights, symbolic)
    (got,), (want,) = InferenceSession(data).run(None, feeds), zoo.oracle(data, feeds)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


SPECIAL: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    *CASES[:-1],
    ((1, 3, 5, 40), (3, 2, 3, 3), {"strides": [2, 2]}),
    ((2, 4, 30), (4, 2, 11), {"strides": [4], "group": 2}),
    ((1, 4, 9, 13), (4, 5, 5, 5), {"strides": [2, 2]}),
]


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("after", ["", "Relu"])
@pytest.mark.parametrize(("x", "w", "attrs"), SPECIAL, ids=str)
def test_what_is_not_a_number_reaches_its_window_only(
    x: Any, w: Any, attrs: dict[str, Any], after: str, special: float
) -> None:
    """Also where filters of a phase are padded with zeros."""
    feeds, weights = {"x": floats(*x)}, {"w": floats(*w)}
    feeds["x"][(0, 1, *[n // 2 for n in x[2:]])] = special
    feeds["x"][(-1, 0, *[0 for _ in x[2:]])] = -special
    nodes = [node("ConvTranspose", "x w", "y", **attrs), *([node(after, "y", "z")] if after else [])]
    data = model(nodes, feeds, weights, False)
    (got,), (want,) = InferenceSession(data).run(None, feeds), zoo.oracle(data, feeds)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
