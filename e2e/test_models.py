"""Real models in Chromium, isolated and not, against outputs shipped with them or onnxruntime's, unoptimised."""

from __future__ import annotations

import numpy as np
import pytest

from kit import zoo
from kit.chromium import Engine
from kit.models import MODELS, silero, silero_path


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, engine: Engine) -> None:
    model = MODELS[name]
    session = engine.open(model.path())
    try:
        model.check(session.run(None, model.feeds()))
    finally:
        session.release()


def test_silero_feeds_its_state_back(engine: Engine) -> None:
    """Its real weights, 100 frames: an If decided at run time, an LSTM."""
    session = engine.open(silero_path())
    expected = silero(zoo.oracle_session(silero_path().read_bytes()))
    actual = silero(session)
    session.release()
    assert {True, False} == set((expected > 0.5).tolist()), "the sound holds speech and silence"
    np.testing.assert_array_equal(actual > 0.5, expected > 0.5)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)
