"""Pages without a network: pyruntime/offline keeps the engine, the page and models, and a service worker answers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from e2e.test_examples import PACK, VITE, project
from e2e.test_loading import Y
from kit import browsers
from kit.chromium import ROOT
from pyruntime.cli.serve import Server

NOT_SERVED = {".map", ".whl", ".cjs"}


class Site:
    """A folder and its server, which can be cut off."""

    def __init__(self, folder: Path, isolated: bool = True) -> None:
        self.folder, self.isolated, self.port = folder, isolated, 0
        self.headers: dict[str, str] = {}
        self.mounts: dict[str, Path] = {}  # further folders

    @classmethod
    def made(cls, folder: Path, isolated: bool = True) -> Site:
        """With the page, the engine and models."""
        shutil.copytree(ROOT / "e2e" / "pages" / "offline", folder, dirs_exist_ok=True)
        (folder / "dist").mkdir()
        for file in (ROOT / "dist").iterdir():
            if file.suffix not in NOT_SERVED:
                os.link(file, folder / "dist" / file.name)
        for name in ("affine", "add"):
            shutil.copy(ROOT / "build" / "models" / f"{name}.onnx", folder)
        shutil.copy(ROOT / "dist" / "offline.sw.js", folder)
        return cls(folder, isolated)

    @contextmanager
    def online(self) -> Iterator[str]:
        """Its address; the same each time."""
        with Server(
            {"/": self.folder, **self.mounts}, isolated=self.isolated, headers=self.headers, port=self.port
        ) as server:
            self.port = server.server_address[1]
            yield server.url

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/"

    def publish(self, edition: int) -> None:
        """Another build of the engine and another page."""
        app = (self.folder / "app.js").read_text()
        (self.folder / "app.js").write_text(app.replace("edition = 1", f"edition = {edition}"))
        worker = self.folder / "dist" / "worker.mjs"
        text = worker.read_bytes() + f"\n// {edition}\n".encode()
        worker.unlink()  # it is linked
        worker.write_bytes(text)
        path = self.folder / "dist" / "assets.json"
        assets = json.loads(path.read_text())
        assets["build"] = f"build {edition}"
        assets["files"]["worker.mjs"] |= {"size": len(text), "hash": hashlib.sha256(text).hexdigest()}
        path.unlink()
        path.write_text(json.dumps(assets))


@pytest.fixture
def site(built: None, tmp_path: Path) -> Site:
    return Site.made(tmp_path)


def visit(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.wait_for_function("Boolean(globalThis.install)")


def affine(page: Any, model: str = "affine.onnx", **options: Any) -> None:
    """The model gives what it should."""
    found = page.evaluate("async ([model, options]) => read(model, options)", [model, options])
    np.testing.assert_allclose(found, Y.ravel(), rtol=1e-5)


@contextmanager
def in_chromium(browser: Browser) -> Iterator[Any]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def chromium(browser: Browser) -> Iterator[Any]:
    with in_chromium(browser) as page:
        yield page


PLACES: dict[str, Callable[[Browser], AbstractContextManager[Any]]] = {
    "Chromium": in_chromium,
    "Firefox": lambda _: browsers.firefox(),
}


@pytest.mark.parametrize("place", PLACES)
def test_without_a_network(browser: Browser, site: Site, place: str) -> None:
    """The page opens, compiles a model for the first time, and gets the files of the engine that come on demand."""
    if place == "Firefox" and browsers.firefox_path() is None:
        pytest.skip("not installed; scripts/setup.sh browsers does it as root")
    with PLACES[place](browser) as page:
        with site.online():
            visit(page, site)
            found = page.evaluate("async () => install()")
        told, status = found["told"], found["status"]
        assert status["controlled"] and [model["url"] for model in status["models"]] == [f"{site.url}affine.onnx"]
        (version,) = status["versions"]
        assert version["build"] == json.loads((site.folder / "dist/assets.json").read_text())["build"]
        assert told[-1]["loaded"] >= version["size"] > 15_000_000
        visit(page, site)
        assert page.evaluate("() => crossOriginIsolated")
        affine(page)
        # from the rest of the standard library, and of the interpreter
        late = "import colorsys, unicodedata; [colorsys.rgb_to_hsv(0, 0, 0)[0], unicodedata.name('a'), [*globals()][0]]"
        assert page.evaluate("async (code) => ort.python(code)", late)[:2] == [0, "LATIN SMALL LETTER A"]
        assert page.evaluate("async () => (await fetch('add.onnx').catch(() => null)) === null")
        told = "async () => new Promise((onError) => install({ onError: ({ type }) => onError(type) }))"
        assert page.evaluate(told) == "SessionFailed"
        assert page.evaluate("async () => (await install()).status.versions.length") == 1


TAIL = "() => fetch('/dist/worker.mjs').then((response) => response.text()).then((text) => text.slice(-5).trim())"
OF_WORKER = f"from pyodide.code import run_js; await run_js({TAIL!r})()"


def test_update(chromium: Any, site: Site) -> None:
    """Pages and their workers keep the version that they were opened with; the next page has the new one, whole."""
    with site.online():
        visit(chromium, site)
        chromium.evaluate("async () => { await install(); await ort.boot(); }")
        before = chromium.evaluate(TAIL)
        site.publish(2)
        second = chromium.context.new_page()
        visit(second, site)
        assert second.evaluate("() => edition") == 1
        assert second.evaluate("async () => offline.update()")
        assert not second.evaluate("async () => offline.update()")
        third = chromium.context.new_page()
        visit(third, site)
    assert third.evaluate("() => edition") == 2 and third.evaluate(TAIL) == "// 2" != before
    for old in (chromium, second):
        assert old.evaluate(TAIL) == before
        assert old.evaluate("async (code) => ort.python(code)", OF_WORKER) == before
    assert len(third.evaluate("async () => (await offline.status()).versions")) == 2
    chromium.goto("about:blank")
    second.close()
    # of a page that was noted a moment ago nobody can tell whether it is about to open
    (worker,) = third.context.service_workers
    worker.evaluate("() => { const { now } = Date; Date.now = () => now() + 60_000; }")
    with site.online():
        visit(third, site)
        assert third.evaluate("() => edition") == 2
        (kept,) = third.evaluate("async () => (await install()).status.versions.slice(-1)")
        assert kept["build"] == "build 2"
        third.wait_for_function("(async () => (await offline.status()).versions.length === 1)()")
        third.evaluate("async () => offline.remove()")
        visit(third, site)
        status = third.evaluate("async () => offline.status()")
        assert not status["controlled"] and not status["versions"] and not status["models"]


def test_another_page_while_an_update_stalls(chromium: Any, site: Site) -> None:
    """It leaves alone what was fetched. When a file of the new version is lost, the one before is no way out."""
    site.headers = {"Vary": "*"}  # which Cache Storage takes of no file, and Firefox of no service worker
    with site.online():
        visit(chromium, site)
        chromium.evaluate("async () => install()")
        site.publish(2)
        visit(chromium, site)
        chromium.evaluate("""() => {
          const { fetch } = globalThis;
          globalThis.fetch = async (url, init) => {
            if (url.endsWith('worker.mjs')) await new Promise((go) => { globalThis.go = go; });
            return fetch(url, init);
          };
          globalThis.updated = offline.update();
        }""")
        chromium.wait_for_function("Boolean(globalThis.go)")
        second = chromium.context.new_page()
        visit(second, site)
        second.evaluate("async () => install()")
        second.wait_for_timeout(500)
        assert chromium.evaluate("() => { go(); return updated; }")
        second.close()
    third = chromium.context.new_page()
    visit(third, site)
    assert third.evaluate("() => edition") == 2
    assert third.evaluate("async () => (await offline.status()).versions.length") == 2
    with site.online():
        site.publish(3)
        lose = "(key) => key.url.includes('worker.mjs') && cache.delete(key)"
        third.evaluate(f"async () => {{ {KEPT} await Promise.all((await cache.keys()).map({lose})); }}")
        assert third.evaluate(TAIL) == "// 3"
        assert not third.evaluate("async () => (await offline.status()).versions.length")


def test_models_beside_the_list(chromium: Any, site: Site) -> None:
    """What a session keeps counts for others without a network alone; what is no longer listed goes."""
    size = "async (name, cache) => (await (await fetch(name, { cache })).arrayBuffer()).byteLength"
    asked = "[['affine.onnx'], ['affine.onnx', 'reload'], ['add.onnx']]"
    sizes = f"() => Promise.all({asked}.map(([name, cache]) => ({size})(name, cache)))"
    models = "async () => (await offline.status()).models.map(({ url }) => url.split('/').at(-1))"
    affine, add = ((site.folder / f"{name}.onnx").stat().st_size for name in ("affine", "add"))
    with site.online():
        visit(chromium, site)
        chromium.evaluate("() => install()")
        chromium.evaluate("async () => { await ort.InferenceSession.create('add.onnx', { cache: '1' }); }")
        chromium.wait_for_function(f"({models})().then((all) => all.length === 2)")
        for name in ("affine", "add"):
            (site.folder / f"{name}.onnx").write_bytes(b"12345")
        assert chromium.evaluate(sizes) == [affine, 5, 5]
    assert chromium.evaluate(sizes) == [affine, affine, add]
    with site.online():
        chromium.evaluate("async () => install({ models: [] })")
        assert chromium.evaluate(models) == ["add.onnx"]


KEPT = """
  const { scope } = await navigator.serviceWorker.getRegistration();
  const cache = await caches.open(`pyruntime-offline ${scope}`);
