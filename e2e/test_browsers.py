"""Firefox and WebKitGTK, where they are installed: models in isolated pages and others, on one thread and on two."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from e2e.conftest import Server
from kit import browsers
from kit.chromium import ROOT, Engine
from kit.models import MODELS

NAMES = ["bert_tiny", "lstm_tagger", "llama_mini.dyn", "mobilenet_v2"]  # attention, a loop, integers, convolutions
RUNS = 40  # of the last one: threads join after half a second
SHARED = {"JSC_useSharedArrayBuffer": "1"}

# WebKitGTK gives isolated pages no shared memory unless it is told to.
PLACES: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]], bool]] = {
    "Firefox, isolated": ("isolated", browsers.firefox, True),
    "Firefox": ("plain", browsers.firefox, False),
    "WebKitGTK, isolated": ("isolated", browsers.webkit, False),
    "WebKitGTK, isolated, with shared memory": ("isolated", lambda: browsers.webkit(SHARED), True),
    "WebKitGTK": ("plain", browsers.webkit, False),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Iterator[tuple[Engine, bool]]:
    """A page with the package, and whether it has threads."""
    kind, start, shared = PLACES[request.param]
    path = browsers.firefox_path() if request.param.startswith("Firefox") else browsers.webkit_path()
    if path is None:
        pytest.skip("not installed; scripts/setup.sh browsers does it as root")
    with start() as page:
        yield Engine(page, servers[kind].url), shared


def test_models(place: tuple[Engine, bool]) -> None:
    engine, shared = place
    environment = "async () => ort.python('import os; os.environ.get(\"PYTHONHASHSEED\")')"
    assert engine.page.evaluate(environment) == "0"  # that of the image of memory, without which it would work, too
    for threads in (1, 2):
        for name in NAMES if shared or threads == 1 else NAMES[:1]:
            model = MODELS[name]
            session = engine.open(model.path(), intraOpNumThreads=threads)
            if name == NAMES[-1] and threads == 2:
                session.repeat(model.feeds(), RUNS)
            model.check(session.run(None, model.feeds()))
            session.release()
        assert engine.page.evaluate("async () => (await ort.stats()).threads") == (threads - 1 if shared else 0)


IN_SERVICE_WORKER = """async ([file, type]) => {
  const { serviceWorker } = navigator;
  await serviceWorker.register(file, { type });
  const { active } = await serviceWorker.ready;
  active.postMessage('/models/add.onnx');
  return new Promise((resolve) => { serviceWorker.onmessage = ({ data }) => resolve(data); });
}"""


@pytest.mark.parametrize("name", ["firefox", "webkit"])
def test_service_workers(servers: dict[str, Server], name: str) -> None:
    """Classic ones and modules."""
    if getattr(browsers, f"{name}_path")() is None:
        pytest.skip("not installed; scripts/setup.sh browsers does it as root")
    for file, kind in (("/engine_worker.js", "classic"), ("/engine_worker.mjs", "module")):
        with getattr(browsers, name)() as page:
            page.goto(f"{servers['isolated'].url}/esm.html")
            assert page.evaluate(IN_SERVICE_WORKER, [file, kind]) == ["2,3,4,5,6,7", 0]


def test_the_readme_names_the_places() -> None:
    """All that tests run in, with the versions that are pinned; browsers come from the system, of any version."""
    table = (ROOT / "README.md").read_text().partition("## Where it runs")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \| ([\d.]+) \|", table, re.MULTILINE)
    named = {name.partition(",")[0] for name in PLACES}
    pinned = dict(line.split("@") for line in (ROOT / "e2e/runtimes.txt").read_text().split())
    assert {name for name, _ in rows} == {
        "Chromium",
        "Node.js",
        "Deno",
        "Bun",
        "workerd",
        "Pyodide (JupyterLite)",
        *named,
    }
    assert {name.lower(): version for name, version in rows if name.lower() in pinned} == pinned
