"""python -m bench workers: three models at once in a page, and one model in four tabs, by the option `worker`.

Three models run on one thread each: each alone, all in one worker, each in a worker of its own. Printed are runs a
second, and the sum of their shares of the rate alone. Then four tabs open one model, each with a worker of its own, or
with one for all: anonymous memory of all of Chromium's processes beyond that of four tabs without a session.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from bench import chromium, load, machine, models
from kit import chromium as shared
from kit import small_models
from pyruntime.cli.serve import Server

MODELS = ("mobilenet_v2", "minilm", "wav2vec2_mini")
PLACES = {"one worker": ["", "", ""], "three workers": ["a", "b", "c"]}
TABS, SIZE = 4, 64  # MB of weights
CREATE = """async ({ model, feeds, worker }) => {
  const ort = globalThis.ort ??= await import('pyruntime');
  ort.env.wasm.proxy = true;
  const tensors = Object.entries(feeds).map(([name, { type, data, dims }]) => (
    [name, new ort.Tensor(type, type === 'int64' ? data.map(BigInt) : data, dims)]));
  const session = await ort.InferenceSession.create(model, { worker, intraOpNumThreads: 1 });
  (globalThis.made ??= []).push({ session, feeds: Object.fromEntries(tensors) });
}"""
RUN = """async ({ chosen, seconds }) => {
  const end = performance.now() + 1000 * seconds;
  return Promise.all(chosen.map(async (n) => {
    const { session, feeds } = made[n];
    const start = performance.now();
    let runs = 0;
    while (performance.now() < end) {
      await session.run(feeds);
      runs++;
    }
    return 1000 * runs / (performance.now() - start);
  }));
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench workers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn (default 3)")
    parser.add_argument("--rounds", type=int, default=5, help="of turns (default 5)")
    args = parser.parse_args(argv)
    chromium.build([])
    print(f"{machine.processor()}, {os.cpu_count()} cores")
    with Server(chromium.MOUNTS) as server:
        at_once(server.url, args.seconds, args.rounds)
        in_tabs(server.url)
    return 0


def at_once(url: str, seconds: float, rounds: int) -> None:
    """The page has six sessions: each model in the first worker, and in one of its own."""
    with shared.launch() as browser:
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(url + "/index.html")
        for workers in PLACES.values():
            for name, worker in zip(MODELS, workers, strict=True):
                feeds = {key: _plain(x) for key, x in models.feeds(name).items()}
                page.evaluate(CREATE, {"model": shared.url_of(models.path(name)), "feeds": feeds, "worker": worker})
        turns = [[n] for n in range(3)] + [[0, 1, 2], [3, 4, 5]]
        found: list[list[list[float]]] = [[] for _ in turns]
        for _ in range(rounds + 1):
            for turn, results in zip(turns, found, strict=True):
                results.append(page.evaluate(RUN, {"chosen": turn, "seconds": seconds}))
        medians = [[statistics.median(runs) for runs in zip(*results[1:], strict=True)] for results in found]
    alone = [rates[0] for rates in medians[:3]]
    print(f"{'runs a second':16}" + "".join(f"{name:>16}" for name in MODELS) + f"{'sum of shares':>16}")
    for place, rates in zip(("alone", *PLACES), (alone, *medians[3:]), strict=True):
        share = sum(rate / best for rate, best in zip(rates, alone, strict=True))
        print(f"{place:16}" + "".join(f"{rate:16.1f}" for rate in rates) + f"{share:16.2f}", flush=True)


def _plain(x: Any) -> dict[str, Any]:
    return {"type": str(x.dtype), "data": x.ravel().tolist(), "dims": list(x.shape)}


def in_tabs(url: str) -> None:
    small_models.write(chromium.ROOT / "build" / "models")
    path = load.made(SIZE)
    print(f"{TABS} tabs of a model of {SIZE} MB: MB, and of the first tab")
    for worker in ("own", "shared"):
        with shared.launch_profile() as profile:
            tabs = [profile.pages[0], *(profile.new_page() for _ in range(TABS - 1))]
            for tab in tabs:
                tab.goto(url + "/index.html")
            time.sleep(load.KEPT)
            before, seen = load.browsers(), []
            for tab in tabs:
                x = {"type": "float32", "data": [0.0] * load.width_of(SIZE), "dims": [1, load.width_of(SIZE)]}
                tab.evaluate(CREATE, {"model": f"/data/{path.name}", "feeds": {"x": x}, "worker": worker})
                tab.evaluate(RUN, {"chosen": [0], "seconds": 0.2})
                time.sleep(load.KEPT)
                seen.append(load.browsers() - before)
        print(f"{worker:8}{seen[-1]:8.0f}{seen[0]:8.0f}", flush=True)
