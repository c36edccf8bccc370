"""The documentation's examples for pages run in Chromium, as they stand: modules one after another in one page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from kit.docs import ROOT, Block, all_blocks, blocks, write_models
from kit.programs import folders
from pyruntime.cli.serve import Server

PROGRAMS = ROOT / "build/programs/npm"
MAP = {
    "pyruntime": "/dist/ort.mjs", "pyruntime/extras": "/dist/extras.mjs", "pyruntime/offline": "/dist/offline.mjs",
    "@huggingface/tokenizers": "/tokenizers/tokenizers.min.mjs",
    "@huggingface/transformers": "/programs/transformers/dist/transformers.web.js",
    "onnxruntime-common": "/onnxruntime-common/index.js", "onnxruntime-web/webgpu": "/dist/ort.mjs",
}  # fmt: skip
HEAD = f"""<!doctype html><link rel="icon" href="data:," /><body></body>
<script type="importmap">{json.dumps({"imports": MAP})}</script>"""
RUN = "(path) => import(path).then(() => '', (error) => `${error.name}: ${error.message}`)"
PHOTO = "() => new Promise((resolve) => new OffscreenCanvas(60, 40).getContext('2d').canvas.convertToBlob().then(async"
PHOTO += " (blob) => resolve([...new Uint8Array(await blob.arrayBuffer())])))"


@pytest.fixture(scope="module")
def folder(built: None, drawing: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Tab]]:
    """A site with the files that the examples name, and a tab on it."""
    assert PROGRAMS.is_dir(), "scripts/setup.sh programs installs what examples import"
    site = tmp_path_factory.mktemp("docs")
    names = ("digits/digits.onnx", "teach/network.onnx", "text/decoder.onnx", "text/tokenizer.json")
    demos = [ROOT / "demo" / name for name in names]
    artifacts = (ROOT / "tests/training/artifacts/classifier").iterdir()
    for path in (*write_models().iterdir(), *demos, *artifacts, ROOT / "dist/offline.sw.js"):
        shutil.copy(path, site)
    mounts = {
        "/": site, "/dist/": ROOT / "dist", "/programs/": PROGRAMS, "/models/": folders.write(),
        "/onnxruntime-common/": ROOT / "node_modules/onnxruntime-common/dist/esm",
        "/tokenizers/": ROOT / "node_modules/@huggingface/tokenizers/dist",
    }  # fmt: skip
    (site / "index.html").write_text(HEAD)
    with Server(mounts) as server:
        tab = new_tab(drawing, server)
        (site / "photo.png").write_bytes(bytes(tab.open("/").evaluate(PHOTO)))
        yield site, tab
        tab.page.context.close()


@pytest.mark.parametrize("block", blocks("html"), ids=str)
def test_pages_run(block: Block, folder: tuple[Path, Tab]) -> None:
    site, tab = folder
    (site / "page.html").write_text('<link rel="icon" href="data:," />' + block.text)
    tab.open("/page.html")
    tab.page.wait_for_function("document.body.innerText.includes('is read as')")
    tab.check()


def test_modules_run(folder: tuple[Path, Tab]) -> None:
    """Blocks with the name of a file are files of the site. The one that installs a service worker comes last."""
    site, tab = folder
    for block in all_blocks():
        if block.title and "/" not in block.title:
            (site / block.title).write_text(block.text)
    tab.open("/")
    failed = {}
    for number, block in enumerate(sorted(blocks("js"), key=lambda block: "pyruntime/offline" in block.text)):
        (site / f"{number}.js").write_text(block.text)
        (site / "example.js").write_text(block.text)
        error = tab.page.evaluate(RUN, f"/{number}.js")
        tab.forgive("404")  # transformers.js asks for files that a model may have
        if error or tab.problems:
            failed[str(block)] = [error, *tab.problems]
            tab.problems.clear()
    assert not failed
