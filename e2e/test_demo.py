"""The demo site, as a visitor uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from e2e.conftest import Tab
from pyruntime import InferenceSession


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


def test_camera(tab: Callable[..., Tab]) -> None:
    """Generated pictures are read, then a camera's; ten probabilities leave the GPU, nothing is written to it."""
    page = tab().open("/site/camera/index.html")
    page.wait_for_selector("#status.done")
    for n in range(1, 6):
        page.wait_for_function("n => document.querySelector('#count').textContent === `${n}`", arg=n)
        assert page.inner_text("#digit") == page.get_attribute("#picture", "data-label")
        assert (page.inner_text("#read"), page.inner_text("#written")) == ("40", "0")
        page.click("#next")
    page.click("#camera")
    page.wait_for_function("Number(document.querySelector('#count').textContent) >= 9")
    assert page.is_visible("#video") and (page.inner_text("#read"), page.inner_text("#written")) == ("40", "0")


def test_speech(tab: Callable[..., Tab]) -> None:
    """The generated voice is speech and its pauses are not."""
    page = tab().open("/site/vad/index.html")
    page.click("#voice:enabled")
    for verdict in ("Speech", "No speech"):
        page.wait_for_function("text => document.querySelector('#verdict').textContent === text", arg=verdict)


def test_bring_your_own(tab: Callable[..., Tab]) -> None:
    made = tab("plain")
    page = made.open("/site/model/index.html")
    page.set_input_files("#file", "build/models/affine.onnx")
    page.click("#time")
    page.wait_for_selector("#latency svg")
    text = page.inner_text("#report")
    assert "MatMul" in text and "batch" in text and "Median" in text


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
    page.wait_for_selector("#verified p")
    assert "all agree" in page.inner_text("#verified")
    assert 'Conv "conv1"' in page.inner_text("#nodes") and "webgpu" in page.inner_text("#nodes")


def test_front_page(tab: Callable[..., Tab]) -> None:
    page = tab().open("/site/index.html")
    page.wait_for_selector("#status.done")
    assert "Python 3" in page.inner_text("#status")
