"""python -m bench visits [MODEL …]: the first visit against the second, on the GPU.

Each round has a new profile, in which a page creates a session, runs it, and waits until the browser has written its
caches; then another page does the same. Milliseconds from `create` to the first result, medians.
"""

from __future__ import annotations

import argparse
import math
from statistics import median

from playwright.sync_api import Browser

from kit import chromium
from kit.models import MODELS
from pyruntime.cli.serve import Server

NAMES = ["digits", "bert_tiny", "gpt2_tiny", "llama_mini", "vit_tiny"]
VISIT = """async ([url, values, executionProviders]) => {
  const { toFeeds } = await import('/bridge/bridge.js');
  const feeds = toFeeds(values);
  const start = performance.now();
  const session = await ort.InferenceSession.create(url, { executionProviders });
  await session.run(feeds);
  return performance.now() - start;
}"""
KEPT = """async () => {
  const kept = async (name) => (await (await caches.open(name)).keys()).length;
  for (let i = 0; i < 200 && !(await kept('pyruntime') && await kept('pyruntime-programs')); i++) {
    await new Promise((done) => setTimeout(done, 100));
  }
}"""


def visits(browser: Browser, server: Server, name: str, providers: list[str]) -> list[float]:
    """Measure the first and the second visit in a new profile."""
    model = MODELS[name]
    context = browser.new_context()
    times = []
    for _ in range(2):
        page = context.new_page()
        page.goto(f"{server.url}/bridge/bridge.html")
        page.wait_for_function("Boolean(globalThis.ort)")
        given = [chromium.url_of(model.path()), chromium.to_feeds(model.feeds()), providers]
        times.append(page.evaluate(VISIT, given))
        page.evaluate(KEPT)
        page.close()
    context.close()
    return times


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench visits", description=__doc__)
    parser.add_argument("models", nargs="*", default=NAMES, help=f"default {' '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=3, help="new profiles for each model (default 3)")
    parser.add_argument("--provider", choices=["webgpu", "wasm"], default="webgpu")
    args = parser.parse_args(argv)
    chromium.build()
    shares = []
    with chromium.launch() as browser, chromium.serve() as server:
        for name in args.models:
            rounds = [visits(browser, server, name, [args.provider]) for _ in range(args.rounds)]
            first, second = (median(times) for times in zip(*rounds, strict=True))
            shares.append(second / first)
            print(f"{name:24} first {first:6.0f} ms   second {second:6.0f} ms   {second / first:.2f}", flush=True)
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    print(f"second visit on {args.provider}: {mean:.2f} of the first, {len(shares)} models, {args.rounds} rounds")
    return 0
