"""A graph pass and a rewrite rule of an outside package, in a page; tests/test_extending.py tests them natively."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
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
    with pytest.raises(Exception, match='no pass "map_fusio" to leave out.*map_fusion'):
        engine.open(MODEL, disabledPasses=["map_fusio"])
