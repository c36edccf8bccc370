"""The engine in a web worker of headless Chromium.

One page for all cases, and one session a case, through the package's public JavaScript API. That API extends
onnxruntime-web's: sequences are arrays of tensors, an empty optional is null, and element types without a name there
(bfloat16, float8, float4, two-bit integers) are raw bits of another type. A case that takes too long ends the worker,
one that crashes the page ends the page; the next case gets a new one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from playwright.sync_api import Error

from kit.chromium import ROOT, Engine, launch, serve
from kit.conformance.runner import Feeds, wholly

# Seconds that a model or a run may take: less than the harness allows, so that the page outlives the worker. An
# emulated GPU compiles slowly.
LIMITS = {"wasm": 15.0, "webgpu": 190.0}


class Chromium:
    def __init__(self, provider: str) -> None:
        if not (ROOT / "dist" / "worker.mjs").exists():
            raise FileNotFoundError("dist/ is not built: npm run build")
        self.provider, self.wholly = provider, False
        self.limit = LIMITS[provider]
        self.stack = ExitStack()
        self.url = self.stack.enter_context(serve()).url
        self.browser = self.stack.enter_context(launch())
        self.engine: Engine | None = self._engine()

    def run(self, model: bytes, feeds: Feeds) -> list[Any]:
        self.engine = self.engine or self._engine()
        try:
            results, self.wholly = run(self.engine, self.provider, model, feeds)
            return results
        except Error:  # Playwright's error: the page has crashed
            self.engine.page.close()
            self.engine = None
            raise

    def _engine(self) -> Engine:
        engine = Engine(self.browser.new_page(), self.url, limit=60.0)
        engine.boot()
        engine.limit = self.limit
        return engine

    def close(self) -> None:
        self.stack.close()


def run(engine: Engine, provider: str, model: bytes, feeds: Feeds) -> tuple[list[Any], bool]:
    """All outputs, of a new session, and whether every kernel ran on this provider."""
    session = engine.open(model, executionProviders=[provider])
    try:
        return session.run(None, feeds), wholly(session.explain(), provider)
    finally:
        session.release()
