"""Installs what `make release` built into empty projects, and runs them: `make released`.

The wheel and the sdist in a new environment of each Python on the path, the tarball for npm in the projects of the
examples. Prints a line for each, also for a Python that is skipped; exits with 1 if one fails or if no Python
starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from e2e import readmes
from kit import chromium
from kit.chromium import ROOT

RELEASE = ROOT / "build/release"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
EXAMPLES = ("script-tag", "own-worker", "vite", "webpack", "next", "node")
REQUIRED = """
const { InferenceSession, Tensor } = require('pyruntime');
InferenceSession.create('digits.onnx')
  .then((session) => session.run({ image: new Tensor('float32', new Float32Array(784), [1, 1, 28, 28]) }))
  .then(({ probabilities }) => console.log(probabilities.dims.join()));
"""


def released(ending: str) -> Path:
    (file,) = RELEASE.glob(f"*{ending}")
    return file


def obstacle(python: str) -> str:
    """Why this Python cannot make a virtual environment; "" if it can. pyenv puts commands on the path that do not
    start."""
    if not shutil.which(python):
        return "not on the path"
    done = subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, text=True)
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"does not start: {lines[0]}" if done.returncode else ""


def in_python(python: str, package: Path, folder: Path) -> None:
    """A program and the command line, where nothing else is installed."""
    for name in ("read.py", "digits.onnx"):
        shutil.copy(ROOT / "examples/python" / name, folder)
    readmes.run(f"{python} -m venv .venv && .venv/bin/python -m pip install -q '{package}[native]'", folder)
    assert "A blank is read as 1." in readmes.run(".venv/bin/python read.py", folder)
    readmes.run(".venv/bin/pyruntime run digits.onnx --random", folder)
    readmes.run(".venv/bin/pyruntime export digits.onnx digits.pyrt --weights", folder)
    readmes.run(".venv/bin/python -m pyruntime.onnxruntime read.py", folder)


def required(folder: Path) -> None:
    """By require() in Node.js, in the project of an example."""
    (folder / "required.cjs").write_text(REQUIRED)
    assert readmes.run("node required.cjs", folder).strip() == "1,10"


def trials(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """What to try, each by a function that raises an error if it fails."""
    for python in PYTHONS:
        if reason := obstacle(python):
            print(f"{python:52}skipped: {reason}", flush=True)
            continue
        for package in (released(".whl"), released(".tar.gz")):
            place = Path(tempfile.mkdtemp(dir=folder))
            yield f"{python} {package.name}", partial(in_python, python, package, place)
    checkout = readmes.clone(folder / "checkout")
    for name in ("build/package", "dist"):
        (checkout / name).unlink()
    (checkout / "build/package").mkdir()
    shutil.copy(released(".tgz"), checkout / "build/package/pyruntime.tgz")
    shutil.unpack_archive(released(".tgz"), folder)
    shutil.move(folder / "package/dist", checkout)
    with chromium.launch() as browser:
        page = browser.new_page()
        for name in EXAMPLES:
            yield f"{released('.tgz').name} in {name}", partial(readmes.follow, name, checkout, page)
    yield f"{released('.tgz').name} by require()", partial(required, checkout / "examples/node")


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, trial in trials(Path(folder)):
            start = time.monotonic()
            try:
                trial()
                result = "ok"
            except Exception as error:
                result, failed = f"failed: {error}", failed + 1
            print(f"{name:52}{time.monotonic() - start:4.0f} s  {result}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
