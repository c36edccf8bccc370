"""Ways to call a session in Python that meet: a covering array over kit/feature_pairs.py, each result against NumPy's.
tests/test_feature_table.py has the features that all places have."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.covering import covering
from kit.feature_pairs import AXES, Case

REFUSED = {frozenset(("wasm", "gpu"))}  # tests/test_feature_table.py has it
COMBINATIONS = covering(AXES, lambda one, other: frozenset((one, other)) not in REFUSED)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=[", ".join(row.values()) for row in COMBINATIONS])
def test_features_that_meet(combination: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if combination["source"] == "cached program":
        monkeypatch.delenv("PYRUNTIME_DISABLE_PROGRAM_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Case(combination, tmp_path).run()
