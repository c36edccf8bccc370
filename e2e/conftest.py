"""Real Chromium against the built package: one browser a test session, a fresh page (and worker) a test.

A page that logs an error, throws, or asks anything of another origin fails its test.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from kit import chromium
from kit import small_models as models
from kit.chromium import ARGS, ROOT, Engine, chromium_path, serve
from kit.once import once
from pyruntime.cli.serve import Server
from pyruntime.testing import DRAWING

os.environ.setdefault("PYRUNTIME_DISABLE_PROGRAM_CACHE", "1")  # what is tested is compiled
collect_ignore = ["testing_project"]  # test_testing.py runs it
CSP = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> None:
    """dist/, build/site/ and build/package/, made from the working tree by the first of the tests' processes."""
    once(tmp_path_factory, "built", _build)


def _build() -> None:
    subprocess.run(["make", "--silent", "package"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    bundle = ["node_modules/.bin/esbuild", "e2e/pages/cjs.cjs", "--bundle", "--log-level=warning"]
    subprocess.run([*bundle, "--outfile=build/pages/cjs.js"], cwd=ROOT, check=True)
    models.write(ROOT / "build" / "models")


@pytest.fixture(scope="session")
def launch_options() -> dict[str, Any]:
    return chromium.launch_options()


@pytest.fixture(scope="session")
def drawing(browser: Browser) -> Iterator[Browser]:
    """Another browser, whose software adapter also draws the pages: for canvases of WebGPU and frames of videos."""
    made = browser.browser_type.launch(executable_path=chromium_path(), args=[*ARGS, *DRAWING])
    yield made
    made.close()


@pytest.fixture(scope="session")
def servers(built: None) -> Iterator[dict[str, Server]]:
    with (
        serve() as isolated,
        serve(isolated=False) as plain,
        serve(headers={"Content-Security-Policy": CSP}) as strict,
    ):
        yield {"isolated": isolated, "plain": plain, "strict": strict}


class Tab:
    """A page that watches itself. `problems` fill as it runs; tests that provoke errors call `forgive`.

    `warnings` leaves out the one about sessions without release(): it comes when the browser collects garbage, in
    whatever test runs then.
    """

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self.origin = page, origin
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.warnings: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("console", self.hear)
        page.context.on("request", self.record)

    def hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")
        elif message.type == "warning" and "dropped without release()" not in message.text:
            self.warnings.append(message.text.rstrip())

    def record(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((self.origin, "blob:" + self.origin, "data:")):
            self.problems.append(f"request to another origin: {request.url}")

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.origin}{path}")
        return self.page

    def run(self, script: str, arg: object = None) -> object:
        """`script` is an async function's body, with `ort` and `arg` in scope."""
        return self.page.evaluate(f"async (arg) => {{ {script} }}", arg)

    def forgive(self, text: str) -> None:
        """Drops the problems that hold `text`: a test that provokes an error says which."""
        self.problems = [problem for problem in self.problems if text not in problem]

    def check(self) -> None:
        problems, self.problems = self.problems, []
        assert not problems, "\n".join(problems)


def new_tab(browser: Browser, server: Server) -> Tab:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    return Tab(context.new_page(), server.url)


@pytest.fixture
def tab(browser: Browser, servers: dict[str, Server]) -> Iterator[Callable[..., Tab]]:
    """`tab()` or `tab("plain")`: a tab in a fresh profile, on the server of that kind."""
    tabs: list[Tab] = []

    def make(kind: str = "isolated") -> Tab:
        tabs.append(new_tab(browser, servers[kind]))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.page.context.close()
    for tab in tabs:
        tab.check()


@pytest.fixture(scope="session", params=["isolated", "plain"])
def shared_page(request: pytest.FixtureRequest, browser: Browser, servers: dict[str, Server]) -> Iterator[Tab]:
    made = new_tab(browser, servers[request.param])
    made.open("/esm.html")
    yield made
    made.page.context.close()


@pytest.fixture
def page(shared_page: Tab) -> Iterator[Tab]:
    """The ESM page, once cross-origin isolated and once not. Tests share it and its worker: a start costs seconds."""
    shared_page.warnings.clear()
    yield shared_page
    shared_page.run("ort.env.wasm.proxy = false; ort.env.logLevel = 'warning'")
    shared_page.check()


@pytest.fixture(scope="session", params=["isolated", "plain"])
def shared_engine(
    request: pytest.FixtureRequest, browser: Browser, servers: dict[str, Server]
) -> Iterator[tuple[Engine, Tab]]:
    tab = new_tab(browser, servers[request.param])
    engine = Engine(tab.page, tab.origin)
    assert tab.run("return globalThis.crossOriginIsolated") is (request.param == "isolated")
    yield engine, tab
    tab.page.context.close()


@pytest.fixture
def engine(shared_engine: tuple[Engine, Tab]) -> Iterator[Engine]:
    """The package in a page, by onnxruntime's Python shape; once isolated and once not, shared by all tests."""
    yield shared_engine[0]
    shared_engine[1].check()


class Profile:
    """A browser profile, and pages in it one after another."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.context, self.server = context, server

    def tab(self) -> Tab:
        tab = Tab(self.context.new_page(), self.server.url)
        tab.open("/esm.html")
        return tab


@pytest.fixture
def profile(request: pytest.FixtureRequest, browser: Browser, servers: dict[str, Server]) -> Iterator[Profile]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield Profile(context, servers[getattr(request, "param", "isolated")])
    context.close()
