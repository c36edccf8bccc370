"""Every page of the demo site: its main action by keys, its code, a link to its state, and visits without a network,
without the page's server, or in a browser that lacks what the page would like to use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from e2e.conftest import Tab
from e2e.site_pages import ACTIONS, READY, STATES, TYPED, address
from e2e.test_offline import Site
from kit.chromium import ROOT
from pyruntime.cli.serve import Server

SITE = ROOT / "build/site"
STORED = "document.querySelector('#note').textContent.includes('Available offline')"


def test_table_has_all_pages(built: None) -> None:
    assert {"", *(f"{file.parent.name}/" for file in SITE.glob("*/index.html"))} - {"docs/"} == set(ACTIONS)


LACKS = """
  for (const name of ['gpu', 'mediaDevices']) {
    Object.defineProperty(Navigator.prototype, name, { get: () => undefined });
  }
"""


@pytest.fixture(scope="module")
def visitor(browser: Browser) -> Iterator[BrowserContext]:
    """One profile for all pages: what the first page has fetched and compiled, others need not."""
    context = browser.new_context(service_workers="block", permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture(scope="module")
def poor_visitor(browser: Browser) -> Iterator[BrowserContext]:
    """Without WebGPU, camera and microphone. On the plain server there are no threads, either."""
    context = browser.new_context(service_workers="block")
    context.set_default_timeout(60_000)
    context.add_init_script(LACKS)
    yield context
    context.close()


def active(page: Page, selector: str) -> bool:
    return bool(page.evaluate("selector => document.activeElement.matches(selector)", selector))


@pytest.mark.parametrize("path", ACTIONS)
def test_page(visitor: BrowserContext, servers: dict[str, Server], path: str) -> None:
    """Keys reach the main action and do it; View code has the lines that the page has loaded; a link shows the same."""
    made = Tab(visitor.new_page(), servers["isolated"].url)
    if path == "benchmark/":  # its larger models take a minute
        made.page.route("**/models/**", lambda route: route.fulfill(status=404))
    page = made.open(f"/site/{address(path)}")
    page.wait_for_selector(READY)
    page.keyboard.press("Tab")
    assert active(page, ".skip")
    page.keyboard.press("Enter")
    assert active(page, "main")
    if path in TYPED:
        page.fill(*TYPED[path])
        page.focus("main")
    for step in ACTIONS[path]:
        step.take(page)
    page.click("#copy-link")
    page.wait_for_function("document.querySelector('#copy-link').textContent === 'Link copied'")
    shown_code_is_loaded(page)
    if path in STATES:
        state, link = page.evaluate(STATES[path]), page.evaluate("navigator.clipboard.readText()")
        assert state and link != f"{made.origin}/site/{path}index.html"
        page.goto("about:blank")
        page.goto(link)
        page.wait_for_function(
            f"(state) => {{ try {{ return {STATES[path]} === state; }} catch {{ return false; }} }}", arg=state
        )
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, "the page is wider than a telephone"
    page.close()
    made.forgive("404")
    made.check()


def shown_code_is_loaded(page: Page) -> None:
    page.click("#view-code")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    for name in page.get_attribute("script[data-code]", "data-code").split():
        page.click(f"dialog.code [role=tab]:text-is('{name.split('/')[-1]}')")
        page.wait_for_selector(f"dialog.code pre[aria-label='{name}'] span")
        assert page.text_content("dialog.code pre") == (SITE / name).read_text()
        assert any(url.endswith(f"/site/{name}") for url in loaded), f"the page has not loaded {name}"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.code", state="detached")


TOLD = {  # besides what the browser lacks, the page says what works instead; True: its main action does
    "gpu/": ("no WebGPU", "The benchmark", False),
    "vad/": ("may not use a microphone", "generated voice", True),
    "camera/": ("may not use a camera", "generated pictures", True),
    "yours/": ("may not use a camera", "Photographs from files", True),
}


@pytest.mark.parametrize("path", ACTIONS)
def test_poor_browser(poor_visitor: BrowserContext, servers: dict[str, Server], path: str) -> None:
    made = Tab(poor_visitor.new_page(), servers["plain"].url)
    page = made.open(f"/site/{address(path)}")
    page.wait_for_selector(READY)
    why, instead, works = TOLD.get(path, ("", "", False))
    if path in TOLD:
        told = page.inner_text(".unsupported")
        assert why in told and instead in told
    for step in ACTIONS[path] if works else ():
        step.take(page)
    page.close()
    made.check()


def test_browser_without_simd(visitor: BrowserContext, servers: dict[str, Server]) -> None:
    page = visitor.new_page()
    page.add_init_script("WebAssembly.validate = () => false;")
    page.goto(f"{servers['isolated'].url}/site/model/index.html")
    assert "Safari 16.4" in page.inner_text(".unsupported")
    page.close()


def opened(page: Page, site: Site, path: str) -> None:
    page.goto(site.url + address(path))
    page.wait_for_selector(READY)


def can_be_installed(page: Page, site: Site) -> None:
    """On a page of its own: a session of the developer tools undoes Playwright's `set_offline` for its page."""
    page.goto(site.url)
    devtools = page.context.new_cdp_session(page)
    errors = devtools.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [error["errorId"] for error in errors] == ["in-incognito"]  # Playwright's profiles are incognito
    assert not devtools.send("Page.getAppManifest")["errors"]
    page.close()


def test_offline(browser: Browser, built: None) -> None:
    """The site can be installed. After one visit pages do what they are for, without a network and without its server;
    a model that was never compiled runs, too."""
    site = Site(SITE)
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{page.url}: uncaught {error}"))
    page.on("console", lambda message: message.type == "error" and problems.append(f"{page.url}: {message.text}"))
    with site.online():
        for path in ACTIONS:
            opened(page, site, path)
        page.wait_for_function(STORED)
        can_be_installed(context.new_page(), site)
    context.set_offline(True)
    for path, steps in ACTIONS.items():
        opened(page, site, path)
        for step in steps:
            step.take(page)
        page.click("#view-code")
        page.wait_for_function("document.querySelector('dialog.code pre').textContent.includes('import ')")
        assert page.inner_text("h1")
    opened(page, site, "model/")
    page.set_input_files("#file", str(ROOT / "build" / "models" / "affine.onnx"))
    page.click("#time")
    page.wait_for_selector("#latency svg")
    page.wait_for_function(STORED)
    context.close()
    assert not problems, "\n".join(problems)
