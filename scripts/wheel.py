"""Builds the wheel, by PyPA's build, and the lock file through which Pyodide finds it, by pyodide-lock.

Usage: python -m scripts.wheel OUT STOCK, into the folder OUT, for the Pyodide whose pyodide-lock.json is STOCK
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pyodide_lock import PyodideLockSpec
from pyodide_lock.utils import add_wheels_to_spec

ROOT = Path(__file__).parents[1]


def build(out: Path) -> Path:
    """Build the wheel. The packages for this are installed beside this program, so that nothing is fetched."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SystemExit(done.stdout)
    (wheel,) = out.glob("*.whl")
    return wheel


def lock(wheel: Path, stock: Path) -> None:
    """Write a lock file beside the wheel: the stock Pyodide with this one package. Of the stock's lock file only the
    platform is read, because pyodide-lock for Python 3.11 cannot parse packages of Pyodide 314, and requires a
    version."""
    info = json.loads(stock.read_text())["info"]
    empty = PyodideLockSpec(info={"version": "0", **info}, packages={})
    add_wheels_to_spec(empty, [wheel]).to_json(wheel.with_name("pyodide-lock.json"), indent=1)


if __name__ == "__main__":
    lock(build(Path(sys.argv[1])), Path(sys.argv[2]))
