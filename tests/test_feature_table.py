"""Combinations of features that contain each pair which the table says works, in Python; and the pairs that it says
are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.counting_decoders import with_layer
from kit.feature_pairs import NUMBERS
from kit.feature_table import Verdict, attempt, features, refused, rows
from kit.native_rows import SAMPLING, NativeRow
from kit.row_tasks import check, task
from pyruntime import Batcher, InferenceSession, SessionOptions, TextGenerator, TrainingSession, errors
from pyruntime.session.events import delivered

ROWS = rows("Python")
REFUSED = refused("Python")
TAKERS = {"Batcher": Batcher, "TextGenerator": TextGenerator}


@pytest.mark.filterwarnings("ignore:pyruntime:RuntimeWarning")  # the sessions say that they recover
@pytest.mark.parametrize("row", ROWS, ids=[", ".join(row.values()) for row in ROWS])
def test_features_that_meet(row: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if row["model"] == "cached Program":
        monkeypatch.delenv("PYRUNTIME_DISABLE_PROGRAM_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check(row, NativeRow(task(row), tmp_path, monkeypatch).run())


@pytest.mark.parametrize(("one", "other", "found"), REFUSED, ids=[f"{one}, {other}" for one, other, _ in REFUSED])
def test_pairs_that_are_refused(
    one: str, other: str, found: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session, or what uses it, cannot be created; or no run succeeds."""
    kind = getattr(errors, found.error)
    if one in TAKERS and other == "training":
        with TrainingSession(NUMBERS.model(), loss={"mse": "y"}) as session, pytest.raises(kind):
            TAKERS[one](session)
        return
    row = NativeRow(task(attempt(one, other)), tmp_path, monkeypatch)
    with pytest.raises(kind):
        row.run()
    delivered()
    assert "run" not in row.events and "step" not in row.events


@pytest.mark.parametrize(
    "option",
    [
        {"adapters": {"one": NUMBERS.adapter("one")}}, {"outputs": ["y"]}, {"sample_from": "y"},
        {"sample_positions": 1}, {"preferred_output_location": {"y": "gpu-buffer"}},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_training_cannot_honour(option: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput, match="for training"):
        TrainingSession(NUMBERS.model(), loss={"mse": "y"}, sess_options=SessionOptions(**option))


def test_a_program_samples_as_many_positions_as_it_was_exported_for() -> None:
    decoder = with_layer("growing caches").model.SerializeToString()
    program = InferenceSession(decoder, SessionOptions(**SAMPLING)).export(weights=True)
    with pytest.raises(errors.InvalidInput, match="samples 1 positions, not 5"):
        TextGenerator(program, draft=decoder)


def test_every_feature_has_a_place() -> None:
    """Each feature works in one of the places at least, and is in one of its rows."""
    places = {name: rows(name) for name in ("Python", "JavaScript", "Pyodide")}
    met = {value for found in places.values() for row in found for value in row.values()}
    assert {*features()} <= met | {*places}
