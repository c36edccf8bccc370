"""The table of probes in Chromium, isolated and not."""

from __future__ import annotations

import pytest

from kit.chromium import Engine
from kit.conformance.compare import assert_equal
from kit.probes import PROBES


@pytest.mark.parametrize("name", PROBES)
def test_probe(name: str, engine: Engine) -> None:
    probe = PROBES[name]
    session = engine.open(probe.model)
    for i, (feeds, expected) in enumerate(probe.runs):
        assert_equal(expected, session.run(None, feeds), probe.rtol, probe.atol, f"run {i}")
    session.release()
