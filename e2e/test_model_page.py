"""The page for a visitor's own model: its graph, real inputs, the model of the last visit, what one can take away."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

from e2e.conftest import Tab
from e2e.test_demo import faults
from kit.chromium import ROOT
from pyruntime import InferenceSession

DIGITS = ROOT / "demo/digits/digits.onnx"


def saved(page: Page, button: str) -> bytes:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path()).read_bytes()


def test_graph_times_and_code(tab: Callable[..., Tab]) -> None:
    """Nodes of one kernel are one box; after a run the slowest is chosen; keys move between nodes."""
    page = tab().open("/site/model/index.html?model=../digits/digits.onnx")
    page.wait_for_selector(".graph svg .node")
    labels = page.eval_on_selector_all(".graph .node", "all => all.map((node) => node.textContent)")
    assert labels[0] == "image" and "Conv + Relu" in labels
    page.click("#time")
    page.wait_for_selector(".node-panel .listing span")
    assert "all kernels" in page.inner_text(".legend") and "Kernels" in page.inner_text(".node-panel")
    assert not faults(page)
    page.focus(".graph .node[tabindex='0']")
    page.keyboard.press("Home")
    page.click(".graph .node >> nth=1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.node-panel .listing')?.textContent.includes('(func $')")
    assert "MaxPool" in page.inner_text(".node-panel h3")
    page.check(".graph-controls input")
    page.wait_for_function("document.querySelectorAll('.graph .node').length === 11")  # 9 nodes, an input, an output


def test_real_inputs(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """A NumPy array, an image and typed numbers give the results that they give natively."""
    sample = json.loads((ROOT / "demo/digits/samples.json").read_text())[0]
    image = (np.array(sample["pixels"], np.float32) / 255).reshape(1, 1, 28, 28)
    np.save(tmp_path / "image.npy", image)
    page = tab().open("/site/model/index.html?model=../digits/digits.onnx")
    page.wait_for_selector("[data-input=image]")
    page.set_input_files("[data-input=image] input[type=file]", tmp_path / "image.npy")
    page.wait_for_function("document.querySelector('[data-input=image]').textContent.includes('as [1, 1, 28, 28]')")
    page.fill("#runs", "4")
    page.click("#time")
    page.wait_for_selector("#latency table")
    found = page.inner_text("#latency td >> nth=2").split(", ")
    expected = InferenceSession(DIGITS).run(None, {"image": image})[0][0]
    np.testing.assert_allclose([float(x) for x in found[:6]], expected[:6], rtol=2e-3, atol=1e-6)
    np.save(tmp_path / "other.npy", image[0])
    page.set_input_files("[data-input=image] input[type=file]", tmp_path / "other.npy")
    page.wait_for_function("document.querySelector('[data-input=image]').textContent.includes('the input is [')")
    page.set_input_files("[data-input=image] input[type=file]", ROOT / "demo/icon-192.png")
    page.wait_for_function(
        "document.querySelector('[data-input=image]').textContent.includes('icon-192.png as [1, 1, 28, 28]')"
    )


def test_kept_and_taken_away(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """The last model opens again on the next visit. What one saves holds the model."""
    page = tab().open("/site/model/index.html")
    page.set_input_files("#file", DIGITS)
    page.wait_for_selector("#kept")
    page.reload()
    page.click("#kept")
    page.wait_for_selector("#save-program")
    x = np.random.default_rng(0).random((2, 1, 28, 28), np.float32)
    program = InferenceSession(saved(page, "#save-program"))
    np.testing.assert_allclose(
        program.run(None, {"image": x})[0], InferenceSession(DIGITS).run(None, {"image": x})[0], rtol=1e-5
    )
    report = json.loads(saved(page, "#save-report"))
    assert report["model"] == "digits.onnx" and report["kernels"] and report["explanation"]["nodes"]
    assert json.loads(saved(page, "#save-trace"))
    project = zipfile.ZipFile(io.BytesIO(saved(page, "#save-project")))
    assert project.read("model.onnx") == DIGITS.read_bytes()
    assert {"index.html", "main.js", "README.txt", "dist/ort.mjs", "dist/worker.mjs"} <= set(project.namelist())
    project.extractall(ROOT / "build/pages/project")
    page.goto(f"{page.url.split('/site')[0]}/built/project/index.html")
    page.wait_for_function("document.querySelector('output').textContent.includes('probabilities [1,10]')")
