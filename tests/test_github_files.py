"""Files that GitHub reads, against their schemas, which check-jsonschema has with it: it asks no server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kit.house import ROOT

FILES = {
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "citation-file-format": "CITATION.cff",
}


def check(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("schema", FILES)
def test_files_follow_their_schemas(schema: str) -> None:
    paths = sorted(ROOT.glob(FILES[schema]))
    assert paths
    done = check(schema, *paths)
    assert not done.returncode, done.stdout + done.stderr


def test_a_misspelt_key_is_found(tmp_path: Path) -> None:
    text = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    wrong = tmp_path / "test.yml"
    wrong.write_text(text.replace("runs-on", "runs_on"), encoding="utf-8")
    done = check("github-workflows", wrong)
    assert done.returncode and "runs-on" in done.stdout + done.stderr
