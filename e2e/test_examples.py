"""The examples, by the commands of their READMEs, and in further surroundings."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from tokenizers import Tokenizer

from e2e import readmes
from kit.chromium import ROOT
from kit.greedy_decoding import tokens_after
from kit.programs import folders
from pyruntime import InferenceSession
from pyruntime.cli.serve import Server

EXAMPLES = ROOT / "examples"
DIGITS = ROOT / "demo/digits/digits.onnx"
VITE = "node_modules/vite/bin/vite.js"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def blank() -> str:
    (probabilities,) = InferenceSession(DIGITS).run(None, {"image": np.zeros((1, 1, 28, 28), np.float32)})
    return f"A blank is read as {probabilities.argmax()}"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(f"uncaught: {error}"))
    yield page
    context.close()


def project(built: None, folder: Path, name: str) -> Path:
    """The example with this package and its tools installed, and nothing else of the tree."""
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
    installed = folder / "node_modules/pyruntime"
    shutil.copytree(ROOT / "dist", installed / "dist")
    shutil.copy(ROOT / "package.json", installed)
    for package in ("onnxruntime-common", "vite", "webpack"):
        (folder / "node_modules" / package).symlink_to(ROOT / "node_modules" / package)
    return folder


# ── as their READMEs say ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def checkout(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return readmes.clone(tmp_path_factory.mktemp("checkout"))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in readmes.LARGE])
def test_readme(name: str, checkout: Path, page: Page) -> None:
    readmes.follow(name, checkout, page)
    if name == "pwa":  # whose server has stopped
        page.reload()
        expect(page.locator("body")).to_contain_text("A blank is read as 1.", timeout=60_000)


def test_all_are_complete() -> None:
    """Each is listed, and has its own copy of the model."""
    text = (EXAMPLES / "README.md").read_text()
    assert set(NAMES) == {name for name in NAMES if f"[{name}]({name})" in text}
    copies = [path for path in EXAMPLES.rglob("digits.onnx") if "node_modules" not in path.parts]
    assert len(copies) >= 8 and {path.read_bytes() for path in copies} == {DIGITS.read_bytes()}


def test_generate() -> None:
    """What it writes is what onnxruntime finds; drawn tokens are the likeliest where few may be."""
    text = partial(generated, ROOT / "demo/text/decoder.onnx", ROOT / "demo/text/tokenizer.json")
    assert text("--temperature", "1.5", "--top-k", "1") == text("--temperature", "1.5", "--top-p", "0") == text()
    drawn = text("--temperature", "1", "--top-k", "40", "--seed", "1")
    assert drawn == text("--temperature", "1", "--top-k", "40", "--seed", "1") != text()
    assert text(prompt="") == text(prompt="\n")[1:]  # a paragraph begins


@pytest.mark.parametrize("name", ["demo", "model"])
def test_generate_as_onnxruntime(name: str) -> None:
    """By the demo's decoder, and by one like those that are published, with a mask and positions."""
    folder = folders.write() / "generator"
    model, table = folder / "onnx" / f"{name}.onnx", folder / "tokenizer.json"
    if name == "demo":
        model, table = ROOT / "demo/text/decoder.onnx", ROOT / "demo/text/tokenizer.json"
    tokenizer = Tokenizer.from_file(str(table))
    ids = tokenizer.encode("The executor").ids
    expected = tokenizer.decode([*ids, *tokens_after(model, ids, 40)])
    assert generated(model, table) == f"{expected}\n"


def generated(model: Path, table: Path, *options: str, prompt: str = "The executor") -> str:
    command = [sys.executable, EXAMPLES / "generate/generate.py", model, table, prompt, "--tokens", "40", *options]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0 and "tokens per second" in done.stderr, done.stderr
    return done.stdout


# ── bundlers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def vite(folder: Path, *command: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--host", "127.0.0.1", "--port", str(port), "--strictPort"]
    server = subprocess.Popen(["node", VITE, *command, *where], cwd=folder, start_new_session=True)
    try:
        end = time.monotonic() + 120  # on a machine whose load was 11, 30 s were not enough
        while not _listens(port):
            assert server.poll() is None and time.monotonic() < end, "vite does not listen"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_vite_with_a_link(built: None, tmp_path: Path, browser: Browser) -> None:
    """Vite serves no files outside of the project, and the error tells what to do."""
    folder = project(built, tmp_path / "project", "vite")
    package = folder / "node_modules/pyruntime"
    package.rename(tmp_path / "pyruntime").joinpath("node_modules").symlink_to(folder / "node_modules")
    package.symlink_to(tmp_path / "pyruntime")
    tab = browser.new_page()
    with vite(folder, "dev") as address, tab.expect_event("pageerror", timeout=60_000) as failed:
        tab.goto(address)
    tab.close()
    assert "install a copy of the package, not a link" in str(failed.value)


PACK = """
const [, rule] = process.argv;
const config = { ...require('./webpack.config.cjs'), optimization: { minimize: false } }; // which takes longest
const module_ = { parser: { javascript: { url: 'relative' } }, rules: [{ test: /\\.m?js$/, type: 'javascript/auto' }] };
if (rule) Object.assign(config, { module: module_, ignoreWarnings: [/Critical dependency/] });
require('webpack')(config, (error, stats) => {
  if (!error && !stats.hasErrors() && !stats.hasWarnings()) return;
  console.error(error ?? stats.toString());
  process.exit(1);
});
"""


def test_webpack_with_rules(built: None, tmp_path: Path, page: Page, blank: str) -> None:
    """Rules that make addresses relative and compile the engine's scripts."""
    folder = project(built, tmp_path, "webpack")
    subprocess.run(["node", "-e", PACK, "with rules"], cwd=folder, check=True)
    shutil.copytree(folder / "public", folder / "dist", dirs_exist_ok=True)
    with Server({"/": folder / "dist"}) as server:
        page.goto(f"{server.url}/index.html")
        expect(page.locator("body")).to_have_text(f"{blank}.", timeout=60_000)
