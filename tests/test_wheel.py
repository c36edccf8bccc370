"""The wheel, built and installed as anybody would: the command line, what it says is missing, both providers."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.wheel import ROOT, build

MODEL = ROOT / "demo/digits/digits.onnx"
PACKAGES = ("numpy", "wasmtime", "wgpu", "cffi", "_cffi_backend", "rendercanvas", "pycparser", "sniffio")  # of `native`


def run(*command: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    texts = [str(part) for part in command]
    return subprocess.run(texts, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """A new environment with the wheel and nothing else."""
    python = tmp_path / "venv/bin/python"
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"],
        [sys.executable, "-m", "pip", f"--python={python}", "install", "-q", "--no-index", wheel],
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    return python


def test_the_wheel_holds_what_the_tree_does(wheel: Path) -> None:
    """From a source distribution, too, without anything else of the tree."""
    files = [p.relative_to(ROOT) for folder in ("pyruntime", "providers") for p in (ROOT / folder).rglob("*")]
    ours = {str(p) for p in files if p.suffix in {".py", ".js", ".wgsl", ".json", ".typed", ".h"}}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours |= {str(p.relative_to(ROOT)) for p in (ROOT / "docs/errors").glob("*.md")}
    assert names == {name if name.startswith("pyruntime/") else f"pyruntime/{name}" for name in ours}
    folder = wheel.parent / "sdist"
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / wheel.name).read_bytes() == wheel.read_bytes(), "builds are reproducible"
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        assert not [name for name in archive.getnames() if "/tests/" in name or "/web/" in name]


def test_without_extras_it_says_what_is_missing(installed: Path, tmp_path: Path) -> None:
    pyruntime = installed.with_name("pyruntime")
    assert run(pyruntime, "--version").stdout.count(".") == 2
    assert "--port" in run(pyruntime, "serve", "--help").stdout
    told = 'numpy and wasmtime are not installed (pip install "pyruntime-onnx[native]")'
    done = run(pyruntime, "run", MODEL, "--random")
    assert (done.returncode, done.stderr) == (2, f"pyruntime: {told}\n")
    for program in ("from pyruntime import InferenceSession", "import pyruntime.onnxruntime"):
        done = run(installed, "-c", program, folder=tmp_path)
        assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {told}", done.stderr


def test_with_its_extra_it_runs_on_both_providers(installed: Path, tmp_path: Path) -> None:
    """The extra's packages come from this environment, so that nothing is fetched."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["native"]
    done = run(
        installed, "-c", "from importlib.metadata import requires; print(*requires('pyruntime-onnx'), sep='\\n')"
    )
    assert {f"{package}; extra == 'native'" for package in wanted} <= set(done.stdout.splitlines())
    (site,) = installed.parents[1].glob("lib/*/site-packages")
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for found in (p for name in PACKAGES for p in Path(place).glob(f"{name}*")):
            (site / found.name).symlink_to(found)
    for provider in ("wasm", "webgpu"):
        done = run(installed.with_name("pyruntime"), "run", MODEL, "--random", "--provider", provider, folder=tmp_path)
        told = [line for line in done.stderr.splitlines() if not line.endswith(" …")]  # on a busy machine: progress
        assert (done.returncode, told) == (0, []) and "probabilities" in done.stdout
