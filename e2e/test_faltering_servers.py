"""Servers and networks that falter while a model comes (web/worker/files/resumable_fetch.js), to a real browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from e2e.test_loading import RUN, assert_affine
from kit.chromium import MOUNTS
from pyruntime.cli.serve import Handler, Part, Server

# What becomes of the first answers for a file: whether its connection breaks in the middle, or its status.
FALTERS: dict[str, list[str | int]] = {
    "breaks": ["break"],
    "breaks twice": ["break", "break"],
    "busy": [503, 429],
    "busy, then breaks": [503, "break"],
    "out of order": [500] * 9,
    "gone": [404],
}
CREATE = "const session = await ort.InferenceSession.create(arg, { externalData: ['external.bin'] });"


class Faltering(Handler):
    """Answers for /KIND/… as `FALTERS` has it for KIND, and then as it should."""

    seen: Counter[str]
    ranges: list[str]

    def send_head(self) -> Any:
        kind, _, name = unquote(self.path[1:]).partition("/")
        if kind not in FALTERS:
            return super().send_head()
        self.seen[name] += 1
        if "Range" in self.headers:
            self.ranges.append(self.headers["Range"])
        falters = [*FALTERS[kind], ""][min(self.seen[name], len(FALTERS[kind]) + 1) - 1]
        if isinstance(falters, int):
            return self.send_error(falters)
        self.path = f"/models/{name}"
        body = super().send_head()
        if falters and body:
            self.close_connection = True
            return Part(body, self.length // 2)
        return body

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length":
            self.length = int(value)
        super().send_header(keyword, value)


@pytest.fixture
def site(built: None, browser: Browser) -> Iterator[tuple[Tab, type[Faltering]]]:
    class Counted(Faltering):
        seen: Counter[str] = Counter()
        ranges: list[str] = []

    class Site(Server):
        handler = Counted

    with Site(MOUNTS) as server:
        tab = new_tab(browser, server)
        tab.open("/esm.html")
        yield tab, Counted
        tab.page.context.close()


@pytest.mark.parametrize("kind", FALTERS)
def test_models_come_all_the_same(site: tuple[Tab, type[Faltering]], kind: str) -> None:
    """Where they can: what came is not fetched again. What is refused says why, and the next model loads."""
    tab, server = site
    final = isinstance(FALTERS[kind][-1], int) and kind != "busy"
    if final:
        told = str(
            tab.run(f"return (async () => {{ {CREATE} }})().catch((error) => error.message)", f"/{kind}/external.onnx")
        )
        assert f"HTTP {FALTERS[kind][-1]}" in told and ("try again later" in told) is (kind != "gone")
        assert max(server.seen.values()) == (1 if kind == "gone" else 5)
        assert_affine(tab.run(CREATE + RUN, "/models/external.onnx"))
    else:
        assert_affine(tab.run(CREATE + RUN, f"/{kind}/external.onnx"))
        breaks = FALTERS[kind].count("break")
        assert set(server.seen.values()) == {len(FALTERS[kind]) + 1} and len(server.ranges) == 2 * breaks
    tab.forgive("Failed to load resource")
    tab.check()
