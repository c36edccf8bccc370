"""python -m bench dispatches: counts a model's WebGPU calls, beside onnxruntime-web's `/webgpu` bundle.

One counter (kit/pages/gpu_counter.js) wraps the methods of WebGPU in the page and in the worker, so the counts are the
same on any adapter. Each model has a new browser with a page for each runtime, in which a session of a tiny model runs
first. Counts are of one run, the third: dispatches, submissions, bind groups, buffers, readbacks, and in kB what is
written by the CPU, copied between buffers, read back, and `bound`, the storage bindings of all dispatches; ms: the
median of five more runs, in turns. Creation and first run: pipelines, kB of shaders, milliseconds. At the end: the
models of which a run takes more than with the peer. --all: the zoo, Silero, and small forms of the field (kit/field).

With --token they are the mean of sixteen steps of a decoder behind the first sixteen; its caches stay on the GPU. The
decoder is llama_mini, or with --items, --places or --window one with GroupQueryAttention. With several lengths of
caches (--behind), bench/token_lengths.py compares their times.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from operator import itemgetter
from typing import Any

from playwright.sync_api import Error, Page

from bench import models
from bench.chromium import ROOT, Chromium, build, chromium
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
COUNTED = {"dispatches": 1, "submits": 1, "bind groups": 1, "buffers": 1, "readbacks": 1, "written": 1000,
           "read": 1000, "copied": 1000, "bound": 1000}  # fmt: skip
TIMED = 5  # runs
HISTORY = ROOT / "bench" / "history" / "dispatches.json"
MADE = {
    "ms": 1,
    "pipelines": 1,
    "source": 1000,
    "create": 1,
    "first": 1,
    "both": 1,
}  # both: from create to the first result
WIDTH = {"dispatches": 12, "submits": 10, "bind groups": 13, "buffers": 10, "readbacks": 11, "pipelines": 11}
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
TIME = "async () => { const start = performance.now(); await bench.again(); return performance.now() - start; }"
Counts = dict[str, float]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench dispatches", description=__doc__)
    parser.add_argument("models", nargs="*", default=GPU_MODELS, help=f"default {' '.join(GPU_MODELS)}")
    parser.add_argument("--all", action="store_true", help="zoo, Silero, and small forms of the field")
    parser.add_argument("--save", action="store_true", help="keep the counts in bench/history/dispatches.json")
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
    return runs(models.everything() if args.all else args.models, args.save)


def runs(names: Sequence[str], save: bool) -> int:
    """Print the counts of each model, and return the number of models that we fail."""
    print("ours / onnxruntime-web's; bytes in kB, times in ms")
    print(f"{'':20}" + "".join(f"{name:>{WIDTH.get(name, 16)}}" for name in (*COUNTED, *MADE)))
    kept: dict[str, list[Counts | str]] = {}
    for name in names:
        kept[name] = found = counted(name)
        why = [f"{runtime}: {each}" for runtime, each in zip(RUNTIMES, found, strict=True) if isinstance(each, str)]
        both = [{} if isinstance(each, str) else each for each in found]
        print(f"{name:20}" + "".join(cell(both, key, unit) for key, unit in (COUNTED | MADE).items()), *why, flush=True)
    if save:
        store(kept)
    numbers = {name: [each for each in found if not isinstance(each, str)] for name, found in kept.items()}
    summarise({name: found for name, found in numbers.items() if len(found) == len(RUNTIMES)})
    return sum(isinstance(ours, str) for ours, _ in kept.values())


def store(found: Mapping[str, Sequence[Counts | str]]) -> None:
    """Keep the counts of a run, and its milliseconds with three digits, beside those of other models."""
    kept = json.loads(HISTORY.read_text())["models"] if HISTORY.exists() else {}
    for name, each in found.items():
        counts = [x if isinstance(x, str) else {k: round(x.get(k, 0)) for k in COUNTED} | _ms(x) for x in each]
        kept[name] = dict(zip(RUNTIMES, counts, strict=True))
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(counts)}" for name, counts in sorted(kept.items()))
    HISTORY.write_text(f'{{\n "date": "{date.today()}",\n "models": {{\n{lines}\n }}\n}}\n')


def _ms(counts: Counts) -> Counts:
    return {"ms": float(f"{counts['ms']:.3g}")}


def summarise(compared: Mapping[str, Sequence[Counts]]) -> None:
    """Print means, and where a run takes more than with onnxruntime-web. compared: for each model ours and theirs"""
    for key in ("dispatches", "bound", "ms", "both"):
        ratios = {name: ours[key] / theirs[key] for name, (ours, theirs) in compared.items() if theirs.get(key)}
        worst, most = max(ratios.items(), key=itemgetter(1), default=("", math.nan))
        print(f"{key}: {geomean_of([*ratios.values()]):.2f} of onnxruntime-web's, at most {most:.2f} ({worst})")
    for name, (ours, theirs) in compared.items():
        more = [key for key in COUNTED if ours.get(key, 0) > theirs.get(key, 0)]
        if more:
            print(f"more than onnxruntime-web: {name}: {', '.join(more)}")


def cell(found: Sequence[Counts], key: str, unit: int) -> str:
    text = " / ".join(f"{counts.get(key, 0) / unit:.0f}" for counts in found)
    return f"{text:>{WIDTH.get(key, 16)}}"


def counted(name: str) -> list[Counts | str]:
    """Return the counts of a run, and of creation with the first run, for each runtime; or why it has none."""
    info = models.info(name, small=True)
    found: list[Counts | str] = []
    with chromium(built=True) as browser, ExitStack() as stack:
        pages: list[Page] = [stack.enter_context(started(browser, runtime)) for runtime in RUNTIMES]
        for page, runtime in zip(pages, RUNTIMES, strict=True):
            try:
                found.append(of_run(page, info, runtime))
            except Error as error:
                found.append(error.message.splitlines()[0])
        running = [(page, counts) for page, counts in zip(pages, found, strict=True) if not isinstance(counts, str)]
        turns = [[page.evaluate(TIME) for page, _ in running] for _ in range(TIMED)]
        for (_, counts), times in zip(running, zip(*turns, strict=True), strict=True):
            counts["ms"] = statistics.median(times)
    return found


def of_run(page: Page, info: models.Info, runtime: str) -> Counts:
    take(page)
    timing = page.evaluate("(info) => bench.open(info)", info)
    if isinstance(timing["difference"], str) or timing["difference"] > info["tolerance"]:
        print(f"{info['name']}: RESULTS of {runtime} DIFFER from those expected: {timing['difference']}")
    made = take(page)
    for _ in range(2):
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
    with chromium(built=True) as browser, started(browser, runtime) as page:
        yield page


@contextmanager
def started(browser: Chromium, runtime: str) -> Iterator[Page]:
    how = {"threads": 1, "provider": "webgpu", "worker": False, "jax": False, "tiny": models.tiny()}
    how |= {one: one == runtime for one in RUNTIMES}
    with browser.page(beginning=COUNTER.read_text()) as page:
        times = page.evaluate("(how) => bench.start(how)", how)
        if isinstance(times[runtime], str):
            raise ValueError(times[runtime])
        yield page


def take(page: Page) -> Counts:
    """Return the counts since the last call, in the page and in its workers."""
    sums: Counts = {}
    for place in (page, *page.workers):
        for key, value in place.evaluate(TAKE).items():
            sums[key] = sums.get(key, 0) + value
    return sums
