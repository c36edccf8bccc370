"""Mistakes of pages: the message says what is wrong, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab
from kit.chromium import ROOT, serve
from pyruntime.cli.serve import Server

TELL = """
  const tell = (e) => e.message;
  const open = (model) => ort.InferenceSession.create(model).then(() => "it opens", tell);
"""


@pytest.mark.parametrize("kind", ["a host that does not answer", "a server without CORS"])
def test_a_model_of_another_origin(kind: str, page: Tab, servers: dict[str, Server]) -> None:
    other = servers["plain" if page.origin == servers["isolated"].url else "isolated"].url
    address = "http://localhost:1/model.onnx" if kind.startswith("a host") else f"{other}/models/add.onnx"
    found = page.run(f"{TELL} return open(arg);", address)
    page.forgive("another origin")
    page.forgive("ERR_")
    page.forgive("CORS policy")
    assert f"cannot fetch {address}" in str(found)
    assert "its server does not answer, or does not allow this page's origin (CORS)" in str(found)


def test_a_type_that_the_model_does_not_take(page: Tab) -> None:
    found = page.run(
        TELL
        + """
      const session = await ort.InferenceSession.create('/models/add.onnx');
      const a = new ort.Tensor('float64', new Float64Array(6), [2, 3]);
      const error = await session.run({ a, b: a }).then(() => '', tell);
      await session.release();
      return error;
    """
    )
    assert "must be float32, it is float64 (new ort.Tensor('float32', data, dims))" in str(found)


MISTAKES = {
    "new": ("new ort.InferenceSession('/models/add.onnx')", "await ort.InferenceSession.create(model)"),
    "options as a list": ("ort.InferenceSession.create('/models/add.onnx', ['webgpu'])", "cannot be an array"),
    "an empty address": ("ort.InferenceSession.create('')", "is empty"),
    "a number as a text": ("create({ intraOpNumThreads: '4' })", "cannot be '4' (an integer from 0 to 1024)"),
    "a misspelt provider": ("create({ executionProviders: ['webgup'] })", "none of the executionProviders ('webgup')"),
    "adapters of a run": ("run({ adapters: 'mine' })", "create it with the option adapters"),
    "a tensor's array": (
        "new ort.Tensor('int64', new Int32Array(2), [2])",
        "must be type of BigInt64Array (new ort.Tensor",
    ),
    "a tensor's length": (
        "new ort.Tensor('float32', [1, 2, 3], [2, 2])",
        "Tensor's size(4) does not match data length(3)",
    ),
    "a checkpoint's address": ("train().then((t) => t.load('/esm.html'))", "a checkpoint is given as bytes"),
    "a feed of training": ("train().then((t) => t.step({}))", 'is missing (inputs: "image", "target")'),
    "an output of training": ("train().then((t) => t.evaluate({}, ['z']))", "outputs are probabilities"),
    "an adapter": ("create({ adapters: { mine: '/esm.html' } })", "this is no safetensors file"),
    "Python": ("ort.python('1 / 0')", "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_messages(name: str, page: Tab) -> None:
    """Each is a typed error that ends with an address which opens."""
    work, text = MISTAKES[name]
    found = page.run(f"""{TELL}
      const create = (options) => ort.InferenceSession.create('/models/add.onnx', options);
      const run = async (options) => (await create()).run({{}}, ['c'], options);
      const loss = {{ mse: "probabilities" }};
      const train = () => ort.TrainingSession.create("/demo/digits/digits.onnx", {{ loss }});
      const error = await (async () => {{ try {{ await {work}; }} catch (e) {{ return e; }} }})();
      return [error instanceof ort.PyRuntimeError, error.message, (await fetch(error.help)).ok];""")
    assert isinstance(found, list)
    assert text in found[1]
    assert (found[0], found[2]) == (True, True), found


def test_a_policy_without_webassembly(browser: Browser, built: None) -> None:
    policy = "script-src 'self'; worker-src 'self'"
    with serve(headers={"Content-Security-Policy": policy}) as server:
        tab = browser.new_page()
        tab.goto(f"{server.url}/esm.html")
        tab.wait_for_function("() => globalThis.ort")
        found = tab.evaluate(f"async () => {{ {TELL} return open('/models/add.onnx'); }}")
        tab.close()
    assert "a Content-Security-Policy needs script-src 'wasm-unsafe-eval'" in found


def test_a_policy_without_workers(browser: Browser, built: None) -> None:
    policy = "script-src 'self' 'unsafe-eval' 'unsafe-inline'; worker-src 'none'"
    with serve(headers={"Content-Security-Policy": policy}) as server:
        tab = browser.new_page()
        tab.goto(f"{server.url}/esm.html")
        found = tab.evaluate(f"async () => {{ {TELL} return open('/models/add.onnx'); }}")
        tab.close()
    assert "could not be started" in found and "a Content-Security-Policy needs worker-src 'self'" in found


def test_a_page_from_a_file(browser: Browser, built: None) -> None:
    file = ROOT / "build/pages/from_a_file.html"
    file.write_text("<!doctype html><script src='../../dist/ort.js'></script>")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    found = tab.evaluate(f"async () => {{ {TELL} return open('model.onnx'); }}")
    tab.close()
    assert "open it through a server, such as `pyruntime serve`" in found


@pytest.mark.parametrize("paths", [
    "'https://cdn.jsdelivr.net/npm/onnxruntime-web/dist/'", "'https://unpkg.com/onnxruntime-web@latest/dist/'",
    "{ wasm: 'https://cdn.jsdelivr.net/npm/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm' }",
])  # fmt: skip
def test_addresses_of_tutorials_are_not_asked(paths: str, tab: Callable[..., Tab]) -> None:
    """The page uses its own files. (A tab fails if it asks anything of another origin.)"""
    page = tab()
    page.open("/esm.html")
    assert page.run(f"{TELL} ort.env.wasm.wasmPaths = {paths}; return open('/models/add.onnx');") == "it opens"
    assert "not this package's files" in page.warnings[0]
