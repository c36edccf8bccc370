"""The engine in a web worker of headless Chromium.

One page for all cases, and one session a case. Cases go through the package's public JavaScript API, in the page; what
onnxruntime's own API cannot carry goes through the worker as ours extends it: sequences as arrays of tensors, an empty
optional as null, and element types it has no name for (bfloat16, float8, float4, two-bit integers) as raw bits of
uint8 or uint16. A case that takes too long ends the worker; the next one starts a new one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.browser import ROOT, Engine, launch, serve
from tests.conformance.runners import Feeds

LIMIT = 15.0  # seconds a model or a run may take: less than the harness allows, so that the page outlives the worker


class Chromium:
    """isolated: whether the page may share memory."""

    def __init__(self, provider: str, isolated: bool = True) -> None:
        if not (ROOT / "dist" / "worker.mjs").exists():
            raise FileNotFoundError("dist/ is not built: npm run build")
        self.options = {"executionProviders": [provider]}
        self.stack = ExitStack()
        server = self.stack.enter_context(serve(isolated=isolated))
        page = self.stack.enter_context(launch()).new_page()
        self.engine = Engine(page, server.url, limit=60.0)
        self.engine.boot()
        self.engine.limit = LIMIT

    def run(self, model: bytes, feeds: Feeds) -> list[Any]:
        session = self.engine.open(model, **self.options)
        try:
            return session.run(None, feeds)
        finally:
            session.release()

    def close(self) -> None:
        self.stack.close()
