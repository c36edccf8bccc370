"""python -m bench start: the first visit of a new browser profile, beside onnxruntime-web's `/wasm`, and the second.

Measures from the import of the package to the first result, on one thread, with files compressed by brotli; over
localhost, and over a line of limited bandwidth that all connections share. Both packages take turns, in new profiles;
ratios are our time over theirs.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext

from bench import history, machine, models
from bench.chromium import MOUNTS, ROOT, build
from bench.start_phases import Phases
from bench.start_server import Server, compressed
from bench.turns import columns, ratio
from kit import chromium as shared

MODELS = """mobilenet_v2 efficientnet_b0 vit_tiny minilm.dyn gpt2_tiny llama_mini.qdq lstm_tagger superres yolo_nms
 wav2vec2_mini""".split()
KEPT = 5000  # ms after a first visit until its caches for later visits are written
FIRST = "ort.mjs worker.mjs pyodide.asm.mjs pyodide.asm.wasm python.image.wasm".split()
LATER = "pyodide.rest.wasm python_stdlib.zip python_rest.zip engine.zip".split()
PEER = "ort.wasm.bundle.min.mjs ort-wasm-simd-threaded.wasm".split()
LIMIT = 300_000  # most ms of a call
KINDS = ("local", "slow", "second")
Times = dict[tuple[str, ...], list[float]]  # (model, kind, whose): ms


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench start", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5, help="visits, of which the median counts (default 5)")
    parser.add_argument("--slow-rounds", type=int, default=1, help="visits over the slow line (default 1; 0: none)")
    parser.add_argument("--mbits", type=float, default=20.0, help="Mbit per second of the slow line (default 20)")
    parser.add_argument("--save", action="store_true", help="store the result in bench/history")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.models) - set(models.names())):
        parser.error(f"no model {', '.join(unknown)}")
    build()
    brotli = compressed(
        [*(ROOT / "dist" / name for name in FIRST + LATER), *(MOUNTS["/peer/"] / name for name in PEER)]
    )
    print(f"{machine.processor()}, load {machine.load()}; ms from the import of the package to the first result")
    with Server(dict(MOUNTS), brotli) as server, shared.launch() as browser:
        bench = Bench(server, browser, args.mbits * 1e6)
        rounds = {"local": args.rounds, "slow": args.slow_rounds}
        names = args.models or MODELS
        times = bench.all(names, rounds)
        where = {**machine.identity(browser.version), "provider": "start"}
    print(f"\n{bench.phases.table()}")
    print(f"\n{files(brotli)}")
    if args.save:
        print(f"\nkept as {history.write({**where, 'models': {name: medians(times, name) for name in names}})}")
    print(f"\n{summary(times, names, args.mbits, size(brotli, FIRST, '/dist/'))}")
    return int(bench.wrong)


class Bench:
    """Visits, and their measurements."""

    def __init__(self, server: Server, browser: Browser, bits: float) -> None:
        self.server, self.browser, self.bits = server, browser, bits
        self.wrong = False
        self.phases = Phases()

    def all(self, names: list[str], rounds: dict[str, int]) -> Times:
        print(f"{'model':22}" + "".join(f"{kind:>8}{'peer':>8}{'ratio':>7}" for kind in KINDS))
        times: Times = defaultdict(list)
        for name in names:
            info = models.info(name)
            for kind, count in rounds.items():
                for n in range(count):
                    for whose in ("ours", "peer") if n % 2 else ("peer", "ours"):
                        self.profile(times, info, kind, whose)
            print(line(name, times), flush=True)
        return times

    def profile(self, times: Times, info: models.Info, kind: str, whose: str) -> None:
        """Make the first visit of a new profile and, unless the line is slow, a second one."""
        self.server.line.bits = self.bits if kind == "slow" else None
        context = self.browser.new_context()
        context.set_default_timeout(LIMIT)
        try:
            times[info["name"], kind, whose].append(self.visit(context, info, kind, whose))
            if kind == "local":
                times[info["name"], "second", whose].append(self.visit(context, info, "second", whose))
        finally:
            context.close()

    def visit(self, context: BrowserContext, info: models.Info, kind: str, whose: str) -> float:
        page = context.new_page()
        page.goto(f"{self.server.url}/start.html")
        page.wait_for_function("globalThis.bench")
        found: dict[str, Any] = page.evaluate("([whose, info]) => bench.visit(whose, info)", [whose, info])
        if isinstance(found["error"], str) or found["error"] > info["tolerance"]:
            print(f"  {info['name']}: the result of {whose} is wrong: {found['error']}")
            self.wrong |= whose == "ours"
        if (kind, whose) == ("local", "ours"):
            self.phases.add(page, found["phases"])
        if kind == "local":
            page.wait_for_timeout(KEPT)
        page.close()
        return float(found["milliseconds"])


def medians(times: Times, name: str) -> dict[str, dict[str, float]]:
    """Return kind -> runtime -> ms with three digits, without missing measurements."""
    found = {kind: {whose: times[name, kind, whose] for whose in ("ours", "peer")} for kind in KINDS}
    return {
        kind: {whose: float(f"{statistics.median(all_of):.3g}") for whose, all_of in by.items()}
        for kind, by in found.items()
        if by["ours"]
    }


def line(name: str, times: Times) -> str:
    return f"{name:22}{columns(times, [(name, kind) for kind in KINDS])}"


def size(brotli: dict[Path, Path], names: list[str], folder: str) -> int:
    return sum(brotli[(MOUNTS[folder] / name).resolve()].stat().st_size for name in names)


def files(brotli: dict[Path, Path]) -> str:
    """Return a table of the bytes of each file."""
    out = [f"{'file':32}{'bytes':>12}{'brotli 11':>12}"]
    for title, names, folder in (("", FIRST, "/dist/"), ("when needed: ", LATER, "/dist/"), ("peer: ", PEER, "/peer/")):
        for name in names:
            whole = (MOUNTS[folder] / name).stat().st_size
            out.append(f"{title + name:32}{whole:12,}{size(brotli, [name], folder):12,}")
    out.append(f"{'first visit, ours':32}{size(brotli, FIRST, '/dist/'):24,}")
    out.append(f"{'exported program, ours':32}{size(brotli, FIRST[:2], '/dist/'):24,}")
    out.append(f"{'first visit, peer':32}{size(brotli, PEER, '/peer/'):24,}")
    return "\n".join(out)


def summary(times: Times, names: list[str], mbits: float, count: int) -> str:
    means = [statistics.geometric_mean(ratio(times, (name, kind)) for name in names) for kind in KINDS]
    local, slow, second = (f"{mean:.2f}" for mean in means)
    return (
        f"first visit vs onnxruntime-web wasm: local {local}, {mbits:g} Mbit/s {slow}, bytes {count / 1e6:.2f} MB;"
        f" second visit {second}"
    )
