"""Pages of a real Chromium for the bench: the served files, and fresh pages in fresh profiles."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Route

from kit import chromium as shared
from kit import field
from pyruntime.cli.serve import Server
from pyruntime.native.tools import peak

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
MOUNTS = shared.MOUNTS | {
    "/": ROOT / "bench" / "page",
    "/jax.js": BUILD / "jax.js",
    "/training/jax.js": BUILD / "training_jax.js",
    "/training/tfjs.js": BUILD / "training_tfjs.js",
    "/tfjs-wasm/": ROOT / "node_modules" / "@tensorflow" / "tfjs-backend-wasm" / "wasm-out",
    "/data/": BUILD,
    "/field/": field.CACHE,
    "/peer/": ROOT / "node_modules" / "onnxruntime-web" / "dist",
}


def build(libraries: Sequence[str] = ("jax", "training/jax", "training/tfjs")) -> None:
    """dist/ of the working tree, and each page that uses another library as one file. libraries: those pages"""
    BUILD.mkdir(parents=True, exist_ok=True)
    shared.build()
    for source in libraries:
        made = BUILD / f"{source.replace('/', '_')}.js"
        bundle = ["node_modules/.bin/esbuild", "--bundle", "--format=esm", "--log-level=error", "--tsconfig-raw={}"]
        subprocess.run([*bundle, f"bench/page/{source}.js", f"--outfile={made}"], cwd=ROOT, check=True)


def _begin(code: str, route: Route) -> None:
    response = route.fetch()
    route.fulfill(response=response, body=code + response.text())


class Chromium:
    """A browser and the server of its pages."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser, self.url = browser, url

    @property
    def version(self) -> str:
        return str(self.browser.version)

    @contextmanager
    def page(self, limit: float = 600, beginning: str = "") -> Iterator[Page]:
        """Open a fresh page in a fresh profile. limit: seconds that a call may take; beginning: a script that runs
        before all others, in our worker, too."""
        context = self.browser.new_context()
        context.set_default_timeout(1000 * limit)
        if beginning:
            context.add_init_script(beginning)
            context.route("**/worker.mjs", partial(_begin, beginning))
        page = context.new_page()
        page.goto(self.url + "/index.html")
        page.wait_for_function("globalThis.bench !== undefined")
        try:
            yield page
        finally:
            context.close()

    def adapter(self) -> str:
        """Return the name of the GPU."""
        with self.page() as page:
            return str(page.evaluate("() => bench.adapter()"))

    def peak(self) -> dict[str, float]:
        """Return the floating-point operations per second of one thread, by loop (see `peak.module`)."""
        code, loops = peak.module()
        with self.page() as page:
            return page.evaluate(
                "(what) => bench.peak(what)", {"code": base64.b64encode(code).decode(), "loops": loops}
            )


@contextmanager
def chromium(*, built: bool = False) -> Iterator[Chromium]:
    """Builds first unless `built`."""
    if not built:
        build()
    with Server(MOUNTS) as server, shared.launch() as browser:
        yield Chromium(browser, server.url)
