"""The demo site, as a visitor uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from playwright.sync_api import Page
from tokenizers import Tokenizer

from e2e.conftest import Tab
from kit.chromium import ROOT
from kit.greedy_decoding import tokens_after
from kit.programs import folders
from pyruntime import InferenceSession

AXE = ROOT / "node_modules/axe-core/axe.min.js"


def faults(page: Page) -> list[str]:
    """What axe finds wrong, once in light and once in dark."""
    found: list[str] = []
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        for rule in page.evaluate("axe.run().then(({ violations }) => violations)"):
            found.append(f"{theme}: {rule['id']}: {[node['html'] for node in rule['nodes']]}")
    return found


def test_digits(tab: Callable[..., Tab]) -> None:
    """A two, drawn, is read as a two."""
    page = tab().open("/site/digits/index.html")
    page.wait_for_selector("#status.done")
    box = page.locator("#pad").bounding_box()
    assert box
    points = [(0.3, 0.3), (0.45, 0.2), (0.62, 0.25), (0.62, 0.42), (0.3, 0.8), (0.72, 0.8)]
    corners = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=4)
    page.mouse.up()
    page.wait_for_function("document.querySelector('#digit').textContent === '2'")
    assert not faults(page)


def test_digits_by_keys_and_samples(tab: Callable[..., Tab]) -> None:
    """A one, drawn by keys, is read as a one; samples are read and shown as they were learned, from 0 to 1."""
    page = tab().open("/site/digits/index.html")
    page.wait_for_selector("#status.done")
    samples = json.loads((ROOT / "demo/digits/samples.json").read_text())[:3]
    for sample in samples:
        page.click("#sample")
        page.wait_for_function("n => document.querySelector('#digit').textContent === `${n}`", arg=sample["label"])
        alpha = page.evaluate("""() => {
          const { data } = document.querySelector('#seen').getContext('2d').getImageData(0, 0, 28, 28);
          return Array.from({ length: 784 }, (_, i) => data[4 * i + 3]);
        }""")
        assert max(abs(a - b) for a, b in zip(alpha, sample["pixels"], strict=True)) <= 1
        ink = page.evaluate("""() => {
          const { data } = document.querySelector('#pad').getContext('2d').getImageData(0, 0, 300, 300);
          return data.filter((value, i) => i % 4 === 3 && value > 200).length;
        }""")
        assert ink > 3000, "the sample is on the pad, in place of the words that invite to draw"
    assert "the median of the latest runs" not in page.inner_text("#time"), "first runs have no time"
    page.focus("#pad")
    for key in [" ", *["ArrowDown"] * 12]:
        page.keyboard.press(key)
    page.wait_for_function("document.querySelector('#digit').textContent === '1'")
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('#digit').textContent === '–'")


def test_camera(tab: Callable[..., Tab]) -> None:
    """Generated pictures are read, then a camera's, on WebAssembly, because a software adapter is no GPU. If it is
    chosen, ten probabilities leave it, and nothing is written to it."""
    page = tab().open("/site/camera/index.html")
    page.wait_for_selector("#status.done")
    assert page.input_value("#place") == "wasm" and "is software" in page.inner_text("#about-place")
    for place in ("wasm", "webgpu"):
        page.select_option("#place", place)
        for n in range(1, 5):
            page.wait_for_function("n => document.querySelector('#count').textContent === `${n}`", arg=n)
            assert page.inner_text("#digit") == page.get_attribute("#picture", "data-label")
            assert page.is_visible("#read") == page.is_visible("#written") == (place == "webgpu")
            page.click("#next")
    assert (page.inner_text("#read"), page.inner_text("#written")) == ("40", "0")
    assert not faults(page)
    page.click("#camera")
    page.wait_for_function("Number(document.querySelector('#count').textContent) >= 9")
    assert page.is_visible("#video") and (page.inner_text("#read"), page.inner_text("#written")) == ("40", "0")


def test_speech(tab: Callable[..., Tab]) -> None:
    """The generated voice is speech and its pauses are not."""
    page = tab().open("/site/vad/index.html")
    page.click("#voice:enabled")
    for verdict in ("Speech", "No speech"):
        page.wait_for_function("text => document.querySelector('#verdict').textContent === text", arg=verdict)
    assert not faults(page)


def test_speech_without_an_audio_device(tab: Callable[..., Tab]) -> None:
    """Time stands still for audio: the voice is shown all the same, and the page says why nothing is heard."""
    made = tab()
    made.page.add_init_script("""
      Object.defineProperty(BaseAudioContext.prototype, 'currentTime', { get: () => 0 });
      Object.defineProperty(AudioWorkletNode.prototype, 'port', { get: () => ({}) });
    """)
    page = made.open("/site/vad/index.html")
    page.click("#voice:enabled")
    page.wait_for_function("document.querySelector('#verdict').textContent === 'Speech'")
    page.wait_for_function("document.querySelector('#sound').textContent.includes('Not audible')")
    page.click("#microphone")
    page.wait_for_selector("#status.failed")
    assert "No sound arrives" in page.inner_text("#status")


PROMPT = "The executor plans memory"
OURS = ROOT / "demo/text/decoder.onnx", ROOT / "demo/text/tokenizer.json"


def test_text(tab: Callable[..., Tab]) -> None:
    """The page shows speed and memory meanwhile."""
    page = tab().open("/site/text/index.html")
    expected = likeliest(*OURS, 300)
    page.fill("#prompt", PROMPT)
    page.fill("#temperature", "0")
    assert written(page) == expected
    count = len(Tokenizer.from_file(str(OURS[1])).encode(PROMPT).ids)
    assert page.inner_text("#cached") == str(count + 299) and int(page.inner_text("#speed")) > 0
    assert "ms" in page.inner_text("#first") and "MB" in page.inner_text("#memory")
    assert not faults(page)
    page.fill("#temperature", "1.2")
    page.click("#write")
    page.wait_for_function("document.querySelector('#text').textContent.length > 60")
    page.click("#write")
    page.wait_for_function("document.querySelector('#write').textContent === 'Write'")
    assert page.text_content("#text") != expected


@pytest.mark.parametrize("name", ["model", "apart"])
def test_text_of_another_decoder(tab: Callable[..., Tab], tmp_path: Path, name: str) -> None:
    """One like those that are published, with a mask and positions, while the first still writes."""
    folder = folders.write() / "generator"
    model, table = folder / "onnx" / f"{name}.onnx", folder / "tokenizer.json"
    files = [model, table]
    if name == "apart":
        model = tmp_path / "decoder.onnx"
        onnx.save(onnx.load(folder / "onnx/model.onnx"), model, save_as_external_data=True, location="decoder.weights")
        files = [model.with_name("decoder.weights"), table, model]
    page = tab().open("/site/text/index.html")
    page.click("#write:enabled")
    page.wait_for_function("document.querySelector('#text').textContent.length > 40")
    page.set_input_files("#file", files[:1])
    page.wait_for_selector("#status.failed")
    assert "tokenizer.json" in page.inner_text("#status")
    page.click("#write")  # stops with its step
    page.set_input_files("#file", files)
    page.set_input_files("#file", files)  # at once again
    page.wait_for_selector("#status.done")
    page.fill("#prompt", PROMPT)
    page.fill("#temperature", "0")
    assert written(page) == likeliest(model, table, 300)
    assert sessions(page) == 1
    page.set_input_files("#file", [OURS[1], without_cache(tmp_path)])
    page.wait_for_selector("#status.failed")
    assert "past_key_values" in page.inner_text("#status")
    assert page.is_enabled("#write") and sessions(page) == 1


def without_cache(folder: Path) -> Path:
    ids = helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, [1, "new"])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, "new", 512])
    table = numpy_helper.from_array(np.zeros((512, 512), np.float32), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["logits"])], "g", [ids], [logits], [table]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "bare.onnx")
    return folder / "bare.onnx"


def sessions(page: Page) -> int:
    return page.evaluate("async () => (await (await import('/site/dist/ort.mjs')).stats()).sessions")


def written(page: Page) -> str:
    page.click("#write:enabled")
    page.wait_for_function("document.querySelector('#write').textContent === 'Stop'")
    page.wait_for_function("document.querySelector('#write').textContent === 'Write'")
    return page.text_content("#text") or ""


def likeliest(model: Path, table: Path, count: int) -> str:
    tokenizer = Tokenizer.from_file(str(table))
    ids = tokenizer.encode(PROMPT).ids
    return tokenizer.decode([*ids, *tokens_after(model, ids, count)])


def test_bring_your_own(tab: Callable[..., Tab]) -> None:
    """A model's report before and after it ran; no word of what was not asked for. A text file is called one."""
    made = tab("plain")
    page = made.open("/site/model/index.html")
    page.set_input_files("#file", "build/models/affine.onnx")
    page.wait_for_selector("#time")
    before = page.inner_text("#report")
    assert "known after the first run" in before and "Peak" not in before and "Why not on the GPU" not in before
    assert not faults(page)
    page.fill("#runs", "3000000")
    page.click("#time")
    page.wait_for_selector("#latency svg")
    text = page.inner_text("#report")
    assert "MatMul" in text and "batch stands for" in text and "Median" in text and "Peak" in text
    assert "of 3000000" in text and "Stopped after five seconds" in text and "float32 [1, " in text
    assert not faults(page)
    page.set_input_files("#file", "README.md")
    page.wait_for_selector("#status.failed")
    assert "a text file" in page.inner_text("#status")