"""
# the files that are as they should be, and all
WHOLE = f"""async () => {{
  {KEPT}
  let whole = 0, all = 0;
  for (const key of await cache.keys()) {{
    const hash = new URL(key.url).searchParams.get('pyruntime-offline');
    if (!hash) continue;
    all += 1;
    const bytes = await (await cache.match(key)).arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    whole += digest.toHex() === hash;
  }}
  return [whole, all];
}}"""


def test_damaged_files_are_fetched_again(chromium: Any, site: Site) -> None:
    """Of three files one is cut off, in one a bit is turned, one is gone; then the book of versions is cut off."""
    damage = f"""async (book) => {{
      {KEPT}
      for (const [i, key] of (await cache.keys()).entries()) {{
        if (new URL(key.url).searchParams.get('pyruntime-offline') ? book : !book) continue;
        const found = await cache.match(key);
        const bytes = new Uint8Array(await found.arrayBuffer());
        const half = bytes.length >> 1;
        await cache.delete(key);
        const body = [bytes.subarray(0, half), bytes.with(half, bytes[half] ^ 1)][book ? 0 : i % 3];
        if (body) await cache.put(key, new Response(body, {{ headers: found.headers }}));
      }}
    }}"""
    with site.online():
        visit(chromium, site)
        chromium.evaluate("async () => install()")
        _, files = chromium.evaluate(WHOLE)
        chromium.evaluate(damage, False)
        assert chromium.evaluate(WHOLE)[0] == 0
        visit(chromium, site)
        affine(chromium)
        assert chromium.evaluate(WHOLE)[0] >= 7  # what the page used
        assert not chromium.evaluate("async () => offline.update()")
        assert chromium.evaluate(WHOLE) == [files, files]
        chromium.evaluate(damage, True)
        visit(chromium, site)
        chromium.evaluate("async () => install()")
        assert chromium.evaluate(WHOLE) == [files, files]
    visit(chromium, site)


def test_no_room(chromium: Any, site: Site) -> None:
    """What is needed, used and allowed is told: when the browser refuses, and before that where it says so itself."""
    told = """async () => {
      const error = await install().catch((error) => error);
      return { ...error, type: error.type, message: error.message, ours: error instanceof offline.QuotaExceeded };
    }"""
    devtools = chromium.context.new_cdp_session(chromium)
    with site.online():
        visit(chromium, site)
        quota = {"origin": site.url.rstrip("/")}
        for room in (100, 2_000_000):
            devtools.send("Storage.overrideQuotaForOrigin", {**quota, "quotaSize": room})
            error = chromium.evaluate(told)
            assert (error["type"], error["ours"]) == ("QuotaExceeded", True), error
            assert error["needed"] > 0 and error["quota"] > 0 and f"{error['needed']} bytes" in error["message"]
        devtools.send("Storage.overrideQuotaForOrigin", quota)
        chromium.evaluate("""() => {
          globalThis.estimate = StorageManager.prototype.estimate;
          StorageManager.prototype.estimate = async () => ({ usage: 10, quota: 5e6 });
        }""")
        error = chromium.evaluate(told)
        assert (error["usage"], error["quota"]) == (10, 5e6) and error["needed"] > 10_000_000
        chromium.evaluate("() => { StorageManager.prototype.estimate = globalThis.estimate; }")
        assert chromium.evaluate("async () => (await install()).status.versions.length") == 1
    visit(chromium, site)


def test_isolation_by_the_service_worker(chromium: Any, built: None, tmp_path: Path) -> None:
    """For hosts that cannot set headers: after one reload there is shared memory, and threads."""
    site = Site.made(tmp_path, isolated=False)
    with site.online():
        visit(chromium, site)
        asked = "async () => (await install({ isolation: 'require-corp' })).status"
        first = chromium.evaluate(asked)
        assert (first["isolated"], first["reload"]) == (False, True)
        visit(chromium, site)
        second = chromium.evaluate(asked)
        assert (second["isolated"], second["reload"]) == (True, False)
    visit(chromium, site)
    affine(chromium, intraOpNumThreads=2)
    assert chromium.evaluate("async () => (await ort.stats()).threads") == 1


OWN = "addEventListener('fetch', (e) => e.request.url.endsWith('/own') && e.respondWith(new Response('own')));"
WORKERS = {
    "classic": f"{OWN}\nimportScripts('./offline.sw.js');",
    "module": f"import {{ listen }} from './dist/offline.sw.mjs';\n{OWN}\nlisten();",
}


@pytest.mark.parametrize("kind", WORKERS)
def test_in_a_service_worker_of_ones_own(chromium: Any, site: Site, kind: str) -> None:
    """Listeners of the page's own that come first answer first."""
    (site.folder / "sw.js").write_text(WORKERS[kind])
    with site.online():
        visit(chromium, site)
        chromium.evaluate("async (type) => install({ worker: './sw.js', type })", kind)
    visit(chromium, site)
    assert chromium.evaluate("async () => (await fetch('/own')).text()") == "own"


