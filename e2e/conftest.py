"""Real Chromium against the built package: one browser a test session, a fresh page (and worker) a test.

A page that logs an error, throws, or asks anything of another origin fails its test.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from e2e import models
from pyruntime.cli.serve import Server

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "e2e" / "pages"
ARGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
MOUNTS = {
    "/": PAGES,
    "/built/": ROOT / "build" / "pages",
    "/dist/": ROOT / "dist",
    "/models/": ROOT / "build" / "models",
    "/site/": ROOT / "build" / "site",
    "/web/": ROOT / "web",
}
CSP = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:"


@pytest.fixture(scope="session")
def built() -> None:
    """dist/ and build/site/, made from the working tree."""
    subprocess.run(["node", "scripts/build_web.mjs"], cwd=ROOT, check=True)
    bundle = ["node_modules/.bin/esbuild", "e2e/pages/cjs.cjs", "--bundle", "--log-level=warning"]
    subprocess.run([*bundle, "--outfile=build/pages/cjs.js"], cwd=ROOT, check=True)
    models.write(ROOT / "build" / "models")


def chromium_path() -> str | None:
    """Where scripts/setup.sh found Chromium, else one on PATH; None: Playwright's own."""
    noted = ROOT / "build" / "chromium"
    if noted.exists():
        return noted.read_text().strip() or None
    return next((p for p in map(shutil.which, ("chromium", "google-chrome", "chrome")) if p), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=ARGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def servers(built: None) -> Iterator[dict[str, Server]]:
    with (
        Server(MOUNTS) as isolated,
        Server(MOUNTS, isolated=False) as plain,
        Server(MOUNTS, headers={"Content-Security-Policy": CSP}) as strict,
    ):
        yield {"isolated": isolated, "plain": plain, "strict": strict}


class Tab:
    """A page that watches itself. `problems` fill as it runs; `errors_allowed` for tests that provoke them."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self.origin = page, origin
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("console", lambda m: self.problems.append(f"console: {m.text}") if m.type == "error" else None)
        page.context.on("request", self.record)

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
    yield shared_page
    shared_page.check()
