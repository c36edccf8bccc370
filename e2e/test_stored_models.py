"""Models that pages ask to keep, by the option `cache`: web/storage/stored_models.js."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from e2e.test_loading import Y
from e2e.test_offline import Site, affine, in_chromium, visit
from e2e.test_program_cache import other_model
from kit.chromium import ROOT

WAIT = """async (count) => {
  while ((await ort.models.list()).length !== count) await new Promise((done) => setTimeout(done, 20));
}"""


class Asked:
    """A page, and what it asked for since it was last looked at."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        page.context.on("request", lambda request: self.asked.append(f"{request.method} {Path(request.url).name}"))

    def run(self, model: str = "affine.onnx", kept: int = 1, **options: Any) -> list[str]:
        """Requests for models, of a session that gives what it should; then so many files are kept."""
        self.asked.clear()
        affine(self.page, model, **options)
        self.page.evaluate(WAIT, kept)
        return sorted(line for line in self.asked if line.endswith((".onnx", ".bin")))


@pytest.fixture
def site(built: None, tmp_path: Path) -> Iterator[Site]:
    made = Site.made(tmp_path)
    for name in ("external.onnx", "external.bin"):
        shutil.copy(ROOT / "build" / "models" / name, tmp_path)
    yield made


@pytest.fixture
def asked(browser: Browser) -> Iterator[Asked]:
    with in_chromium(browser) as page:
        yield Asked(page)


def test_models_are_fetched_once(asked: Asked, site: Site) -> None:
    """By address, asking whether there is another; by version, without asking; without a network."""
    get, head = ["GET affine.onnx"], ["HEAD affine.onnx"]
    with site.online():
        visit(asked.page, site)
        assert asked.run(cache=True) == get
        (listed,) = asked.page.evaluate("async () => ort.models.list()")
        assert (
            listed["url"] == f"{site.url}affine.onnx" and listed["size"] == (site.folder / "affine.onnx").stat().st_size
        )
        visit(asked.page, site)
        assert asked.run(cache=True) == head
        assert asked.run(cache="1") == get
        assert asked.run(cache="1") == []
        assert asked.run(cache="2") == get
        assert asked.run(cache=False) == get
        (site.folder / "affine.onnx").write_bytes(other_model())
        os.utime(site.folder / "affine.onnx", (1e9, 1e9))
        assert asked.run(cache="2") == []
        other = asked.page.evaluate("async () => read('affine.onnx', { cache: true })")
        assert not np.allclose(other, Y.ravel())
    assert asked.page.evaluate("async () => read('affine.onnx', { cache: true })") == other
    with site.online():
        delete = "async () => [await ort.models.delete('affine.onnx'), await ort.models.delete('affine.onnx')]"
        assert asked.page.evaluate(delete) == [True, False]
        external = {"externalData": ["external.bin"], "cache": True}
        assert asked.run("external.onnx", 2, **external) == ["GET external.bin", "GET external.onnx"]
        assert asked.run("external.onnx", 2, **external) == ["HEAD external.bin", "HEAD external.onnx"]


def test_what_is_damaged_or_finds_no_room(asked: Asked, site: Site) -> None:
    """It is fetched again; the session runs all the same, and a warning says what it would have taken."""
    told: list[str] = []
    asked.page.on("console", lambda message: told.append(message.text))
    with site.online():
        visit(asked.page, site)
        asked.run(cache="1")
        asked.page.evaluate("""async () => {
          const cache = await caches.open('pyruntime-models');
          const [name] = await cache.keys();
          const found = await cache.match(name);
          await cache.put(name, new Response((await found.bytes()).slice(1), { headers: found.headers }));
        }""")
        assert asked.run(cache="1") == ["GET affine.onnx"] and asked.run(cache="1") == []
        assert asked.page.evaluate(
            "async () => (await ort.models.delete('affine.onnx')) && !(await ort.models.list()).length"
        )
        devtools = asked.page.context.new_cdp_session(asked.page)
        devtools.send("Storage.overrideQuotaForOrigin", {"origin": site.url.rstrip("/"), "quotaSize": 1})
        assert asked.run(kept=0, cache=True) == ["GET affine.onnx"]
        asked.page.wait_for_timeout(500)
        assert [text for text in told if "cannot store" in text and "takes 230 bytes" in text], told
        room = asked.page.evaluate("async () => ort.models.room()")
        assert set(room) == {"usage", "quota", "persisted"}
