"""Pairs of features that meet in a session: a covering array over kit/feature_pairs.py, each result against NumPy's."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from allpairspy import AllPairs

from kit.feature_pairs import AXES, Case

COMBINATIONS = [dict(zip(AXES, values, strict=True)) for values in AllPairs(list(AXES.values()))]


def test_every_pair_is_covered() -> None:
    met = {frozenset((a, b)) for row in COMBINATIONS for a in row.items() for b in row.items()}
    for (axis, values), (other, others) in combinations(AXES.items(), 2):
        assert not [(a, b) for a in values for b in others if frozenset({axis: a, other: b}.items()) not in met]


@pytest.mark.parametrize("combination", COMBINATIONS, ids=[", ".join(row.values()) for row in COMBINATIONS])
def test_features_that_meet(combination: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if combination["source"] == "cached program":
        monkeypatch.delenv("PYRUNTIME_DISABLE_PROGRAM_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Case(combination, tmp_path).run()
