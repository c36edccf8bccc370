"""python -m bench site: what a visitor of the demo site waits for and downloads, page by page.

Each page opens in a fresh profile, and then again. Of both: milliseconds until the first paint with content and until
the largest one, and, until nothing has been sent for two seconds, requests to the server and MB of them, compressed by
brotli as docs/hosting.md tells.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import IO

from playwright.sync_api import Page

from bench import machine, start_server
from bench.chromium import ROOT
from kit import chromium

SITE = ROOT / "build/site"
IDLE = 2.0  # seconds without a byte, after which a page has what it asked for
PAINT = """() => new Promise((resolve) => {
  const first = performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0;
  new PerformanceObserver((list) => resolve([first, list.getEntries().at(-1).startTime])).observe({ type: 'largest-contentful-paint', buffered: true });
  setTimeout(() => resolve([first, first]), 1000);
})"""  # noqa: E501


class Handler(start_server.Handler):
    server: Server

    def send_response(self, code: int, message: str | None = None) -> None:
        self.server.count(1, 0)
        super().send_response(code, message)

    def copyfile(self, source: IO[bytes], outputfile: IO[bytes]) -> None:  # type: ignore[override]
        while data := source.read(start_server.PORTION):
            self.server.count(0, len(data))
            outputfile.write(data)


class Server(start_server.Server):
    """Counts requests and bytes of bodies."""

    handler = Handler

    def __init__(self, mounts: dict[str, Path], brotli: dict[Path, Path]) -> None:
        super().__init__(mounts, brotli)
        self.lock = threading.Lock()
        self.requests = self.bytes = 0
        self.last = time.monotonic()

    def count(self, requests: int, size: int) -> None:
        with self.lock:
            self.requests += requests
            self.bytes += size
            self.last = time.monotonic()

    def taken(self) -> tuple[int, int]:
        """Requests and bytes since the last call, once nothing has been sent for a while."""
        while time.monotonic() < self.last + IDLE:
            time.sleep(0.1)
        with self.lock:
            found = self.requests, self.bytes
            self.requests = self.bytes = 0
        return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench site", description=__doc__)
    parser.add_argument("pages", nargs="*", help="paths of pages, such as digits/; default: all")
    args = parser.parse_args(argv)
    chromium.build()
    files = [path for path in SITE.rglob("*") if path.suffix in start_server.serve.COMPRESSED]
    paths = args.pages or ["", *sorted(f"{path.parent.name}/" for path in SITE.glob("*/index.html"))]
    print(f"{machine.processor()}; ms until the first and the largest paint, requests, MB")
    print(f"{'':16}{'first visit':>30}{'second visit':>34}")
    with Server({"/": SITE}, start_server.compressed(files)) as server, chromium.launch() as browser:
        for path in paths:
            context = browser.new_context()
            rows = [_visit(context.new_page(), server, path) for _ in range(2)]
            context.close()
            print(f"/{path:15}" + "    ".join(f"{a:8.0f}{b:8.0f}{n:6d}{size / 1e6:8.2f}" for a, b, n, size in rows))
    return 0


def _visit(page: Page, server: Server, path: str) -> tuple[float, float, int, int]:
    page.goto(f"{server.url}/{path}index.html")
    counts = server.taken()
    first, largest = page.evaluate(PAINT)
    page.close()
    return (first, largest, *counts)
