"""The examples, as they stand, against the package as it is published."""

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
import onnx
import pytest
from playwright.sync_api import Browser, Page, expect
from tokenizers import Tokenizer

from kit.chromium import ROOT
from kit.greedy_decoding import tokens_after
from kit.programs import folders
from pyruntime import InferenceSession
from pyruntime.cli.serve import Server

EXAMPLES = ROOT / "examples"
DIGITS = ROOT / "demo/digits/digits.onnx"
VITE = "node_modules/vite/bin/vite.js"
SWISH = (
    '<ir_version: 10, opset_import: ["" : 20, "my.ops" : 1]> g (float[N] x) => (float[N] y) { y = my.ops.Swish (x) }'
)


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


# ── without tools ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def site(built: None, tmp_path: Path) -> Path:
    """Models and `dist/` where the examples look for them."""
    shutil.copy(DIGITS, tmp_path)
    onnx.save(onnx.parser.parse_model(SWISH), tmp_path / "swish.onnx")
    (tmp_path / "pyruntime").symlink_to(ROOT / "dist")
    shutil.copy(ROOT / "dist/offline.sw.js", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("script-tag", "A blank is read as"),
        ("own-worker", "A blank is read as"),
        ("custom-operator", "swish(-1, 0, 1) = -0.2689, 0.0000, 0.7311"),
        ("camera", "The camera's picture is read as"),
    ],
)
def test_pages(name: str, text: str, site: Path, page: Page, blank: str) -> None:
    with served(site, name) as server:
        page.goto(f"{server.url}/index.html")
        expect(page.locator("body")).to_contain_text(blank if text in blank else text, timeout=60_000)


def test_pwa(site: Path, page: Page, blank: str) -> None:
    with served(site, "pwa") as server:
        page.goto(f"{server.url}/")
        expect(page.locator("body")).to_have_text(f"{blank}. The network may go.", timeout=60_000)
    page.reload()
    expect(page.locator("body")).to_contain_text(blank, timeout=60_000)


def served(site: Path, name: str) -> Server:
    shutil.copytree(EXAMPLES / name, site, dirs_exist_ok=True)
    return Server({"/": site, "/pyruntime/": ROOT / "dist"})


def test_python(blank: str, tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "python/desktop.py", DIGITS]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{blank}.\n", "")


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


def test_all_are_listed() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    text = (EXAMPLES / "README.md").read_text()
    assert names == {name for name in names if f"[{name}]({name}" in text}


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


@pytest.mark.parametrize("command", ["dev", "preview"])
def test_vite(command: str, built: None, tmp_path: Path, page: Page, blank: str) -> None:
    """The development server, and the built site; with threads."""
    folder = project(built, tmp_path, "vite")
    (folder / "public").mkdir()
    shutil.copy(DIGITS, folder / "public")
    if command == "preview":
        subprocess.run(["node", VITE, "build"], cwd=folder, check=True)
    with vite(folder, command) as address:
        page.goto(address)
        expect(page.locator("body")).to_have_text(f"{blank}, by 2 threads.", timeout=60_000)


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


@pytest.mark.parametrize("rule", ["", "with rules"])
def test_webpack(rule: str, built: None, tmp_path: Path, page: Page, blank: str) -> None:
    """As it is, and with rules that make addresses relative and compile the engine's scripts."""
    folder = project(built, tmp_path, "webpack")
    subprocess.run(["node", "-e", PACK, rule], cwd=folder, check=True)
    for file in (folder / "index.html", DIGITS):
        shutil.copy(file, folder / "dist")
    with Server({"/": folder / "dist"}) as server:
        page.goto(f"{server.url}/index.html")
        expect(page.locator("body")).to_have_text(f"{blank}.", timeout=60_000)
