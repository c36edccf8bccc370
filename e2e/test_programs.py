"""Published programs written for onnxruntime-web, unmodified: with this package in its place, and with itself.

The whole matrix of transformers.js: `python -m kit.programs`; texts of 512 tokens: with `--generate 512`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from kit.chromium import ARGS, MOUNTS, chromium_path
from kit.programs import folders, generation, transformers, vad
from kit.programs.compare import assert_same
from kit.speech import speech
from pyruntime.cli.serve import Server

# On WebAssembly all; on the GPU, which is a CPU here, each task and each precision, and a cache that stays there.
CASES = [case for case in transformers.MATRIX if case[1] == "wasm"] + [
    ("features", "webgpu", "fp32"),
    ("texts", "webgpu", "q8"),
    ("pictures", "webgpu", "fp32"),
    ("generation", "webgpu", "q4"),
]


@pytest.fixture(scope="module")
def transformers_pages(browser: Browser, servers: dict[str, Server]) -> Iterator[dict[str, Tab]]:
    """By package: ours, theirs."""
    assert MOUNTS["/programs/"].is_dir(), "scripts/setup.sh programs installs them"
    folders.write()
    tabs = {package: new_tab(browser, servers["isolated"]) for package in ("ours", "theirs")}
    for package, tab in tabs.items():
        transformers.open_page(tab.page, tab.origin, package)
    yield tabs
    for tab in tabs.values():
        tab.page.context.close()


@pytest.mark.parametrize(("task", "device", "precision"), CASES, ids=map("-".join, CASES))
def test_transformers(transformers_pages: dict[str, Tab], task: str, device: str, precision: str) -> None:
    """The original on WebAssembly: its GPU kernels take minutes on a CPU."""
    found, expected = (
        transformers.result(transformers_pages[package].page, task, where, precision)
        for package, where in {"ours": device, "theirs": "wasm"}.items()
    )
    transformers.assert_as_original(task, device, precision, found, expected)
    for tab in transformers_pages.values():
        tab.forgive("404")  # it asks for a tokenizer where there is none
        tab.check()


NAMED = """() => {
  const post = Worker.prototype.postMessage;
  globalThis.named = 0;
  Worker.prototype.postMessage = function (message, ...rest) {
    if (message.call === 'run' && Object.values(message.params.feeds).some((feed) => feed?.held)) named++;
    return post.call(this, message, ...rest);
  };
}"""


def test_caches_of_transformers_are_not_sent(transformers_pages: dict[str, Tab]) -> None:
    """Those that a run gave go into the next by their names (docs/design/kv-caches.md#growing-in-place)."""
    tab = transformers_pages["ours"]
    tab.page.evaluate(NAMED)
    transformers.result(tab.page, "generation", "wasm", "fp32")
    assert tab.page.evaluate("() => named") > 0
    tab.forgive("404")


@pytest.mark.parametrize("precision", ["fp32", "q4f16"])
def test_texts_on_the_gpu_are_those_of_webassembly(
    browser: Browser, servers: dict[str, Server], precision: str
) -> None:
    """By transformers.js, whose caches stay on the page's GPU. No token makes anything there, or copies."""
    count = 48
    folders.write()
    tab = new_tab(browser, servers["isolated"])
    tab.page.add_init_script(generation.COUNTER.read_text())
    transformers.open_page(tab.page, tab.origin, "ours")
    found = generation.write(tab.page, precision, count)
    tab.page.context.close()
    assert found.distinct == count
    assert found.difference < generation.BOUNDS[precision]
    assert found.same == count or precision != "fp32"
    assert (found.made, found.buffers) == (dict.fromkeys(generation.MADE, []), 0)
    tab.forgive("404")
    tab.check()


@pytest.fixture(scope="module")
def recording(built: None) -> Path:
    return vad.record(speech(4.0, seed=2))


@pytest.fixture(scope="module")
def microphone(browser: Browser, recording: Path) -> Iterator[Browser]:
    """Another browser, whose microphone hears generated speech again and again."""
    arguments = [*ARGS, *vad.microphone(recording)]
    listening = browser.browser_type.launch(executable_path=chromium_path(), args=arguments)
    yield listening
    listening.close()


def test_vad_of_a_recording(tab: Callable[..., Tab], recording: Path) -> None:
    """By script tags."""
    found: dict[str, Any] = {}
    for script in ("/dist/ort.js", "/onnxruntime-web/ort.wasm.min.js"):
        made = tab()
        made.open("/bridge/blank.html")
        for source in (script, "/vad/bundle.min.js"):
            made.page.add_script_tag(url=source)
        found[script] = made.page.evaluate(vad.SEGMENTS)
    ours, theirs = found.values()
    assert len(ours) > 2
    assert_same(ours, theirs)


def test_vad_of_a_microphone(microphone: Browser, servers: dict[str, Server]) -> None:
    """Bundled."""
    vad.bundle()
    tab = new_tab(microphone, servers["isolated"])
    tab.open("/bridge/blank.html")
    for package in ("ours", "theirs"):
        tab.page.add_script_tag(url=f"/built/vad.{package}.js")
    told: Any = tab.page.evaluate(vad.LISTEN, 150)
    tab.page.context.close()
    tab.check()
    assert_same(told["ours"], told["theirs"])
    assert "speech" in told["ours"]
