"""The page for a visitor's own model: its graph, real inputs, the model of the last visit, what one can take away."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from playwright.sync_api import Page
from tokenizers import Tokenizer

from e2e.conftest import Tab
from e2e.test_demo import faults
from kit.chromium import ROOT
from kit.programs import folders
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


TEXT, PAIR = "The quick fox sleeps", "a dog jumps over the river"


def shown(page: Page) -> list[float]:
    """Runs the model: the first values of its first output."""
    page.fill("#runs", "4")
    page.evaluate("document.querySelector('#latency').replaceChildren()")
    page.click("#time")
    page.wait_for_selector("#latency table")
    return [float(x) for x in page.inner_text("#latency td >> nth=2").replace(", …", "").split(", ")]


def told(page: Page, text: str) -> None:
    page.wait_for_function("(text) => document.querySelector('#text-told')?.textContent.includes(text)", arg=text)


def test_text_of_an_encoder(tab: Callable[..., Tab]) -> None:
    """Ids can be typed; the tokenizer that a visitor chooses turns text into all inputs of tokens, and is kept."""
    folder = folders.write() / "encoder"
    model, table = folder / "onnx/model.onnx", folder / "tokenizer.json"
    session, tokenizer = InferenceSession(model), Tokenizer.from_file(str(table))

    def native(ids: list[int]) -> np.ndarray:
        return session.run(None, {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)})[0]

    page = tab().open("/site/model/index.html")
    page.set_input_files("#file", table)
    page.wait_for_selector("#status.failed")  # a tokenizer, and no model
    page.set_input_files("#file", model)
    told(page, "tokenizer.json")
    page.fill("#text", "2, x")
    told(page, "Ids are whole numbers")
    page.fill("#text", "2, 7, 9, 3")
    np.testing.assert_allclose(shown(page), native([2, 7, 9, 3])[0, 0, :6], rtol=2e-3, atol=1e-5)
    page.set_input_files(".text-field input[type=file]", DIGITS)
    told(page, "This is no tokenizer.json")
    page.set_input_files(".text-field input[type=file]", table)
    for text, second, arguments in ((TEXT, "", (TEXT,)), (TEXT, PAIR, (TEXT, PAIR))):
        page.fill("#text", text)
        page.fill("#second-text", second)
        ids = tokenizer.encode(*arguments).ids
        told(page, f"{len(ids)} tokens")
        assert f"as [1, {len(ids)}]" in page.inner_text("[data-input=attention_mask]")
        np.testing.assert_allclose(shown(page), native(ids)[0, 0, :6], rtol=2e-3, atol=1e-5)
    page.fill("#text", "")
    assert "random" in page.inner_text("[data-input=input_ids]")
    page.reload()
    page.click("#kept")
    page.fill("#text", TEXT)
    told(page, f"{len(tokenizer.encode(TEXT).ids)} tokens")


def test_text_of_a_fixed_length(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """Short texts are filled up and masked, long ones cut before their last special token; the page says so."""
    folder = folders.write() / "classifier"
    made, length = onnx.load(folder / "onnx/model.onnx"), 12
    for value in made.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, (1, length), strict=True):
            dim.dim_value = size
    del made.graph.value_info[:]
    onnx.save(made, tmp_path / "model.onnx")
    session = InferenceSession(tmp_path / "model.onnx")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(length=length)
    tokenizer.enable_truncation(length)
    page = tab().open("/site/model/index.html")
    page.set_input_files("#file", [tmp_path / "model.onnx", folder / "tokenizer.json"])
    for text, sentence in ((TEXT, "filled up to 12"), (f"{TEXT} {PAIR} {TEXT}", "cut to 12")):
        page.fill("#text", text)
        told(page, sentence)
        encoded = tokenizer.encode(text)
        feeds = {"input_ids": np.array([encoded.ids]), "attention_mask": np.array([encoded.attention_mask])}
        np.testing.assert_allclose(shown(page), session.run(None, feeds)[0][0], rtol=2e-3, atol=1e-5)


def test_text_of_a_decoder(tab: Callable[..., Tab]) -> None:
    """tokenizer.json lies beside the model: caches are empty, and the likeliest next tokens are read."""
    page = tab().open("/site/model/index.html?model=../text/decoder.onnx")
    page.fill("#text", "The executor plans ")
    tokenizer = Tokenizer.from_file(str(ROOT / "demo/text/tokenizer.json"))
    ids = tokenizer.encode("The executor plans ").ids
    told(page, f"{len(ids)} tokens")
    session = InferenceSession(ROOT / "demo/text/decoder.onnx")
    empty = {x.name: np.zeros((1, 4, 0, 16), np.float32) for x in session.get_inputs() if x.name.startswith("past")}
    (logits,) = session.run(["logits"], {"input_ids": np.array([ids]), **empty})
    np.testing.assert_allclose(shown(page), logits[0, 0, :6], rtol=2e-3, atol=1e-5)
    assert f"likeliest: “{tokenizer.decode([int(logits[0, -1].argmax())])}” " in page.inner_text(".readings")
    assert page.is_hidden("#second-text") and not faults(page)