def test_files_that_cannot_be_read(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """A file of 3 GB is read in place, so what it lacks has a name; so has a file that changes after it was chosen."""
    large, model = tmp_path / "large.onnx", tmp_path / "model.onnx"
    with large.open("wb") as file:
        file.truncate(3 << 30)
    model.write_bytes(Path("build/models/affine.onnx").read_bytes())
    made = tab()
    page = made.open("/site/model/index.html")
    page.set_input_files("#file", large)
    page.wait_for_selector("#status.failed")
    assert "model" in page.inner_text("#status")
    page.set_input_files("#file", model)
    page.wait_for_selector("#time")
    page.fill(".dims input", "1.5")  # a size; arrays have no such length
    page.click("#time")
    page.wait_for_function("document.querySelector('#latency').textContent.includes('a size is a whole number')")
    model.write_bytes(b"other content")
    page.select_option("#provider", "webgpu")
    page.wait_for_selector("#status.failed")
    assert "cannot read this file" in page.inner_text("#status")


def test_bring_your_own_program_and_a_broken_one(tab: Callable[..., Tab]) -> None:
    page = tab("plain").open("/site/model/index.html")
    model = Path("build/models/affine.onnx")
    program = {"name": "affine.pyrt", "mimeType": "", "buffer": InferenceSession(model).export()}
    page.set_input_files("#file", [{"name": model.name, "mimeType": "", "buffer": model.read_bytes()}, program])
    page.click("#time")
    page.wait_for_selector("#latency svg")
    assert "affine.pyrt" in page.inner_text("#status")
    page.set_input_files("#file", [{"name": "cut.pyrt", "mimeType": "", "buffer": program["buffer"][:-4]}])
    page.wait_for_selector("#status.failed")
    assert not page.is_visible("#report")


def test_bring_your_own_to_the_gpu(tab: Callable[..., Tab]) -> None:
    """Where each node runs, and that the GPU's results are right."""
    made = tab()
    page = made.open("/site/model/index.html")
    page.select_option("#provider", "webgpu")
    page.click('[data-example="../digits/digits.onnx"]')
    page.click("#verify")
    page.wait_for_selector("#verify-result p")
    assert "all agree" in page.inner_text("#verify-result")
    assert 'Conv "conv1"' in page.inner_text("#nodes") and "webgpu" in page.inner_text("#nodes")
    assert "On the GPU" in page.inner_text("#report")


def test_model_page_draws_memory(tab: Callable[..., Tab]) -> None:
    page = tab().open("/site/model/index.html")
    for provider, memory in (("wasm", "Linear memory"), ("webgpu", "GPU memory")):
        page.select_option("#provider", provider)
        page.click('[data-example="../digits/digits.onnx"]')
        page.click("#timeline")
        page.wait_for_selector("#timeline-result rect", state="attached")
        assert memory in page.inner_text("#timeline-result")
        titles = page.eval_on_selector_all("#timeline-result title", "all => all.map((title) => title.textContent)")
        assert any(t.startswith("image") for t in titles) and any("Conv" in t for t in titles)
    assert not faults(page)


def test_model_page_tunes(tab: Callable[..., Tab]) -> None:
    """What is chosen depends on the machine; a model may be opened so."""
    page = tab().open("/site/model/index.html")
    page.select_option("#provider", "webgpu")
    page.click('[data-example="../digits/digits.onnx"]')
    page.click("#tune")
    page.wait_for_selector("#tune-result p")
    assert "tuning took" in page.inner_text("#tune-result")
    if page.query_selector("#chosen"):
        page.click("#chosen")
        page.wait_for_selector("#tune-result:empty", state="attached")
    assert not faults(page)
