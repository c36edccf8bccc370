"""`make demo` itself, without its longer table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kit.chromium import ROOT


@pytest.mark.alone  # builds dist/ anew
def test_demo(built: None) -> None:
    command = [sys.executable, "-m", "demo", "--quick", "--provider", "wasm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    ran = {tuple(row[:4]) for row in rows if "ok" in row}
    names = ("mobilenet_v2", "digits")
    assert ran == {(name, where, "wasm", "ok") for name in names for where in ("native", "Chromium")}
