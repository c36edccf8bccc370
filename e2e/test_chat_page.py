"""The page Chat: with a tiny model of random weights, whose answers Python computes too; and with the real one, where
pip has it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from e2e.test_demo import faults
from e2e.test_offline import Site
from kit import gguf_models
from kit.chromium import ROOT
from pyruntime import TextGenerator
from pyruntime.cli.serve import Server

SITE = ROOT / "build/site"
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
SYSTEM = {"role": "system", "content": "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}
REAL = ROOT / "build/site-models/chat/model.gguf"
LAST = ".message:last-child .text"
KEPT = """() => new Promise((resolve) => {
  const opening = indexedDB.open('pyruntime-site', 1);
  opening.onsuccess = () => {
    const request = opening.result.transaction('learned').objectStore('learned').get('caches of the chat');
    request.onsuccess = () => { opening.result.close(); resolve(request.result?.byteLength > 0); };
  };
})"""
FOCUSED = "document.activeElement.id"
STORED = "document.querySelector('#note').textContent.includes('Available offline')"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    path = tmp_path / "models/model.gguf"
    gguf_models.write(path, "llama", template=TEMPLATE, fields={"context_length": 4096})
    return path


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield made
    context.close()
    assert [text for text in problems if "Failed to load resource" not in text] == []  # offline, and of absent models


def answered(page: Page) -> str:
    page.wait_for_function("document.querySelector('#send').textContent === 'Send'")
    return page.inner_text(LAST)


def ask(page: Page, text: str) -> str:
    """By keys alone."""
    count = page.locator(".message").count()
    page.fill("#question", text)
    page.keyboard.press("Enter")
    page.wait_for_function("n => document.querySelectorAll('.message').length > n", arg=count)
    return answered(page)


def set_likeliest(page: Page) -> None:
    page.click("summary")
    for name, value in {"#temperature": "0", "#longest": "16"}.items():
        page.fill(name, value)


def test_chat(page: Page, model: Path) -> None:
    """What is loaded is told beforehand; questions, answers, edits; the next visit goes on, without a network too."""
    writer = TextGenerator(model)

    def expected(*texts: str) -> str:
        chat = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
        return str(writer.generate([SYSTEM, *chat], max_tokens=16).text).strip()

    site = Site(SITE)
    site.mounts["/models/chat/"] = model.parent
    with site.online():
        page.goto(f"{site.url}chat/index.html")
        assert "98 MB" in page.inner_text("#door") and page.is_disabled("#send")
        page.click("#load")
        assert page.evaluate(FOCUSED) == "messages"  # the button is gone
        page.wait_for_selector("#send:enabled")
        assert not page.is_visible("#door")
        set_likeliest(page)
        first = ask(page, "a program")
        assert first == expected("a program")
        second = ask(page, "more")
        assert second == expected("a program", first, "more")
        assert int(page.inner_text("#reused")) > 20 and float(page.inner_text("#speed")) > 0
        assert "ms" in page.inner_text("#first") and "MB" in page.inner_text("#memory")
        page.click("text=Regenerate")
        assert answered(page) == second and page.evaluate(FOCUSED) == "messages"
        page.click(".message >> nth=0 >> text=Edit")
        page.keyboard.press("Escape")
        assert page.evaluate(FOCUSED) == "messages"
        page.click(".message >> nth=0 >> text=Edit")
        page.keyboard.type("s", delay=1)
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelectorAll('.message').length === 2")
        edited = answered(page)
        assert edited == expected("a programs")
        assert f"The model: {edited}" == page.inner_text("#announced")
        page.click(".message >> nth=1 >> text=Copy")
        assert page.evaluate("navigator.clipboard.readText()") == edited
        page.click("#code")
        page.wait_for_function("document.querySelector('dialog.code pre').textContent.includes('a programs')")
        page.keyboard.press("Escape")
        assert not faults(page)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.wait_for_function(STORED)
        page.wait_for_function(KEPT)
    page.context.set_offline(True)
    page.reload()
    page.wait_for_selector("#send:enabled")
    page.wait_for_function("Number(document.querySelector('#reused').textContent) > 20")  # of the kept caches
    assert page.inner_text(LAST) == edited
    set_likeliest(page)
    assert ask(page, "b") == expected("a programs", edited, "b")
    assert int(page.inner_text("#reused")) > 20
    page.fill("#longest", "1024")
    page.fill("#question", "go on")
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.querySelector('{LAST}').textContent.length > 10")
    page.click("text=Stop")
    assert answered(page) and "You stopped it." in page.inner_text(".message:last-child")
    page.click("#new")
    page.wait_for_selector("text=begin with one of these")
    page.reload()
    page.wait_for_selector("#send:enabled")
    assert page.locator(".message").count() == 0


def test_without_the_model(page: Page, model: Path, tmp_path: Path) -> None:
    """The page says what is missing, and takes a file; what is no model leaves the chat as it is."""
    (tmp_path / "empty").mkdir()
    with Server({"/": SITE, "/models/chat/": tmp_path / "empty"}) as server:
        page.goto(f"{server.url}/chat/index.html")
        page.wait_for_selector(".unsupported")
        assert "make serve" in page.inner_text(".unsupported") and page.is_disabled("#send")
        page.set_input_files("#file", model)
        page.wait_for_selector("#send:enabled")
        set_likeliest(page)
        assert not page.is_visible("#schema")
        page.select_option("#form", "json")
        page.fill("#schema", '{ "type": "boolean" }')
        chat = [SYSTEM, {"role": "user", "content": "true or false"}]
        told = TextGenerator(model).generate(chat, max_tokens=16, format={"schema": {"type": "boolean"}})
        assert ask(page, "true or false") == told.text and told.text in ("true", "false")
        page.click("#code")
        page.wait_for_function("document.querySelector('dialog.code pre').textContent.includes('format: {')")
        page.keyboard.press("Escape")
        page.fill("#schema", "{")
        assert ask(page, "or") and "is no JSON" in page.inner_text("#status")
        page.select_option("#form", "text")
        written = ask(page, "a")
        damaged = model.read_bytes()[:2000]
        for data, told in {b"GGUF no model": "has version", damaged: "is damaged"}.items():
            page.set_input_files("#file", {"name": "x.gguf", "mimeType": "", "buffer": data})
            page.wait_for_function(
                "told => document.querySelector('#status.failed')?.textContent.includes(told)", arg=told
            )
        assert page.inner_text(LAST) == written and page.is_enabled("#send")


def test_two_tabs(page: Page, model: Path) -> None:
    """The second one neither shows nor overwrites the chat of the first; without storage for the theme it works."""
    refused = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    with Server({"/": SITE, "/models/chat/": model.parent}) as server:
        page.goto(f"{server.url}/chat/index.html")
        page.click("#load")
        page.wait_for_selector("#send:enabled")
        set_likeliest(page)
        ask(page, "a program")
        page.wait_for_function(KEPT)
        other = page.context.new_page()
        other.add_init_script(refused)
        other.goto(f"{server.url}/chat/index.html")
        other.wait_for_selector("text=Another tab keeps its chat")
        other.wait_for_selector("#send:enabled, #door:not([hidden])")
        other.click("#theme")
        assert other.evaluate("document.documentElement.dataset.theme") in ("dark", "light")
        if other.is_visible("#load"):
            other.click("#load")
        other.wait_for_selector("#send:enabled")
        set_likeliest(other)
        ask(other, "b")
        other.close()
        page.reload()
        page.wait_for_selector("#send:enabled, #door:not([hidden])")
        assert page.inner_text(".message >> nth=0 >> .text") == "a program"
        assert page.locator(".message").count() == 2


@pytest.mark.alone
def test_the_real_model(page: Page) -> None:
    if not REAL.exists():
        subprocess.run(
            [sys.executable, "-m", "scripts.site_models", "--download", "chat/model.gguf"], cwd=ROOT, check=True
        )
    if not REAL.exists():
        pytest.skip("pip cannot fetch the model")
    with Server({"/": SITE, "/models/chat/": REAL.parent}) as server:
        page.goto(f"{server.url}/chat/index.html")
        page.click("#load")
        page.wait_for_selector("#send:enabled")
        page.click("summary")
        page.fill("#temperature", "0")
        assert ask(page, "What is the capital of France?") == "The capital of France is Paris."
