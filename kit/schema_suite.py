"""The schemas of JSON Schema's own test suite, draft 2020-12, from the source archive of the package jsonschema."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "build/schema-suite"


def schemas() -> list[tuple[str, Any]]:
    """Names and schemas. The archive of the installed version is fetched once."""
    name = f"jsonschema-{version('jsonschema')}"
    archive = FOLDER / f"{name}.tar.gz"
    if not archive.exists():
        how = [
            "--no-deps",
            "--no-binary",
            "jsonschema",
            "--quiet",
            "--disable-pip-version-check",
            "--dest",
            str(FOLDER),
        ]
        command = [sys.executable, "-m", "pip", "download", *how, name.replace("-", "==")]
        subprocess.run(command, check=True)
    found: list[tuple[str, Any]] = []
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda one: one.name):
            path = Path(member.name)
            if path.parts[-3:-1] == ("tests", "draft2020-12") and path.suffix == ".json":
                data = files.extractfile(member)
                assert data is not None
                found += [(f"{path.stem}: {one['description']}", one["schema"]) for one in json.load(data)]
    return found
