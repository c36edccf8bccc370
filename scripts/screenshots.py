"""Screenshots of every page of the demo site and of the documentation, for eyes: python -m scripts.screenshots FOLDER.

Each page opens once, in Chromium, and waits until its first model has run. Then its whole length is drawn on a desktop
and on a phone, in light and in dark: FOLDER/PAGE-WIDTH-THEME.png. Prints pages that are wider than the screen, that do
not become ready, and that log errors. `npm run build` and `make docs` build what this draws.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, TimeoutError

from kit import chromium
from kit.chromium import ROOT
from pyruntime.cli.serve import Server

SITE, DOCS = ROOT / "build/site", ROOT / "build/docs"
WIDTHS = {1280: 800, 390: 844}  # width and height of the screen
THEMES = ("light", "dark")
READY = "#status.done, #status.failed, .unsupported, .cell pre:not(:empty)"
PATIENCE = 60_000  # ms for a page's first model
# Switches to a theme as the pages' own buttons do; the documentation's theme follows the system's.
THEME = """(theme) => {
  if (!document.querySelector('script[data-root]')) return; // a page of the documentation
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event('themechange'));
}"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def addresses() -> list[str]:
    """Pages of the site, then those of the documentation for users that are built, besides the reference of types."""
    site = [f"/{path.relative_to(SITE)}" for path in [SITE / "index.html", *sorted(SITE.glob("*/index.html"))]]
    docs = [path for path in sorted(DOCS.rglob("*.html")) if not {"engineers", "javascript"} & set(path.parts)]
    return site + [f"/docs/{path.relative_to(DOCS)}" for path in docs]


def faults(browser: Browser, url: str, address: str, folder: Path) -> Iterator[str]:
    """Draws one page; what is wrong with it."""
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url + address)
    if not address.startswith("/docs/"):
        try:
            page.wait_for_selector(READY, timeout=PATIENCE)
        except TimeoutError:
            yield "shows no result"
    name = re.sub(r"\W+", "-", address.removesuffix(".html").removesuffix("index")).strip("-") or "home"
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        for theme in THEMES:
            _draw(page, theme, folder / f"{name}-{width}-{theme}.png")
        if (over := page.evaluate(OVERFLOW)) > 0:
            yield f"is {over} px wider than a screen of {width}"
    yield from errors
    context.close()


def _draw(page: Page, theme: str, file: Path) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.evaluate(THEME, theme)
    page.wait_for_timeout(300)  # transitions of colours
    page.screenshot(path=file, full_page=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="*", help="addresses such as /digits/index.html; default: all that are built")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with Server({"/": SITE, "/docs/": DOCS}) as server, chromium.launch() as browser:
        for address in args.pages or addresses():
            for fault in faults(browser, server.url, address, args.folder):
                print(f"{address}: {fault}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
