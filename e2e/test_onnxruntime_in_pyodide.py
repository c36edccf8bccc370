"""Programs that import onnxruntime run unchanged in a stock Pyodide, and give what onnxruntime gives on the desktop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.stock_pyodide import run_in_worker
from kit import small_models
from kit.chromium import ROOT

PROGRAMS = "onnxruntime_programs.py"
ON_THE_DESKTOP = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); import onnxruntime_programs as p; print(p.main(sys.argv[2]))"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    small_models.write(folder)
    (folder / "digits.onnx").write_bytes((ROOT / "demo/digits/digits.onnx").read_bytes())
    return folder


def test_programs_are_unchanged(built: None, browser: Browser, models: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", ON_THE_DESKTOP, str(ROOT / "e2e/pages"), str(models)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs: dict[str, Any] = json.loads(done.stdout)
    ours = run_in_worker(browser, tmp_path, models, PROGRAMS, "")
    assert len(ours) == 10
    for name, found in theirs.items():
        assert equal(ours[name], found), f"{name}: {ours[name]} {found}"


def equal(a: Any, b: Any) -> bool:
    """Numbers within rounding."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return bool(abs(a - b) < 1e-3)
    return bool(a == b)
