from pathlib import Path

from playwright.sync_api import Page

from pyruntime.testing import serve

HERE = Path(__file__).parent


def test_a_digit(page: Page) -> None:
    with serve({"/": HERE / "public", "/pyruntime/": HERE / "node_modules/pyruntime/dist"}) as server:
        page.goto(server.url)
        assert page.locator("output:not(:empty)").inner_text().isdigit()
        assert page.evaluate("crossOriginIsolated")
