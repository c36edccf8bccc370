"""Combinations of features that contain each pair which the table says works, in Python; and the pairs that it says
are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.feature_table import rows
from kit.native_rows import NativeRow
from kit.row_tasks import check, task

ROWS = rows("Python")


@pytest.mark.filterwarnings("ignore:pyruntime:RuntimeWarning")  # the sessions say that they recover
@pytest.mark.parametrize("row", ROWS, ids=[", ".join(row.values()) for row in ROWS])
def test_features_that_meet(row: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if row["model"] == "cached Program":
        monkeypatch.delenv("PYRUNTIME_DISABLE_PROGRAM_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check(row, NativeRow(task(row), tmp_path, monkeypatch).run())