BUNDLED = """
import * as ort from 'pyruntime';
import * as offline from 'pyruntime/offline';
const scripts = [...document.scripts].map(({ src }) => src).filter(Boolean);
globalThis.ort = ort;
globalThis.offline = offline;
globalThis.install = () => offline.install({ files: ['./', ...scripts], models: ['digits.onnx'] });
globalThis.blank = async () => {
  const session = await ort.InferenceSession.create('digits.onnx');
  const image = new ort.Tensor('float32', new Float32Array(784), [1, 1, 28, 28]);
  const { probabilities } = await session.run({ image });
  return probabilities.dims;
};
"""
TOOLS = {"vite": ["node", VITE, "build"], "webpack": ["node", "-e", PACK]}


@pytest.mark.parametrize("tool", TOOLS)
def test_in_a_bundle(chromium: Any, built: None, tmp_path: Path, tool: str) -> None:
    """The engine's files are kept where the bundler put them."""
    folder = project(built, tmp_path, tool)
    main = folder / ("main.js" if tool == "vite" else "main.cjs")
    main.write_text(BUNDLED)
    if tool == "webpack":
        main.rename(folder / "main.js")
        config = folder / "webpack.config.cjs"
        config.write_text(config.read_text().replace("main.cjs", "main.js"))
    subprocess.run(TOOLS[tool], cwd=folder, check=True)
    site = Site(folder / "dist")
    if tool == "webpack":
        shutil.copy(folder / "public/index.html", site.folder)
    for file in (ROOT / "demo/digits/digits.onnx", ROOT / "dist/offline.sw.js"):
        shutil.copy(file, site.folder)
    with site.online():
        visit(chromium, site)
        (version,) = chromium.evaluate("async () => (await install()).versions")
        assert version["files"] >= 9 and version["size"] > 15_000_000
    visit(chromium, site)
    assert chromium.evaluate("async () => blank()") == [1, 10]
