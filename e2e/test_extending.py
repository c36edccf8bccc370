"""A graph pass, a rewrite rule and a provider of an outside package, in a page.
tests/test_extending.py tests them natively."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.chromium import ROOT, Engine
from kit.small_models import negations

MODEL = negations().SerializeToString()
PASSES = ["visitor.double_negation", "visitor.quick_erf"]
X = np.linspace(-3, 3, 101, dtype=np.float32)


@pytest.fixture
def extended(engine: Engine) -> Iterator[Engine]:
    """A page whose engine has the passes of tests/outside/visitor."""
    engine.python((ROOT / "tests" / "outside" / "visitor" / "passes.py").read_text())
    yield engine
    engine.python(f"from pyruntime import remove_pass\nfor name in {PASSES}: remove_pass(name)")


def exact() -> np.ndarray:
    return zoo.oracle(MODEL, {"x": X})[0]


def quick() -> np.ndarray:
    return X + np.tanh(1.1283792 * X + 0.1009110 * X**3)


@pytest.mark.parametrize(
    ("options", "gone", "expected"),
    [
        ({}, True, quick),
        ({"graphOptimizationLevel": "basic"}, True, exact),
        ({"disabledPasses": ["visitor.quick_erf"]}, True, exact),
        ({"disabledPasses": ["visitor.double_negation"]}, False, quick),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_passes_in_a_page(extended: Engine, options: dict[str, Any], gone: bool, expected: Any) -> None:
    session = extended.open(MODEL, **options)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(), rtol=1e-5, atol=1e-6)
    nodes = {n["node"].partition(" (")[0]: n["place"] for n in session.explain()["nodes"]}
    assert [nodes[f'Neg "{name}"'] == "unused" for name in "ab"] == [gone] * 2
    assert np.abs(exact() - quick()).max() > 1e-4


def test_a_name_that_is_no_pass(engine: Engine) -> None:
    with pytest.raises(Exception, match='no pass "map_fusio" to disable.*map_fusion'):
        engine.open(MODEL, disabledPasses=["map_fusio"])


def test_a_provider_in_a_page(engine: Engine) -> None:
    """Kernels in Python between kernels in WebAssembly, in one model."""
    slow = (ROOT / "tests" / "outside" / "visitor" / "slow.py").read_text()
    engine.python(slow + "\nfrom pyruntime import register_provider\nregister_provider(provider)")
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[N] x) => (float[N] y) <int64 zero = {0}> {
        h = Tanh (x)  c = CumSum (h, zero)  y = Neg (c) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    session = engine.open(model, executionProviders=["slow", "wasm"])
    for _ in range(12):  # short programs move to the page; those with Python stay
        np.testing.assert_allclose(session.run(None, {"x": X})[0], zoo.oracle(model, {"x": X})[0], rtol=1e-5, atol=1e-5)
    nodes = session.explain()["nodes"]
    assert [n["place"] for n in nodes] == ["slow", "wasm", "slow"]
    assert [n["why"] for n in nodes] == ["", "a Loops is too slow for Python", ""]
    assert session.explain()["placement"] == {"slow": 2, "wasm": 1}
