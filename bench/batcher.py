"""python -m bench batcher: requests a second to MiniLM, one run each and through a Batcher, natively and in a page.

Requests are sentences of 6 to 24 tokens that arrive all at once. The batcher pads them to the longest of each run
("padded") or runs only those of equal lengths together ("equal"). All take turns; medians are printed, with the ratio
to single runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from bench import machine, models
from bench.chromium import Chromium, chromium
from pyruntime import Batcher, InferenceSession, SessionOptions

MODEL = "minilm"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
PAD = dict.fromkeys(INPUTS, 0)
WAYS: dict[str, Any] = {"single": None, "equal": {}, "padded": PAD}
IN_PAGE = """async ([model, requests, ways, size, rounds, threads]) => {
  const ort = await import('/dist/ort.mjs');
  const { Batcher } = await import('/dist/extras.mjs');
  const session = await ort.InferenceSession.create(`/zoo/${model}.onnx`, { intraOpNumThreads: threads });
  const tensor = (data) => new ort.Tensor('int64', BigInt64Array.from(data, BigInt), [1, data.length]);
  const tensors = (inputs) => Object.entries(inputs).map(([name, data]) => [name, tensor(data)]);
  const feeds = requests.map((inputs) => Object.fromEntries(tensors(inputs)));
  const found = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const [name, pad] of Object.entries(ways)) {
      const to = pad ? new Batcher(session, { size, wait: 2, pad }) : session;
      const start = performance.now();
      await Promise.all(feeds.map((x) => to.run(x)));
      if (round) found[name].push(1000 * feeds.length / (performance.now() - start));
    }
  }
  return found;
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench batcher", description=__doc__)
    parser.add_argument("--size", type=int, default=8, help="most requests of a run (default 8)")
    parser.add_argument("--requests", type=int, default=96, help="of a turn (default 96)")
    parser.add_argument("--rounds", type=int, default=5, help="of turns; the first does not count (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="of the session (default 1)")
    parser.add_argument("--native", action="store_true", help="not in a page")
    args = parser.parse_args(argv)
    lengths = np.random.default_rng(0).integers(6, 25, args.requests)
    requests = [{name: [1] * int(n) for name in INPUTS} for n in lengths]
    print(f"{machine.processor()}; requests a second, {args.threads} thread(s), at most {args.size} a run")
    show("native", native(requests, args))
    if not args.native:
        with chromium() as opened:
            show("in a page", in_page(opened, requests, args))
    return 0


def show(title: str, found: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in found.items()}
    ratios = [f"{name} {value:7.1f} ({value / medians['single']:.2f}x)" for name, value in medians.items()]
    print(f"{title:12}" + "   ".join(ratios), flush=True)


def native(requests: list[dict[str, list[int]]], args: argparse.Namespace) -> dict[str, list[float]]:
    session = InferenceSession(str(models.path(MODEL)), SessionOptions(intra_op_num_threads=args.threads))
    feeds = [{name: np.array([data], np.int64) for name, data in r.items()} for r in requests]
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(args.rounds + 1):
        for name, pad in WAYS.items():
            seconds = timed(session, feeds, pad, args.size)
            if turn:
                found[name].append(len(feeds) / seconds)
    return found


def timed(session: InferenceSession, feeds: list[Any], pad: Any, size: int) -> float:
    start = time.perf_counter()
    if pad is None:
        for x in feeds:
            session.run(None, x)
    else:
        with Batcher(session, size=size, wait=2, pad=pad) as batcher:
            for future in [batcher.submit(None, x) for x in feeds]:
                future.result()
    return time.perf_counter() - start


def in_page(opened: Chromium, requests: list[Any], args: argparse.Namespace) -> dict[str, list[float]]:
    with opened.page() as page:
        return dict(page.evaluate(IN_PAGE, [MODEL, requests, WAYS, args.size, args.rounds, args.threads]))
