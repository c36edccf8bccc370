"""The modules of web/ that need no browser, tested in Node.js by its own test runner (also: `npm test`)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kit.docs import ROOT

# The vectors are for both runtimes: tests/test_vectors.py runs them.
FILES = sorted(set((ROOT / "tests" / "web").glob("*.test.mjs")) - {ROOT / "tests" / "web" / "vectors.test.mjs"})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.partition(".")[0])
def test_in_node(file: Path) -> None:
    command = ["node", "--no-warnings", "--test", "--test-reporter=tap", str(file)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    count = re.search(r"^# pass (\d+)$", run.stdout, re.MULTILINE)
    assert count and int(count[1]) > 1, "a file whose tests are found"
