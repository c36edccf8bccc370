"""Tests of pages in Playwright's Chromium: WebGPU by a software adapter, and no network but this machine. The same in
Node.js: web/node/testing.js.

It is a plugin of pytest with the fixtures `browser`, `page` and `launch_options`: name it in the conftest.py of the
top folder, `pytest_plugins = ["pyruntime.testing"]`. Needs Playwright (`pip install playwright`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyruntime.cli.serve import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Chromium on this machine alone, with WebGPU wherever it runs, and a camera and a microphone.
FLAGS = [
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
# For pages that draw on canvases by WebGPU or bind frames of videos: without, Chromium loses the device.
DRAWING = ["--enable-features=Vulkan", "--use-angle=vulkan", "--use-vulkan=swiftshader"]


@contextmanager
def launch(*, draws: bool = False, args: Sequence[str] = (), **options: Any) -> Iterator[Browser]:
    """Playwright's Chromium with `FLAGS`. draws: also with `DRAWING`; args: further flags; options: of Playwright's
    `launch`, such as `executable_path`; by default the environment variable PYRUNTIME_CHROMIUM, or Playwright's own
    browser"""
    from playwright.sync_api import sync_playwright

    options.setdefault("executable_path", os.environ.get("PYRUNTIME_CHROMIUM"))

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(args=[*FLAGS, *(DRAWING if draws else ()), *args], **options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serve(
    folders: Path | str | Mapping[str, Path | str], *, isolated: bool = True, headers: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A server on a free port of this machine; its `url` has no slash at the end. folders: one, or several by the
    beginning of their addresses ("/", "/models/"); isolated: whether pages are cross-origin isolated, so that they have
    threads; headers: of all responses"""
    mounts = folders if isinstance(folders, Mapping) else {"/": folders}
    with Server({name: Path(folder) for name, folder in mounts.items()}, isolated=isolated, headers=headers) as server:
        yield server


@pytest.fixture(scope="session")
def launch_options() -> dict[str, Any]:
    """Arguments of `launch` for the fixture `browser`; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def browser(launch_options: dict[str, Any]) -> Iterator[Browser]:
    """One for all tests. Each context is a new profile with an empty cache."""
    with launch(**launch_options) as chromium:
        yield chromium


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a new profile. Uncaught errors in it fail the test."""
    context = browser.new_context()
    made, uncaught = context.new_page(), []
    made.on("pageerror", lambda error: uncaught.append(str(error)))
    yield made
    context.close()
    assert not uncaught, "\n".join(uncaught)
