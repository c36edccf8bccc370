"""Programs that import onnxruntime run unchanged in a stock Pyodide, on WebAssembly and on WebGPU, and give what
onnxruntime gives on the desktop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from playwright.sync_api import Browser

from e2e.stock_pyodide import run_in_worker
from kit import small_models
from kit.chromium import ROOT

PROGRAMS, ON_GPU, NOTEBOOK = "onnxruntime_programs.py", "webgpu_in_pyodide.py", "notebook_in_pyodide.py"
ON_THE_DESKTOP = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); import onnxruntime_programs as p; print(p.main(sys.argv[2]))"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    small_models.write(folder)
    (folder / "digits.onnx").write_bytes((ROOT / "demo/digits/digits.onnx").read_bytes())
    (folder / PROGRAMS).write_bytes((ROOT / "e2e/pages" / PROGRAMS).read_bytes())
    return folder


@pytest.fixture(scope="module")
def theirs(models: Path) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-c", ON_THE_DESKTOP, str(ROOT / "e2e/pages"), str(models)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def check(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert len(ours) == len(theirs) == 10
    for name, found in theirs.items():
        assert equal(ours[name], found), f"{name}: {ours[name]} {found}"


def test_programs_are_unchanged(
    built: None, browser: Browser, models: Path, tmp_path: Path, theirs: dict[str, Any]
) -> None:
    check(run_in_worker(browser, tmp_path, models, PROGRAMS, ""), theirs)


def test_on_webgpu(built: None, browser: Browser, models: Path, tmp_path: Path, theirs: dict[str, Any]) -> None:
    """Plain calls wait for the GPU."""
    waits, ours, used, placement = run_in_worker(browser, tmp_path, models, ON_GPU, "", waits=True)
    assert waits
    check(ours, theirs)
    assert used == ["WebGpuExecutionProvider", "CPUExecutionProvider"] and placement["webgpu"] > 3


@pytest.mark.parametrize("in_page", [False, True])
def test_awaiting_webgpu(built: None, browser: Browser, models: Path, tmp_path: Path, in_page: bool) -> None:
    """Where plain calls cannot wait."""
    found = run_in_worker(browser, tmp_path, models, ON_GPU, "await", in_page=in_page, jspi=False)
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    both = np.maximum(x @ small_models.WEIGHT + small_models.BIAS, 0)
    right = pytest.approx(both, rel=1e-4)
    assert not found["can_run_sync"]
    assert np.array(found["plain"][0]) == right and found["plain"][1] == ["CPUExecutionProvider"]
    assert found["none"] == {"named": ["webgpu", "wasm"], "used": ["wasm"], "why": "this browser has no WebGPU adapter"}
    assert [text.split(";")[0] for text in found["warnings"]] == [
        "Python cannot wait for the GPU here (`await InferenceSession.create(…)` can)",
        "this browser has no WebGPU adapter",
    ]
    assert found["refused"].startswith("NoAdapter: this browser has no WebGPU adapter")
    for rows, result in zip((1, 2, 1) * 2, found["runs"], strict=True):
        assert np.array(result) == pytest.approx(both[:rows], rel=1e-4)
    assert found["used"]["used"] == ["webgpu", "wasm"] and found["metrics"] == [3, 3]
    wanted = [
        'input "x" has 2 elements along axis 1, expected 4', "input \"x\" is missing (inputs are ['x'])",
    ]  # fmt: skip
    assert all(map(str.startswith, found["mistakes"], wanted)) and len(found["mistakes"]) == len(wanted)
    assert "await session.run_awaitable" in found["cannot"]
    for key in ("again", "trimmed"):
        assert np.array(found[key]) == right
    assert found["joined"] == [1.0, 2.0, 3.0]


def test_a_notebook(built: None, browser: Browser, models: Path, tmp_path: Path) -> None:
    """It installs the wheel by micropip and runs on WebAssembly and on the GPU, by plain calls and by `await`."""
    cells = json.loads((ROOT / "examples/notebook/in_the_browser.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    found = run_in_worker(browser, tmp_path, models, NOTEBOOK, json.dumps(code), waits=True, installs=False)
    image = np.multiply.outer(np.arange(28), np.arange(28)).astype(np.float32)[None, None] / 729
    (right,) = onnxruntime.InferenceSession(models / "digits.onnx").run(None, {"image": image})
    _, plain, on_gpu, (used, awaited), _, theirs = found
    assert used == ["webgpu", "wasm"]
    for result in (plain, on_gpu, awaited, theirs):
        np.testing.assert_allclose(result, right, atol=1e-5)


def equal(a: Any, b: Any) -> bool:
    """Numbers within rounding."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return bool(abs(a - b) < 1e-3)
    return bool(a == b)
