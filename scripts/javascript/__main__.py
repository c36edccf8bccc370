"""Writes the JavaScript that follows from Python: pyruntime/runtime/*.py as web/runtime/*.js with source maps, and the
tables of scripts/contract.py. Does nothing if no source has changed.

Usage: python -m scripts.javascript [--force]
Errors: exits with 1 and prints file, line and reason for Python that is not in the subset (docs/design/runtime.md)."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, TARGET = ROOT / "pyruntime/runtime", ROOT / "web/runtime"
STAMP = TARGET / ".digest"
SINGLE = (
    "pyruntime/program/types.py",
    "pyruntime/program/schema.json",
    "pyruntime/program/dims.py",
    "pyruntime/options.py",
    "pyruntime/codegen/linear_memory.py",
    "pyruntime/training/graph/recipe.py",
    "scripts/contract.py",
    "scripts/option_table.py",
)


def digest() -> str:
    """Of all that decides what is written."""
    single = [ROOT / name for name in SINGLE]
    inputs = [*SOURCE.glob("*.py"), *Path(__file__).parent.glob("*.py"), *single]
    return hashlib.sha256(b"".join(p.name.encode() + p.read_bytes() for p in sorted(inputs))).hexdigest()


def main(arguments: list[str]) -> int:
    from scripts import contract

    now = digest()
    is_there = all((ROOT / name).exists() for name in (*contract.BUILT, STAMP))
    if "--force" not in arguments and is_there and STAMP.read_text() == now:
        return 0
    from scripts.javascript.translation import translate  # mypy takes seconds to load and to run

    files, errors = translate(
        {f"pyruntime.runtime.{p.stem}": p for p in sorted(SOURCE.glob("*.py")) if p.stem != "__init__"}
    )
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        return 1
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.iterdir():
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text)
    for name, write in contract.BUILT.items():
        (ROOT / name).write_text(write())
    STAMP.write_text(now)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
