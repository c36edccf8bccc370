"""python -m bench providers [MODEL …]: sessions with ["webgpu", "wasm"] and ["auto"] beside sessions with ["wasm"].

All three run in turns on one thread, in one page of Chromium (in its worker), or natively with --native. A ratio is the
shortest time on WebAssembly alone over the other's (longer times measure other programs): on a software adapter, 0.97
and more means that naming the GPU costs nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kit import chromium
from kit.models import MODELS
from pyruntime import InferenceSession

NAMES = "digits bert_tiny gpt2_tiny llama_mini vit_tiny mobilenet_v2 minilm superres yolo_nms wav2vec2_mini".split()
PROVIDERS = [["wasm"], ["webgpu", "wasm"], ["auto"]]
TURNS = """async ([url, values, providers, turns, warm]) => {
  const { toFeeds } = await import('/bridge/bridge.js');
  Object.assign(ort.env.wasm, { numThreads: 1, proxy: true }); // no run in the page
  const feeds = toFeeds(values);
  const sessions = [];
  const created = [];
  for (const executionProviders of providers) {
    const start = performance.now();
    sessions.push(await ort.InferenceSession.create(url, { executionProviders }));
    created.push(performance.now() - start);
  }
  const times = sessions.map(() => []);
  for (let turn = -warm; turn < turns; turn++) {
    for (const [n, session] of sessions.entries()) {
      const start = performance.now();
      await session.run(feeds);
      if (turn >= 0) times[n].push(performance.now() - start);
    }
  }
  const used = [];
  for (const session of sessions) {
    used.push((await session.explain()).providers);
    await session.release();
  }
  return { created, times, used };
}"""
Measure = Callable[[str, int, int], dict[str, Any]]


@contextmanager
def in_chromium() -> Iterator[Measure]:
    chromium.build()
    with chromium.launch() as browser, chromium.serve() as server:

        def measure(name: str, turns: int, warm: int) -> dict[str, Any]:
            model = MODELS[name]
            page = browser.new_page()
            page.goto(f"{server.url}/bridge/bridge.html")
            page.wait_for_function("Boolean(globalThis.ort)", timeout=120_000)
            given = [chromium.url_of(model.path()), chromium.to_feeds(model.feeds()), PROVIDERS, turns, warm]
            found: dict[str, Any] = page.evaluate(TURNS, given)
            page.close()
            return found

        yield measure


@contextmanager
def natively() -> Iterator[Measure]:
    def measure(name: str, turns: int, warm: int) -> dict[str, Any]:
        model, sessions, created = MODELS[name], [], []
        feeds = model.feeds()
        for providers in PROVIDERS:
            start = time.perf_counter()
            sessions.append(InferenceSession(str(model.path()), providers=providers))
            created.append(1000 * (time.perf_counter() - start))
        times: list[list[float]] = [[] for _ in sessions]
        for turn in range(-warm, turns):
            for n, session in enumerate(sessions):
                start = time.perf_counter()
                session.run(None, feeds)
                if turn >= 0:
                    times[n].append(1000 * (time.perf_counter() - start))
        return {"created": created, "times": times, "used": [s.explain()["providers"] for s in sessions]}

    yield measure


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench providers", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"default {' '.join(NAMES)}")
    parser.add_argument("--native", action="store_true", help="natively instead of in Chromium")
    parser.add_argument("--turns", type=int, default=40, help="timed turns of a model (default 40)")
    parser.add_argument("--warm", type=int, default=10, help="turns before these (default 10)")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of a software adapter
    ratios: list[list[float]] = []
    with natively() if args.native else in_chromium() as measure:
        for name in args.models or NAMES:
            found = measure(name, args.turns, args.warm)
            wasm, *others = (min(times) for times in found["times"])
            ratios.append([wasm / other for other in others])
            rows = zip(PROVIDERS[1:], others, ratios[-1], found["used"][1:], strict=True)
            text = "   ".join(f"{p} {t:.2f} ms on {', '.join(u['used'])} {r:.3f}" for p, t, r, u in rows)
            print(f"{name:14} wasm {wasm:.2f} ms   {text}", flush=True)
    for providers, column in zip(PROVIDERS[1:], zip(*ratios, strict=True), strict=True):
        mean = statistics.geometric_mean(column)
        print(f"{providers}: {mean:.3f} times as fast as WebAssembly alone (geomean of {len(column)})")
    return 0
