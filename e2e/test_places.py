"""Where the package runs, and where pages have it from: another origin, a sandboxed frame, workers of a page's own, a
folder that env.wasm.wasmPaths names, an extension."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from e2e.conftest import Tab
from kit.chromium import ARGS, ROOT, chromium_path, serve
from pyruntime.cli.serve import Server

RUN = """
  const session = await ort.InferenceSession.create(arg);
  const { c } = await session.run({
    a: new ort.Tensor('float32', [1, 2, 3, 4, 5, 6], [2, 3]), b: new ort.Tensor('float32', [1, 1, 1, 1, 1, 1], [2, 3]),
  });
  return Array.from(c.data);
"""
RIGHT = [2, 3, 4, 5, 6, 7]


@pytest.fixture(scope="module")
def elsewhere(built: None) -> Iterator[Server]:
    """Another origin with the package, open to all as a CDN is."""
    headers = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
    with serve(isolated=False, headers=headers) as server:
        yield server


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_the_package_on_another_origin(
    browser: Browser, servers: dict[str, Server], elsewhere: Server, kind: str
) -> None:
    page = browser.new_context().new_page()
    page.goto(f"{servers[kind].url}/bridge.html")
    page.add_script_tag(url=f"{elsewhere.url}/dist/ort.js")
    assert page.evaluate(f"async (arg) => {{ {RUN} }}", "/models/add.onnx") == RIGHT
    assert page.evaluate("ort.stats().then(({ threads }) => threads)") == (1 if kind == "isolated" else 0)
    assert page.evaluate("ort.env.webgpu.device.then((device) => device instanceof GPUDevice)")
    page.context.close()


def test_a_sandboxed_frame(browser: Browser, servers: dict[str, Server], elsewhere: Server) -> None:
    """Its origin is no one's: no caches, no locks, no workers but of modules that it makes."""
    page: Page = browser.new_context().new_page()
    page.goto(f"{servers['plain'].url}/bridge.html")
    page.evaluate("""(ort) => {
      const frame = document.createElement('iframe');
      frame.sandbox = 'allow-scripts';
      frame.srcdoc = `<script src="${ort}"></scr` + 'ipt>';
      document.body.append(frame);
      return new Promise((resolve) => { frame.onload = resolve; });
    }""", f"{elsewhere.url}/dist/ort.js")  # fmt: skip
    frame = page.frames[1]
    assert frame.evaluate(f"async (arg) => {{ {RUN} }}", f"{elsewhere.url}/models/add.onnx") == RIGHT
    page.context.close()


WORKERS = {"own_worker.js": "classic", "own_worker.mjs": "module"}


@pytest.mark.parametrize("kind", ["isolated", "plain"])
@pytest.mark.parametrize("file", WORKERS)
def test_a_worker_of_the_pages_own(tab: Callable[..., Tab], file: str, kind: str) -> None:
    made = tab(kind)
    made.open("/esm.html")
    found = made.run("""
      const worker = new Worker(`/${arg.file}`, { type: arg.type });
      worker.postMessage('/models/add.onnx');
      return new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = ({ message }) => reject(new Error(message));
      });
    """, {"file": file, "type": WORKERS[file]})  # fmt: skip
    assert found == [",".join(map(str, RIGHT)), 1 if kind == "isolated" else 0]


def in_service_worker(made: Tab, file: str) -> Any:
    """What it answers to a model."""
    made.open("/esm.html")
    return made.run("""
      const { serviceWorker } = navigator;
      await serviceWorker.register(`/${arg.file}`, { type: arg.type });
      const { active } = await serviceWorker.ready;
      active.postMessage('/models/add.onnx');
      return new Promise((resolve) => { serviceWorker.onmessage = ({ data }) => resolve(data); });
    """, {"file": file, "type": "module" if file.endswith(".mjs") else "classic"})  # fmt: skip


@pytest.mark.parametrize("file", WORKERS)
def test_a_service_worker(tab: Callable[..., Tab], file: str) -> None:
    """There is no Worker, and import() is forbidden: an extension's background has neither, too."""
    failed, message = in_service_worker(tab("plain"), file)
    assert failed and "the engine needs a Worker, which this environment lacks (import engine.sw.js" in message


@pytest.mark.parametrize("file", ["engine_worker.js", "engine_worker.mjs"])
@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_the_engine_in_a_service_worker(tab: Callable[..., Tab], file: str, kind: str) -> None:
    assert in_service_worker(tab(kind), file) == [",".join(map(str, RIGHT)), 0]


def test_an_extension(built: None, browser: Browser, tmp_path: Path) -> None:
    """In its background, a service worker, and in a page of its own, with threads."""
    folder = tmp_path / "extension"
    shutil.copytree(ROOT / "e2e/pages/extension", folder)
    shutil.copytree(ROOT / "dist", folder / "dist", ignore=shutil.ignore_patterns("*.map", "*.whl"))
    shutil.copy(ROOT / "build/models/add.onnx", folder)
    arguments = [*ARGS, f"--disable-extensions-except={folder}", f"--load-extension={folder}"]
    context = browser.browser_type.launch_persistent_context(
        tmp_path / "profile", executable_path=chromium_path(), args=arguments,
        ignore_default_args=["--disable-extensions"],
    )  # fmt: skip
    background = context.service_workers[0] if context.service_workers else context.wait_for_event("serviceworker")
    page = context.new_page()
    page.goto(background.url.replace("background.js", "page.html"))
    add = f"""async (arg) => {{
      while (!globalThis.ort) await new Promise((resolve) => setTimeout(resolve, 50));
      ort.env.wasm.numThreads = 2;
      const add = async () => {{ {RUN} }};
      return [await add(), (await ort.stats()).threads];
    }}"""
    model = background.url.replace("background.js", "add.onnx")
    assert background.evaluate(add, model) == [RIGHT, 0]
    assert page.evaluate(add, model) == [RIGHT, 1]
    context.close()


PATHS = {
    "a folder without our files": "'/models/'",
    "another package's addresses": "{ mjs: '/x/ort-wasm-simd-threaded.mjs', wasm: '/x/ort-wasm-simd-threaded.wasm' }",
    "a server that is not there": "'http://localhost:9/'",
    "another package's version, where nobody asks": "'https://cdn.invalid/npm/onnxruntime-web@1.30.0/dist/'",
}


@pytest.mark.parametrize("kind", PATHS)
def test_paths_of_other_packages_are_passed_over(tab: Callable[..., Tab], kind: str) -> None:
    made = tab()
    made.open("/esm.html")
    assert made.run(f"ort.env.wasm.wasmPaths = {PATHS[kind]}; {RUN}", "/models/add.onnx") == RIGHT
    assert any("not this package's files" in text for text in made.warnings)
    if "localhost" in PATHS[kind]:
        made.forgive("another origin: http://localhost:9")
    if "invalid" not in PATHS[kind]:
        made.forgive("Failed to load resource")


@pytest.mark.parametrize("paths", ["'/dist'", "{ mjs: '/dist/worker.mjs', wasm: '/dist/pyodide.asm.wasm' }", "{}"])
def test_paths_of_our_files_are_taken(tab: Callable[..., Tab], paths: str) -> None:
    made = tab()
    made.open("/esm.html")
    assert made.run("return Boolean(ort.env.wasm.wasmPaths)") is True  # else transformers.js names a CDN
    assert made.run(f"ort.env.wasm.wasmPaths = {paths}; {RUN}", "/models/add.onnx") == RIGHT
    assert not made.warnings
