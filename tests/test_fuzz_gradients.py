"""The judge of gradients: what it finds, and what it leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from fuzz import gradients
from fuzz.case import Case
from fuzz.draw import Draw

# Steps of large values that are rounded look smooth to differences.
GRAPHS = {
    "round": "a = Mul (x, large)  b = Round (a)  c = Div (b, large)  d = Sin (x)  y = Add (c, d)",
    "cast": "a = Mul (x, large)  b = Cast <to = 7> (a)  e = Cast <to = 11> (b)  c = Div (e, large)  y = Mul (c, x)",
    "smooth": "a = Sin (x)  y = Mul (a, x)",
}


def judged(graph: str) -> Any:
    text = f"""<ir_version: 9, opset_import: ["" : 20]> g (double[3, 4] x) => (double[3, 4] y)
        <double large = {{1e9}}> {{ {GRAPHS[graph]} }}"""
    model = onnx.parser.parse_model(text).SerializeToString()
    feeds = {"x": np.random.default_rng(0).normal(size=(3, 4))}
    return gradients.judge(Case("gradients", model, (feeds,), note="Graph"), Draw("1"), lambda *_: None)


@pytest.mark.parametrize("graph", GRAPHS)
def test_faults_are_found_beside_rounding(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(graph).outcome == "right"
    right = gradients._Judged.gradients

    def wrong(self: Any, *given: Any) -> Any:
        session, found = right(self, *given)
        return session, [found[0], *[1.1 * g for g in found[1:]]]

    monkeypatch.setattr(gradients._Judged, "gradients", wrong)
    monkeypatch.setattr(gradients, "_differ", lambda a, b: "")
    assert judged(graph).outcome == "wrong"


def test_roots_of_negative_variances_without_elements() -> None:
    """The gradient of the scale is 0 · NaN, where no value of the graph is NaN."""
    text = """<ir_version: 9, opset_import: ["" : 15]> g (double[0, 2] x, double[2] w, double[2] v) => (double[0, 2] y)
        <double[2] zeros = {0, 0}> { y = BatchNormalization (x, w, zeros, zeros, v) }"""
    feeds = {"x": np.zeros((0, 2)), "w": np.ones(2), "v": -np.ones(2)}
    case = Case("gradients", onnx.parser.parse_model(text).SerializeToString(), (feeds,), note="BatchNormalization")
    verdict = gradients.judge(case, Draw("1"), lambda *_: None)
    assert verdict.outcome == "open" and "negative variances" in verdict.kind
