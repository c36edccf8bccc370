"""python -m bench dispatches: counts a model's WebGPU calls, beside onnxruntime-web's `/webgpu` bundle.

One counter (kit/pages/gpu_counter.js) wraps the methods of WebGPU in the page and in the worker, so the counts are the
same on any adapter. Each runtime and model has a new browser, in which a session of a tiny model runs first. Counts are
of one run, the fourth: dispatches, submissions, bind groups, readbacks, and in kB what is written by the CPU, copied
between buffers, read back, and `bound`, the storage bindings of all dispatches. Creation and first run: pipelines, kB
of shaders, milliseconds.

With --token they are the mean of sixteen steps of a decoder behind the first sixteen; its caches stay on the GPU. The
decoder is llama_mini, or with --items, --places or --window one with GroupQueryAttention. With several lengths of
caches (--behind), bench/token_lengths.py compares their times.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from playwright.sync_api import Error, Page

from bench import models
from bench.chromium import ROOT, build, chromium
from bench.compare import GPU_MODELS
from bench.results import geomean_of
from bench.token_lengths import in_page, natively
from kit import zoo
from kit.decoders import Decoder, Size

TOKENS = 16
RUNTIMES = ("ours", "peer")
GROUPED = Size(256, 4, 8, 2, 512, 1000)  # caches as those of llama_mini
PEER = "onnxruntime-web"
COUNTER = ROOT / "kit" / "pages" / "gpu_counter.js"
COUNTED = {"dispatches": 1, "submits": 1, "bind groups": 1, "readbacks": 1, "written": 1000, "read": 1000,
           "copied": 1000, "bound": 1000}  # fmt: skip
MADE = {"pipelines": 1, "source": 1000, "create": 1, "first": 1, "both": 1}  # both: from create to the first result
WIDTH = {"dispatches": 12, "submits": 10, "bind groups": 13, "readbacks": 11, "pipelines": 11}
TAKE = """() => {
  const { gpuCounts = {} } = globalThis, taken = { ...gpuCounts };
  for (const name of Object.keys(gpuCounts)) delete gpuCounts[name];
  return taken;
}"""
TIMES = """async ({ count, behind }) => {
  const times = [];
  for (let n = 0; n < count; n++) {
    const start = performance.now();
    await bench.nextToken(behind);
    times.push(performance.now() - start);
  }
  return times;
}"""
Counts = dict[str, float]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench dispatches", description=__doc__)
    parser.add_argument("models", nargs="*", default=GPU_MODELS, help=f"default {' '.join(GPU_MODELS)}")
    parser.add_argument("--token", action="store_true", help="a token of a decoder whose caches stay on the GPU")
    parser.add_argument("--past", type=int, default=1, help="tokens of the decoder's first step (default 1)")
    parser.add_argument("--alone", action="store_true", help="with --token: without onnxruntime-web")
    parser.add_argument("--behind", type=int, nargs="*", default=[0], help="positions in its caches before that")
    parser.add_argument("--items", type=int, default=0, help="with --token: texts of different lengths")
    parser.add_argument("--places", type=int, default=0, help="with --token: of caches of a fixed length")
    parser.add_argument("--window", type=int, default=0, help="with --token: last keys that a token attends to")
    args = parser.parse_args(argv)
    build(())
    if args.token:
        what = {"model": f"/zoo/{zoo.materialize('llama_mini').name}", "past": args.past, "items": 0}
        if args.items or args.places or args.window:
            what |= {"model": grouped(args.window), "items": args.items or 1, "places": args.places}
        return tokens(what, args.behind, RUNTIMES[:1] if args.alone else RUNTIMES)
    names = args.models
    print("ours / onnxruntime-web's; bytes in kB, times in ms")
    print(f"{'':16}" + "".join(f"{name:>{WIDTH.get(name, 16)}}" for name in (*COUNTED, *MADE)))
    ratios: dict[str, dict[str, float]] = {}
    failed = 0
    for name in names:
        try:
            found = [counted(name, runtime) for runtime in RUNTIMES]
        except (Error, ValueError) as error:
            failed += 1
            print(f"{name:16} failed: {str(error).splitlines()[0]}", flush=True)
            continue
        print(f"{name:16}" + "".join(cell(found, key, unit) for key, unit in (COUNTED | MADE).items()), flush=True)
        ours, theirs = found
        for key in ours.keys() & theirs.keys():
            if ours[key] and theirs[key]:
                ratios.setdefault(key, {})[name] = ours[key] / theirs[key]
    for key in ("dispatches", "bound", "both"):
        worst, most = max(ratios.get(key, {"": math.nan}).items(), key=itemgetter(1))
        mean = geomean_of([*ratios.get(key, {}).values()])
        print(f"{key}: {mean:.2f} of onnxruntime-web's, at most {most:.2f} ({worst})")
    return failed


def cell(found: Sequence[Counts], key: str, unit: int) -> str:
    text = " / ".join(f"{counts.get(key, 0) / unit:.0f}" for counts in found)
    return f"{text:>{WIDTH.get(key, 16)}}"


def counted(name: str, runtime: str) -> Counts:
    """Return the counts of a run, and of creation with the first run."""
    info = models.info(name)
    with opened(runtime) as page:
        take(page)
        timing = page.evaluate("(info) => bench.open(info)", info)
        if isinstance(timing["difference"], str) or timing["difference"] > info["tolerance"]:
            print(f"{name}: RESULTS of {runtime} DIFFER from those expected: {timing['difference']}")
        made = take(page)
        for _ in range(3):
            take(page)
            page.evaluate("() => bench.again()")
        times = {"create": timing["create"], "first": timing["first"], "both": timing["create"] + timing["first"]}
        return {**take(page), **{key: made.get(key, 0) for key in MADE}, **times}


def grouped(window: int) -> str:
    """Write a decoder with GroupQueryAttention, and return its address."""
    path = zoo.CACHE / f"grouped_{window}.onnx"
    with zoo.replacing(path) as part:
        part.write_bytes(Decoder(GROUPED, "fp32", empty=False, window=window or -1).model().SerializeToString())
    return f"/zoo/{path.name}"


def tokens(what: dict[str, Any], positions: Sequence[int], runtimes: Sequence[str]) -> int:
    """Return exit code 1 if the runtimes do not find the same tokens. what: see `openDecoder` of bench/page/token.js"""
    differ = False
    for behind in positions:
        found, texts = zip(*[decoded(runtime, what | {"behind": behind}) for runtime in runtimes], strict=True)
        against = f" / {PEER}'s" if len(runtimes) > 1 else ""
        print(f"ours{against}, a token behind {behind} positions on the GPU; bytes in kB, ms a median")
        for key, unit in (COUNTED | {"buffers": 1, "pipelines": 1, "writes": 1, "ms": 1}).items():
            print(f"{key:14}{cell(found, key, unit)}", flush=True)
        differ |= texts[0] != texts[-1]
    if len(positions) > 1 and not what["items"]:
        with opened("ours") as page:
            print(in_page(page, positions), flush=True)
        print(natively(positions))
    return int(differ)


def decoded(runtime: str, what: dict[str, Any]) -> tuple[Counts, list[int]]:
    """Return the counts of a token, and the tokens."""
    behind = what["behind"]
    with opened(runtime) as page:
        page.evaluate("(what) => bench.openDecoder(what)", what)
        text = [page.evaluate("(behind) => bench.nextToken(behind)", behind) for _ in range(TOKENS)]
        take(page)
        text += [page.evaluate("(behind) => bench.nextToken(behind)", behind) for _ in range(TOKENS)]
        counts = {key: count / TOKENS for key, count in take(page).items()}
        return {**counts, "ms": statistics.median(page.evaluate(TIMES, {"count": TOKENS, "behind": behind}))}, text


@contextmanager
def opened(runtime: str) -> Iterator[Page]:
    """Open a page of a new browser in which the runtime has started."""
    how = {"threads": 1, "provider": "webgpu", "worker": False, "jax": False, "tiny": models.tiny()}
    how |= {one: one == runtime for one in RUNTIMES}
    with chromium(built=True) as browser, browser.page(beginning=COUNTER.read_text()) as page:
        started = page.evaluate("(how) => bench.start(how)", how)
        if isinstance(started[runtime], str):
            raise ValueError(started[runtime])
        yield page


def take(page: Page) -> Counts:
    """Return the counts since the last call, in the page and in its workers."""
    sums: Counts = {}
    for place in (page, *page.workers):
        for key, value in place.evaluate(TAKE).items():
            sums[key] = sums.get(key, 0) + value
    return sums
