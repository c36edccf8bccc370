"""`pyruntime/testing` for Node.js, and the plugin of pytest, in a project that has installed them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import playwright
import pytest

from kit.chromium import ROOT, chromium_path

PROJECT = ROOT / "e2e/testing_project"
CONFTEST = 'pytest_plugins = ["pyruntime.testing"]\n'


@pytest.fixture
def project(built: None, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    shutil.copy(ROOT / "demo/digits/digits.onnx", folder / "public")
    package = folder / "node_modules/pyruntime"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "package.json", package)
    shutil.copytree(ROOT / "dist", package / "dist")
    driver = Path(playwright.__file__).parent / "driver/package"
    (folder / "node_modules/playwright-core").symlink_to(driver)
    (folder / "conftest.py").write_text(CONFTEST)
    return folder


def run(project: Path, *command: str) -> str:
    environment = {**os.environ, "PYRUNTIME_CHROMIUM": chromium_path() or "", "PYTHONPATH": str(ROOT)}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


def test_from_node(project: Path) -> None:
    out = run(project, "node", "--test", "--test-reporter=tap", "page.test.mjs")
    assert "# pass 1" in out and "# fail 0" in out


def test_from_pytest(project: Path) -> None:
    out = run(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py")
    assert "1 passed" in out
