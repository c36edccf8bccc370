"""The documentation's examples for pages run in Chromium, as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from kit.docs import ROOT, Block, blocks
from pyruntime.cli.serve import Server

IMPORTS = (
    '{"imports": {"pyruntime": "/dist/ort.mjs", "pyruntime/extras": "/dist/extras.mjs",'
    '"pyruntime/offline": "/dist/offline.mjs"}}'
)
MAP = f'<script type="importmap">{IMPORTS}</script>'
TYPES = "float[N] x) => (float[N] y"
FOREIGN = f'<ir_version: 10, opset_import: ["" : 20, "my.ops" : 1]> g ({TYPES}) {{ y = my.ops.%s (x) }}'


@pytest.fixture
def folder(built: None, browser: Browser, tmp_path: Path) -> Iterator[tuple[Path, Tab]]:
    """A site with the models that the examples name, and a tab on it."""
    (tmp_path / "digits.onnx").write_bytes((ROOT / "demo" / "digits" / "digits.onnx").read_bytes())
    (tmp_path / "offline.sw.js").write_bytes((ROOT / "dist" / "offline.sw.js").read_bytes())
    for op in ("Halve", "Square"):
        (tmp_path / f"{op.lower()}.onnx").write_bytes(onnx.parser.parse_model(FOREIGN % op).SerializeToString())
    with Server({"/": tmp_path, "/dist/": ROOT / "dist"}) as server:
        tab = new_tab(browser, server)
        yield tmp_path, tab
        tab.page.context.close()


def follow(folder: tuple[Path, Tab], text: str) -> str:
    """Opens a page and waits until it shows something."""
    path, tab = folder
    (path / "index.html").write_text('<link rel="icon" href="data:," />' + text)
    tab.open("/")
    tab.page.wait_for_function("document.body.innerText.trim() !== ''")
    tab.check()
    return tab.page.inner_text("body")


@pytest.mark.parametrize("block", blocks("html"), ids=str)
def test_pages_run(block: Block, folder: tuple[Path, Tab]) -> None:
    assert "is read as" in follow(folder, block.text)


@pytest.mark.parametrize("block", blocks("js"), ids=str)
def test_modules_run(block: Block, folder: tuple[Path, Tab]) -> None:
    (folder[0] / "example.js").write_text(block.text)
    script = "import('/example.js').then(() => 'done', (e) => `${e}`).then((t) => { document.body.textContent = t; })"
    assert follow(folder, f'{MAP}<body></body><script type="module">{script}</script>') == "done"
