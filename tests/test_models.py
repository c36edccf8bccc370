"""Real models, natively, against outputs that are shipped with them or computed by onnxruntime unoptimised."""

from __future__ import annotations

import numpy as np
import pytest

from kit import zoo
from kit.models import MODELS, SILERO, silero, silero_path
from tests.conftest import Open


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, open_session: Open) -> None:
    model = MODELS[name]
    model.check(open_session(model.path()).run(None, model.feeds()))


@pytest.mark.parametrize("version", SILERO)
def test_silero_feeds_its_state_back(version: str, open_session: Open) -> None:
    expected = silero(zoo.oracle_session(silero_path(version).read_bytes()), version)
    assert {True, False} == set((expected > 0.5).tolist()), "the sound holds speech and silence"
    actual = silero(open_session(silero_path(version)), version)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(actual > 0.5, expected > 0.5)
